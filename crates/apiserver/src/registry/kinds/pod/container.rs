//! The containers of a pod, of all three kinds.

use std::collections::HashSet;

use machinery::{Value, names};

use super::super::common::{At, Errors, Rules};
use super::volumes::{Volumes, descending, no_backsteps};
use super::{resources, security};

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

/// An environment variable.
fn env(variable: &At<'_, '_>, errors: &mut Errors) {
    const FIELDS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    if errors.required_text(&variable.at("name")) {
        errors.problems(&variable.at("name"), names::is_relaxed_env_var_name(variable.text_at("name")));
    }
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut sources = 0;
    for (source, rules) in ENV_SOURCES {
        if from.has(source) {
            sources += 1;
            match source {
                "fieldRef" => field_ref(&from.at(source), &FIELDS, errors),
                _ => rules(&from.at(source), errors),
            }
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid_value(&from, "", detail);
    } else if !variable.text_at("value").is_empty() {
        errors.invalid_value(&from, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid_value(&from, "", "may not have more than one field specified at a time");
    }
}

/// Where a variable's value may come from, and the rules of each; those of `fieldRef` need to know which fields there are.
const ENV_SOURCES: [(&str, Rules); 5] = [
    ("fieldRef", |_, _| ()),
    ("resourceFieldRef", |at, errors| resource_field_ref(at, false, errors)),
    ("configMapKeyRef", key_ref),
    ("secretKeyRef", key_ref),
    ("fileKeyRef", file_key_ref),
];

fn key_ref(at: &At<'_, '_>, errors: &mut Errors) {
    errors.problems(&at.at("name"), names::name_is_dns_subdomain(at.text_at("name"), false));
    if errors.required_text(&at.at("key")) {
        errors.problems(&at.at("key"), names::is_config_map_key(at.text_at("key")));
    }
}

fn file_key_ref(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(&at.at("key")) {
        errors.problems(&at.at("key"), names::is_relaxed_env_var_name(at.text_at("key")));
    }
    if errors.required_text(&at.at("volumeName")) {
        errors.problems(&at.at("volumeName"), names::is_dns1123_label(at.text_at("volumeName")));
    }
    if errors.required_text(&at.at("path")) {
        no_backsteps(&at.at("path"), errors);
    }
}

/// A reference to a field of the pod, one of `known` or an entry of its labels or annotations.
pub fn field_ref(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    /// What upstream can convert, whether or not it may be asked for here.
    const CONVERTED: [&str; 14] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    if !errors.required_text(&at.at("apiVersion")) {
        return;
    }
    let path = at.at("fieldPath");
    if !errors.required_text(&path) {
        return;
    }
    let version = at.text_at("apiVersion");
    if version != "v1" {
        return errors.invalid(&path, format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    if let Some((field, subscript)) = subscripted(path.text()) {
        match field {
            "metadata.annotations" => {
                for problem in names::is_qualified_name(&subscript.to_lowercase()) {
                    errors.invalid_value(at, subscript.to_lowercase(), problem);
                }
            }
            "metadata.labels" => {
                for problem in names::is_qualified_name(subscript) {
                    errors.invalid_value(at, subscript, problem);
                }
            }
            _ => {
                let detail =
                    format!("error converting fieldPath: field label does not support subscript: {}", path.text());
                errors.invalid(&path, detail);
            }
        }
        return;
    }
    let field = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
    if !CONVERTED.contains(&field) {
        errors.invalid(&path, format!("error converting fieldPath: field label not supported: {field}"));
    } else if !known.contains(&field) {
        errors.push(machinery::status::FieldError::not_supported(path.to_string(), field, known.iter().copied()));
    }
}

/// `path['key']`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (field, rest) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, rest))
}

/// A reference to a request or a limit. Volumes say of which container.
pub fn resource_field_ref(at: &At<'_, '_>, in_volume: bool, errors: &mut Errors) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = at.at("resource");
    let huge = resource.text().starts_with("requests.hugepages-") || resource.text().starts_with("limits.hugepages-");
    if in_volume && at.text_at("containerName").is_empty() {
        errors.required(&at.at("containerName"), "");
    } else if resource.text().is_empty() {
        errors.required(&resource, "");
    } else if !KNOWN.contains(&resource.text()) && !huge {
        errors.not_supported(&resource, &KNOWN);
    }
    let divisor = at.at("divisor");
    let Some(amount) = divisor.quantity().filter(|amount| !amount.is_zero()) else { return };
    let (allowed, subject): (&[&str], &str) = match resource.text() {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&BYTES, "local ephemeral storage"),
        _ if huge => (&BYTES, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&amount.to_string().as_str()) {
        let values = if subject == "cpu" { "1m and 1".to_owned() } else { BYTES.join(", ") };
        let detail = format!("only divisor's values {values} are supported with the {subject} resource");
        errors.invalid_value(&divisor, resource.text(), detail);
    }
}

const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

fn env_from(list: &At<'_, '_>, errors: &mut Errors) {
    for source in list.items() {
        let prefix = source.at("prefix");
        if !prefix.text().is_empty() {
            errors.problems(&prefix, names::is_relaxed_env_var_name(prefix.text()));
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let reference = source.at(kind);
            if reference.is_set() {
                sources += 1;
                let name = reference.at("name");
                if errors.required_text(&name) {
                    errors.problems(&name, names::name_is_dns_subdomain(name.text(), true));
                }
            }
        }
        match sources {
            0 => errors.invalid_value(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid_value(list, "", "may not have more than one field specified at a time"),
        }
    }
}

fn mounts(container: &At<'_, '_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let list = container.at("volumeMounts");
    let devices = container.at("volumeDevices");
    let mut points: HashSet<&str> = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        errors.required_text(&name);
        let volume = volumes.get(name.text()).copied();
        if volume.is_none() {
            errors.not_found(&name, name.text());
        }
        errors.required_text(&path);
        if points.contains(&path.text()) {
            errors.invalid_text(&path, "must be unique");
        }
        points.insert(path.text());
        if devices.items().any(|device| device.text_at("name") == name.text()) {
            errors.invalid_text(&name, "must not already exist in volumeDevices");
        }
        if devices.items().any(|device| device.text_at("devicePath") == path.text()) {
            errors.invalid_text(&path, "must not already exist as a path in volumeDevices");
        }
        // Upstream speaks of these as fields of the list.
        let whole = list.to_string();
        let shown = At::part(&whole, mount.value());
        if !mount.text_at("subPath").is_empty() {
            descending(&shown.at("subPath"), errors);
        }
        let expression = mount.at("subPathExpr");
        if !expression.text().is_empty() {
            if !mount.text_at("subPath").is_empty() {
                errors.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
            }
            descending(&shown.at("subPathExpr"), errors);
        }
        propagation(&shown, container, errors);
        recursive_read_only(&shown, errors);
        bind_options(&mount, volume, errors);
    }
}

fn propagation(mount: &At<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    let mode = mount.at("mountPropagation");
    errors.one_of_if_set(&mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode.text() == "Bidirectional" && !container.at("securityContext.privileged").flag() {
        errors.forbidden(&mode, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(mount: &At<'_, '_>, errors: &mut Errors) {
    let mode = mount.at("recursiveReadOnly");
    match mode.text() {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                errors.forbidden(&mode, "may only be specified when readOnly is true");
            }
            if !matches!(mount.text_at("mountPropagation"), "" | "None") {
                errors.forbidden(&mode, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => errors.one_of_if_set(&mode, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn bind_options(mount: &At<'_, '_>, volume: Option<&Value>, errors: &mut Errors) {
    let options = mount.at("bindMountOptions");
    let mut seen: HashSet<&str> = HashSet::new();
    for option in options.items() {
        errors.one_of(&option, &["nodev", "noexec", "nosuid"]);
        if seen.contains(&option.text()) {
            errors.duplicate(&option, option.text());
        }
        seen.insert(option.text());
    }
    if !options.is_empty() && volume.is_some_and(|volume| volume.get("image").is_some()) {
        errors.invalid(&options, "bindMountOptions may not be used with image volumes");
    }
}

fn devices(container: &At<'_, '_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let mounts = container.at("volumeMounts");
    let (mut names, mut paths): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        errors.required_text(&name);
        if names.contains(&name.text()) {
            errors.invalid_text(&name, "must be unique");
        }
        match volumes.get(name.text()) {
            None => errors.not_found(&name, name.text()),
            Some(volume) if volume.get("persistentVolumeClaim").is_none() && volume.get("ephemeral").is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid_text(&name, detail);
            }
            Some(_) => {}
        }
        errors.required_text(&path);
        if paths.contains(&path.text()) {
            errors.invalid_text(&path, "must be unique");
        }
        if path.text().split('/').any(|step| step == "..") {
            errors.invalid_text(&path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.items().any(|mount| mount.text_at("name") == name.text()) {
            errors.invalid_text(&name, "must not already exist in volumeMounts");
        }
        if mounts.items().any(|mount| mount.text_at("mountPath") == path.text()) {
            errors.invalid_text(&path, "must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.insert(name.text());
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

/// When a single container is started again, whatever the pod says.
fn restart_rules(container: &At<'_, '_>, init: bool, errors: &mut Errors) {
    let policy = container.at("restartPolicy");
    let rules = container.at("restartPolicyRules");
    if policy.is_set() {
        errors.one_of(&policy, &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        errors.required(&policy, "must specify restartPolicy when restart rules are used");
        // Upstream goes on with the rules of ordinary containers only.
        if init {
            return;
        }
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    for rule in rules.items() {
        errors.one_of(&rule.at("action"), &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.required(&codes, "must be specified");
            continue;
        }
        errors.one_of(&codes.at("operator"), &["In", "NotIn"]);
        if codes.at("values").len() > 255 {
            errors.too_many(&codes.at("values"), 255);
        }
    }
}

fn lifecycle(container: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let lifecycle = container.at("lifecycle");
    let grace = spec.at("terminationGracePeriodSeconds").int();
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.is_set() {
            handler(&hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, errors);
        }
    }
    let signal = lifecycle.at("stopSignal");
    if signal.is_set() {
        match spec.text_at("os.name") {
            "windows" => errors.one_of(&signal, &["SIGKILL", "SIGTERM"]),
            "linux" => {
                if !is_signal(signal.text()) {
                    let all: Vec<String> = signals().collect();
                    errors.not_supported(&signal, &all.iter().map(String::as_str).collect::<Vec<_>>());
                }
            }
            _ => errors.forbidden(&signal, "may not be set for containers with empty `spec.os.name`"),
        }
    }
}

fn is_signal(name: &str) -> bool {
    signals().any(|signal| signal == name)
}

/// The signals of Linux, sorted.
fn signals() -> impl Iterator<Item = String> {
    const NAMED: [&str; 34] = [
        "SIGABRT",
        "SIGALRM",
        "SIGBUS",
        "SIGCHLD",
        "SIGCLD",
        "SIGCONT",
        "SIGFPE",
        "SIGHUP",
        "SIGILL",
        "SIGINT",
        "SIGIO",
        "SIGIOT",
        "SIGKILL",
        "SIGPIPE",
        "SIGPOLL",
        "SIGPROF",
        "SIGPWR",
        "SIGQUIT",
        "SIGSEGV",
        "SIGSTKFLT",
        "SIGSTOP",
        "SIGSYS",
        "SIGTERM",
        "SIGTRAP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
        "SIGWINCH",
        "SIGXCPU",
        "SIGXFSZ",
    ];
    let real = ["SIGRTMAX".to_owned(), "SIGRTMIN".to_owned()];
    let below = (1..=14).map(|by| format!("SIGRTMAX-{by}"));
    let above = (1..=15).map(|by| format!("SIGRTMIN+{by}"));
    let mut all: Vec<String> =
        NAMED.iter().map(|name| (*name).to_owned()).chain(real).chain(below).chain(above).collect();
    all.sort_unstable();
    all.into_iter()
}

fn probes(container: &At<'_, '_>, errors: &mut Errors) {
    const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(kind);
        if !probe.is_set() {
            continue;
        }
        handler(&probe, &HANDLERS, None, errors);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.not_negative(&probe.at(field));
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        if grace.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&grace, "must be greater than 0");
        }
        if kind == "readinessProbe" {
            if grace.is_set() {
                errors.invalid(&grace, "must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").int().unwrap_or(0) != 1 {
            errors.invalid_int(&probe.at("successThreshold"), "must be 1");
        }
    }
}

/// One of several ways to ask or tell a container something.
fn handler(at: &At<'_, '_>, kinds: &[&str], grace: Option<i64>, errors: &mut Errors) {
    let mut found = 0;
    for kind in kinds {
        let action = at.at(kind);
        if !action.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            errors.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" => {
                if action.at("command").is_empty() {
                    errors.required(&action.at("command"), "");
                }
            }
            "httpGet" => http_get(&action, errors),
            "tcpSocket" => errors.port(&action.at("port")),
            "grpc" => {
                errors.port(&action.at("port"));
                errors.one_of_if_set(&action.at("mode"), &["Plaintext", "TLS"]);
            }
            _ => {
                let seconds = action.at("seconds").int().unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid_value(&action, seconds, detail);
                }
            }
        }
    }
    if found == 0 {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("path"));
    errors.port(&at.at("port"));
    errors.one_of(&at.at("scheme"), &["HTTP", "HTTPS"]);
    let headers = at.at("httpHeaders");
    for header in headers.items() {
        let name = header.text_at("name");
        for problem in names::is_http_header_name(name) {
            errors.invalid_value(&headers, name, problem);
        }
    }
    let protocol = at.at("protocol");
    errors.one_of_if_set(&protocol, &["HTTP1", "HTTP2"]);
    if protocol.text() == "HTTP2" {
        if at.text_at("scheme") != "HTTP" {
            errors.invalid(&protocol, "is only supported with HTTP (H2C)");
        } else if !at.text_at("host").is_empty() {
            errors.invalid(&at.at("host"), "must be empty when `protocol` is \"HTTP2\"");
        }
    }
}
