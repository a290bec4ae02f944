//! The containers of a pod, of all three kinds.

pub mod env;
pub mod lifecycle;
pub mod mounts;

use std::collections::HashSet;

use machinery::names;

use crate::checks::{At, Errors};
use crate::core::pod::container::env::{env, env_from};
use crate::core::pod::container::lifecycle::{lifecycle, probes, restart_rules};
use crate::core::pod::container::mounts::{devices, mounts};
use crate::core::pod::volumes::Volumes;
use crate::core::pod::{resources, security};

/// What containers are checked against.
pub struct Surroundings<'a, 'v> {
    /// The spec that they are in.
    pub spec: &'a At<'a, 'v>,
    /// The volumes that are in order.
    pub volumes: &'a Volumes<'v>,
    /// The resource claims of the pod.
    pub claims: &'a [&'v str],
}

const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

/// The containers that run together.
pub fn containers(around: &Surroundings<'_, '_>, errors: &mut Errors) {
    let list = around.spec.at("containers");
    if list.is_empty() {
        return errors.required(&list, "");
    }
    let mut names: HashSet<&str> = HashSet::new();
    for container in list.items() {
        common(&container, around, errors);
        let name = container.text_at("name");
        if names.contains(&name) {
            errors.duplicate(&container.at("name"), name);
        } else {
            names.insert(name);
        }
        lifecycle(&container, around.spec, errors);
        probes(&container, errors);
        restart_rules(&container, false, errors);
    }
    host_ports(list.items(), errors);
}

/// The containers that run before, one after the other, or stay alongside.
pub fn init_containers(around: &Surroundings<'_, '_>, errors: &mut Errors) {
    let list = around.spec.at("initContainers");
    let main = around.spec.at("containers");
    let mut names: HashSet<&str> = main.items().map(|container| container.text_at("name")).collect();
    for container in list.items() {
        common(&container, around, errors);
        let stays = container.text_at("restartPolicy") == "Always";
        restart_rules(&container, true, errors);
        let name = container.text_at("name");
        if names.contains(&name) {
            errors.duplicate(&container.at("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        host_ports(std::iter::once(container), errors);
        if stays {
            lifecycle(&container, around.spec, errors);
            probes(&container, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                errors.forbidden_if_set(&container.at(field), NOT_FOR_INIT);
            }
            for policy in container.at("resizePolicy").items() {
                let restart = policy.at("restartPolicy");
                if restart.text() == "RestartContainer" {
                    errors.invalid(&restart, "must not be set to 'RestartContainer' for non-sidecar initContainers");
                }
            }
        }
    }
}

/// The containers that people add to look around.
pub fn ephemeral_containers(around: &Surroundings<'_, '_>, errors: &mut Errors) {
    const NOT_ALLOWED: [&str; 8] = [
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "restartPolicy",
        "restartPolicyRules",
        "resizePolicy",
    ];
    let lists = [around.spec.at("containers"), around.spec.at("initContainers")];
    let others: HashSet<&str> = lists.iter().flat_map(At::items).map(|container| container.text_at("name")).collect();
    let mut names = others.clone();
    for container in around.spec.at("ephemeralContainers").items() {
        common(&container, around, errors);
        image_is_trimmed(&container, errors);
        let name = container.text_at("name");
        if names.contains(&name) {
            errors.duplicate(&container.at("name"), name);
        } else {
            names.insert(name);
        }
        let target = container.at("targetContainerName");
        if !target.text().is_empty() && !others.contains(&target.text()) {
            errors.not_found(&target, target.text());
        }
        for field in NOT_ALLOWED {
            errors.forbidden_if_set(&container.at(field), NOT_FOR_EPHEMERAL);
        }
        if !container.at("resources").is_empty() {
            errors.forbidden(&container.at("resources"), NOT_FOR_EPHEMERAL);
        }
        for mount in container.at("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text_at(field).is_empty() {
                    errors.forbidden(&mount.at(field), NOT_FOR_EPHEMERAL);
                }
            }
        }
    }
}

/// Images of pods, unlike those of templates, have no white space around them.
pub fn image_is_trimmed(container: &At<'_, '_>, errors: &mut Errors) {
    let image = container.at("image");
    if image.text().trim() != image.text() {
        errors.invalid(&image, "must not have leading or trailing whitespace");
    }
}

/// What every container must have right.
fn common(container: &At<'_, '_>, around: &Surroundings<'_, '_>, errors: &mut Errors) {
    if errors.required_text(&container.at("name")) {
        errors.problems(&container.at("name"), names::is_dns1123_label(container.text_at("name")));
    }
    errors.required_text(&container.at("image"));
    errors.required_one_of(&container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    ports(&container.at("ports"), errors);
    for variable in container.at("env").items() {
        env(&variable, errors);
    }
    env_from(&container.at("envFrom"), errors);
    mounts(container, around.volumes, errors);
    devices(container, around.volumes, errors);
    pull_policy(&container.at("imagePullPolicy"), errors);
    resources::container(&container.at("resources"), around.claims, errors);
    resize_policies(&container.at("resizePolicy"), around.spec.text_at("restartPolicy"), errors);
    security::container(&container.at("securityContext"), around.spec, errors);
}

fn ports(list: &At<'_, '_>, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for port in list.items() {
        let name = port.at("name");
        if !name.text().is_empty() {
            let problems = names::is_valid_port_name(name.text());
            if !problems.is_empty() {
                errors.problems(&name, problems);
            } else if names.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            } else {
                names.push(name.text());
            }
        }
        let number = port.at("containerPort");
        match number.int().unwrap_or(0) {
            0 => errors.required(&number, ""),
            port => errors.int_problems(&number, names::is_valid_port_num(port)),
        }
        let host = port.at("hostPort");
        if let Some(number) = host.int().filter(|number| *number != 0) {
            errors.int_problems(&host, names::is_valid_port_num(number));
        }
        errors.required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// No two containers can have one port of the host.
fn host_ports<'q, 'v: 'q>(containers: impl Iterator<Item = At<'q, 'v>>, errors: &mut Errors) {
    let mut taken: HashSet<String> = HashSet::new();
    for container in containers {
        for port in container.at("ports").items() {
            let number = port.at("hostPort").int().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let shown = format!("{}/{}/{number}", port.text_at("protocol"), port.text_at("hostIP"));
            if taken.contains(&shown) {
                errors.duplicate(&port.at("hostPort"), shown);
            } else {
                taken.insert(shown);
            }
        }
    }
}

/// When an image is pulled.
pub fn pull_policy(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_one_of(at, &["Always", "IfNotPresent", "Never"]);
}

fn resize_policies(list: &At<'_, '_>, restart_policy: &str, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for policy in list.items() {
        let (resource, restart) = (policy.text_at("resourceName"), policy.text_at("restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&policy, resource);
        }
        seen.insert(resource);
        // Upstream names the list, whichever entry is meant.
        let path = list.to_string();
        errors.required_one_of(&At::part(&path, &policy.value()["resourceName"]), &["cpu", "memory"]);
        errors
            .required_one_of(&At::part(&path, &policy.value()["restartPolicy"]), &["NotRequired", "RestartContainer"]);
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid_value(list, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}
