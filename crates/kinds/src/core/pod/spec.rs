//! The spec of a pod, wherever one is written: what must be right in pods and in every template.

use std::collections::HashSet;

use machinery::names::ip;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::container::Surroundings;
use crate::core::pod::{container, resources, scheduling, security, volumes};

/// The annotation of a pod that mirrors one a kubelet runs by itself.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Every container of a pod, in upstream's order.
pub fn each_container(spec: &At<'_, '_>, mut visit: impl FnMut(&At<'_, '_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.at(list).items() {
            visit(&container);
        }
    }
}

/// A template of pods.
pub fn validate_template(template: &At<'_, '_>, errors: &mut Errors) {
    let metadata = template.at("metadata");
    // Upstream leaves `metadata` out of these paths.
    errors.labels(&template.named("labels", "metadata.labels"));
    let annotations = template.named("annotations", "metadata.annotations");
    errors.annotations(&annotations);
    let spec = template.at("spec");
    validate_annotations(&annotations, &spec, errors);
    validate(&spec, None, errors);
    security::annotations(&metadata, &spec, errors);
    if !spec.at("ephemeralContainers").is_empty() {
        errors.forbidden(&spec.at("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// A pod's metadata and spec, beyond what every object's metadata must have right.
pub fn validate_pod(pod: &At<'_, '_>, errors: &mut Errors) {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    validate_annotations(&metadata.at("annotations"), &spec, errors);
    validate(&spec, Some(metadata.value()), errors);
    if spec.text_at("serviceAccountName").is_empty() {
        for volume in spec.at("volumes").items() {
            for source in volume.at("projected.sources").items() {
                errors.forbidden_if_set(
                    &source.at("serviceAccountToken"),
                    "must not be specified when serviceAccountName is not set",
                );
            }
        }
    }
    errors.not_negative(&spec.at("terminationGracePeriodSeconds"));
    for list in ["containers", "initContainers"] {
        for container in spec.at(list).items() {
            container::image_is_trimmed(&container, errors);
        }
    }
}

/// Annotations that mean something to pods.
pub fn validate_annotations(annotations: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.text_at("nodeName").is_empty() {
        errors.invalid_text(&mirror, "must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.text()) {
        errors.invalid_text(&cost, "must be a 32bit integer");
    }
    for (key, annotation) in annotations.entries() {
        if key == security::SECCOMP_POD || key.starts_with(security::SECCOMP_CONTAINER) {
            let profile = annotation.text();
            let shown = annotations.at(key);
            match profile.strip_prefix("localhost/") {
                Some(path) => {
                    let path = Value::from(path);
                    let place = shown.to_string();
                    volumes::descending(&At::part(&place, &path), errors);
                }
                None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
                None => errors.invalid_value(&shown, profile, "must be a valid seccomp profile"),
            }
        }
        if let Some(container) = key.strip_prefix(security::APP_ARMOR) {
            let mut known = false;
            each_container(spec, |candidate| known |= candidate.text_at("name") == container);
            if !known {
                errors.invalid_value(&annotation, container, "container not found");
            }
            let profile = annotation.text();
            if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
                errors.invalid_text(&annotation, format!("invalid AppArmor profile name: {profile:?}"));
            }
        }
    }
}

/// A whole number of 32 bits, without a plus and without leading zeros.
fn is_cost(text: &str) -> bool {
    let first = text.as_bytes().first().copied().unwrap_or(b'+');
    (first == b'-' || text == "0" || (b'1'..=b'9').contains(&first)) && text.parse::<i32>().is_ok()
}

/// The spec. `metadata` is that of the pod, where the spec is one.
fn validate(spec: &At<'_, '_>, metadata: Option<&Value>, errors: &mut Errors) {
    if !spec.has("terminationGracePeriodSeconds") {
        errors.required(&spec.at("terminationGracePeriodSeconds"), "");
    }
    let pod = metadata.map_or("", |metadata| value::text(metadata, "name"));
    let volumes = volumes::validate(&spec.at("volumes"), pod, errors);
    let claims = spec.at("resourceClaims");
    let claim_names: Vec<&str> =
        claims.items().map(|claim| claim.text_at("name")).filter(|name| !name.is_empty()).collect();
    resource_claims(&claims, metadata, errors);
    let around = Surroundings { spec, volumes: &volumes, claims: &claim_names };
    container::containers(&around, errors);
    container::init_containers(&around, errors);
    container::ephemeral_containers(&around, errors);
    resources::pod(spec, &claim_names, errors);
    host_network(spec, metadata.is_some(), errors);
    errors.required_one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    errors.required_one_of(&spec.at("dnsPolicy"), &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    errors.labels(&spec.at("nodeSelector"));
    security::pod(spec, errors);
    scheduling::affinity(&spec.at("affinity"), errors);
    dns(spec, errors);
    gates(spec, errors);
    scheduling::spread(&spec.at("topologySpreadConstraints"), errors);
    security::host_processes(spec, errors);
    host_users(spec, errors);
    names(spec, errors);
    let deadline = spec.at("activeDeadlineSeconds");
    errors.in_range_if_set(&deadline, 1, i64::from(i32::MAX));
    scheduling::tolerations(&spec.at("tolerations"), errors);
    host_aliases(&spec.at("hostAliases"), errors);
    let preemption = spec.at("preemptionPolicy");
    if preemption.is_set() {
        errors.required_one_of(&preemption, &["PreemptLowerPriority", "Never"]);
    }
    if spec.has("overhead") {
        resources::overhead(&spec.at("overhead"), errors);
    }
    security::operating_system(spec, errors);
    file_keys(spec, errors);
}

fn resource_claims(list: &At<'_, '_>, metadata: Option<&Value>, errors: &mut Errors) {
    let mirrors = metadata.is_some_and(|metadata| {
        value::at(metadata, "annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some())
    });
    let mut seen: HashSet<&str> = HashSet::new();
    for claim in list.items() {
        if mirrors {
            errors.push(machinery::status::FieldError::forbidden("", "static pods do not support resource claims"));
            continue;
        }
        let name = claim.at("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            errors.problems(&name, names::is_dns1123_label(name.text()));
            seen.insert(name.text());
        }
        let (by_name, by_template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (by_name.is_set(), by_template.is_set()) {
            (true, true) => {
                errors.invalid(
                    &claim,
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
                );
            }
            (false, false) => {
                errors.invalid(&claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
            }
            _ => {}
        }
        for reference in [by_name, by_template] {
            if reference.is_set() {
                errors.problems(&reference, names::name_is_dns_subdomain(reference.text(), false));
            }
        }
    }
}

/// On the host's network a container has no ports but the host's.
fn host_network(spec: &At<'_, '_>, is_pod: bool, errors: &mut Errors) {
    if !spec.at("hostNetwork").flag() {
        return;
    }
    for container in spec.at("containers").items() {
        for port in container.at("ports").items() {
            let (host, inside) = (port.at("hostPort"), port.at("containerPort"));
            let number = host.int().unwrap_or(0);
            if (is_pod || number != 0) && number != inside.int().unwrap_or(0) {
                errors.invalid_int(&host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns(spec: &At<'_, '_>, errors: &mut Errors) {
    const MOST_SERVERS: usize = 3;
    const MOST_SEARCHES: usize = 32;
    const MOST_CHARACTERS: usize = 2048;
    let config = spec.at("dnsConfig");
    let servers = config.at("nameservers");
    if spec.text_at("dnsPolicy") == "None" {
        if !config.is_set() {
            return errors.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return errors.required(&servers, "must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > MOST_SERVERS {
        errors.invalid(&servers, format!("must not have more than {MOST_SERVERS} nameservers"));
    }
    for server in servers.items() {
        errors.extend(ip::is_valid_ip_for_legacy_field(&server.to_string(), server.text(), true, &[]));
    }
    let searches = config.at("searches");
    if searches.len() > MOST_SEARCHES {
        errors.invalid(&searches, format!("must not have more than {MOST_SEARCHES} search paths"));
    }
    let characters: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if characters > MOST_CHARACTERS + 1 {
        let detail =
            format!("must not have more than {MOST_CHARACTERS} characters (including spaces) in the search list");
        errors.invalid(&searches, detail);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let domain = search.text().strip_suffix('.').unwrap_or(search.text());
        for problem in names::is_dns1123_subdomain_with_underscore(domain) {
            errors.invalid_value(&search, domain, problem);
        }
    }
    for option in config.at("options").items() {
        if option.text_at("name").is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

fn gates(spec: &At<'_, '_>, errors: &mut Errors) {
    for gate in spec.at("readinessGates").items() {
        errors.label_name(&gate.at("conditionType"));
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for gate in spec.at("schedulingGates").items() {
        let name = gate.text_at("name");
        for problem in names::is_qualified_name(name) {
            errors.invalid_value(&gate, name, problem);
        }
        if seen.contains(&name) {
            errors.duplicate(&gate, name);
        }
        seen.insert(name);
    }
}

fn host_users(spec: &At<'_, '_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.at("hostUsers").value().as_bool() != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(field).flag() {
            errors.forbidden(&spec.named(shown, field), DETAIL);
        }
    }
    each_container(spec, |container| {
        let devices = container.at("volumeDevices");
        if !devices.is_empty() {
            errors.forbidden(&devices, DETAIL);
        }
    });
}

/// Names of the pod itself, and of what it refers to.
fn names(spec: &At<'_, '_>, errors: &mut Errors) {
    let host = spec.at("hostnameOverride");
    if host.is_set() {
        if spec.at("setHostnameAsFQDN").flag() {
            errors.forbidden(&host, "may not be specified when setHostnameAsFQDN is true");
        }
        if spec.at("hostNetwork").flag() {
            errors.forbidden(&host, "may not be specified when hostNetwork is true");
        }
        if host.text().len() > 64 {
            errors.too_long(&host, 64);
        }
        errors.problems(&host, names::is_dns1123_subdomain(host.text()));
    }
    let account = spec.text_at("serviceAccountName");
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let name = spec.at(field);
        if !name.text().is_empty() {
            errors.problems(&name, names::name_is_dns_subdomain(name.text(), false));
        }
        if field == "serviceAccountName" && spec.text_at("serviceAccount") != account {
            let shown = spec.named("deprecatedServiceAccount", "serviceAccount");
            errors.invalid_text(&shown, format!("must be the same as serviceAccountName: {account:?}"));
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.at(field);
        if !name.text().is_empty() {
            errors.problems(&name, names::is_dns1123_label(name.text()));
        }
    }
    let class = spec.at("runtimeClassName");
    if class.is_set() {
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
    }
}

fn host_aliases(list: &At<'_, '_>, errors: &mut Errors) {
    for alias in list.items() {
        errors.extend(ip::is_valid_ip_for_legacy_field(&alias.at("ip").to_string(), alias.text_at("ip"), true, &[]));
        for host in alias.at("hostnames").items() {
            errors.problems(&host, names::is_dns1123_subdomain(host.text()));
        }
    }
}

/// Variables that come from a file come from one in an empty directory.
fn file_keys(spec: &At<'_, '_>, errors: &mut Errors) {
    let volumes = spec.at("volumes");
    each_container(spec, |container| {
        for variable in container.at("env").items() {
            let name = variable.at("valueFrom.fileKeyRef.volumeName");
            if !variable.has("valueFrom.fileKeyRef") {
                continue;
            }
            match volumes.items().find(|volume| volume.text_at("name") == name.text()) {
                None => errors.not_found(&name, name.text()),
                Some(volume) if !volume.has("emptyDir") => {
                    errors.invalid_text(&name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
