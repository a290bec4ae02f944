//! The pod security standards: what each level forbids, and how a refusal words it. Pure.
//!
//! Every check looks at a pod's metadata and spec and says nothing, or a reason with its detail. `restricted` has the
//! checks of `baseline` and more; where both have one for the same thing, the stricter stands for both.

use std::fmt;

use machinery::{Value, value};

use super::super::pods;

/// A version of the standards: what a level forbids changes with time, and a namespace may pin it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(Option<u16>);

impl Version {
    /// Whatever is newest.
    pub const LATEST: Self = Self(None);

    /// Reads `latest` or `v1.30`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::LATEST);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
        minor.parse().ok().filter(|_| plain).map(|minor| Self(Some(minor)))
    }

    fn is_since(self, minor: u16) -> bool {
        self.0.is_none_or(|own| own >= minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("latest"),
            Some(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A level of the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Anything goes.
    Privileged,
    /// No known privilege escalation.
    Baseline,
    /// Hardened.
    Restricted,
}

impl Level {
    /// Reads a label's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    /// As labels write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// What a check found: a reason, and who is to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What is forbidden.
    pub reason: &'static str,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

/// A pod under check.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    version: Version,
}

impl<'a> Pod<'a> {
    /// Every container: init, plain, ephemeral.
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        pods::containers(self.spec)
    }

    /// Whether it is for a system that knows nothing of what some checks are about; pods could say so since v1.25.
    fn is_windows(&self) -> bool {
        self.version.is_since(25) && value::text(self.spec, "os.name") == "windows"
    }

    fn has_own_users(&self) -> bool {
        value::at(self.spec, "hostUsers").and_then(Value::as_bool) == Some(false)
    }

    fn volumes(&self) -> &'a [Value] {
        value::list(self.spec, "volumes")
    }
}

fn name(container: &Value) -> &str {
    value::text(container, "name")
}

/// `container "a" must` or `containers "a", "b" must`.
fn blame(names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("container{plural} {}", quoted(names))
}

fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{:?}", name.as_ref())).collect();
    quoted.join(", ")
}

fn plural<'a>(count: usize, one: &'a str, several: &'a str) -> &'a str {
    if count == 1 { one } else { several }
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// Each check with the version it came with.
const BASELINE: [(u16, Check); 12] = [
    (0, app_armor),
    (0, capabilities_baseline),
    (0, host_namespaces),
    (0, host_path_volumes),
    (0, host_ports),
    (34, host_probes),
    (0, privileged),
    (0, proc_mount),
    (0, se_linux),
    (0, seccomp_baseline),
    (0, sysctls),
    (0, windows_host_process),
];

const RESTRICTED: [(u16, Check); 16] = [
    (0, app_armor),
    (8, allow_privilege_escalation),
    (0, capabilities),
    (0, host_namespaces),
    (0, host_path_volumes),
    (0, host_ports),
    (34, host_probes),
    (0, privileged),
    (0, proc_mount),
    (0, restricted_volumes),
    (0, run_as_non_root),
    (23, run_as_user),
    (0, se_linux),
    (0, seccomp),
    (0, sysctls),
    (0, windows_host_process),
];

/// Everything a level forbids and the pod does.
pub fn violations(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<Violation> {
    let checks: &[(u16, Check)] = match level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => &BASELINE,
        Level::Restricted => &RESTRICTED,
    };
    let pod = Pod { metadata, spec, version };
    let current = checks.iter().filter(|(since, _)| version.is_since(*since));
    let mut found: Vec<Violation> = current.filter_map(|(_, check)| check(&pod)).collect();
    // The stricter check of volumes tells all that the other does.
    if found.iter().any(|violation| violation.reason == "restricted volume types") {
        found.retain(|violation| violation.reason != "hostPath volumes");
    }
    found
}

/// Where a stricter check came later than the level, the laxer one stands for it before.
fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version.is_since(22) { capabilities_restricted(pod) } else { capabilities_baseline(pod) }
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version.is_since(19) { seccomp_restricted(pod) } else { seccomp_baseline(pod) }
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut bad = Vec::new();
    for (key, text) in pod.metadata.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        let allowed = text.is_empty() || text == "runtime/default" || text.starts_with("localhost/");
        if key.starts_with(PREFIX) && !allowed {
            bad.push(format!("{key}={text:?}"));
        }
    }
    let profile = |holder: &Value| value::text(holder, "securityContext.appArmorProfile.type") == "Unconfined";
    let mut told = Vec::new();
    if !bad.is_empty() {
        told.push(format!("{} {}", plural(bad.len(), "annotation", "annotations"), bad.join(", ")));
    }
    let named: Vec<&str> = pod.containers().filter(|container| profile(container)).map(name).collect();
    let mut blamed = Vec::new();
    if profile(pod.spec) {
        blamed.push("pod".to_owned());
    }
    if !named.is_empty() {
        blamed.push(blame(&named));
    }
    if !blamed.is_empty() {
        told.push(format!(
            "{} must not set securityContext.appArmorProfile.type to \"Unconfined\"",
            blamed.join(" and ")
        ));
    }
    if told.is_empty() { None } else { violation("forbidden AppArmor profile", told.join(", ")) }
}

fn allow_privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let allowed = |container: &Value| {
        value::at(container, "securityContext.allowPrivilegeEscalation").and_then(Value::as_bool) != Some(false)
    };
    let bad: Vec<&str> = pod.containers().filter(|container| allowed(container)).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", blame(&bad)),
    )
}

fn added(container: &Value) -> impl Iterator<Item = &str> {
    value::list(container, "securityContext.capabilities.add").iter().filter_map(Value::as_str)
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let mut bad: Vec<&str> = Vec::new();
    let mut blamed = Vec::new();
    for container in pod.containers() {
        let forbidden: Vec<&str> = added(container).filter(|capability| !ALLOWED.contains(capability)).collect();
        if !forbidden.is_empty() {
            blamed.push(name(container));
            bad.extend(forbidden);
        }
    }
    bad.sort_unstable();
    bad.dedup();
    if bad.is_empty() {
        return None;
    }
    violation(
        "non-default capabilities",
        format!("{} must not include {} in securityContext.capabilities.add", blame(&blamed), quoted(&bad)),
    )
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let drops_all = |container: &Value| {
        value::list(container, "securityContext.capabilities.drop").iter().any(|capability| capability == "ALL")
    };
    let keeping: Vec<&str> = pod.containers().filter(|container| !drops_all(container)).map(name).collect();
    let mut bad: Vec<&str> = Vec::new();
    let mut adding = Vec::new();
    for container in pod.containers() {
        let forbidden: Vec<&str> = added(container).filter(|capability| *capability != "NET_BIND_SERVICE").collect();
        if !forbidden.is_empty() {
            adding.push(name(container));
            bad.extend(forbidden);
        }
    }
    bad.sort_unstable();
    bad.dedup();
    let mut told = Vec::new();
    if !keeping.is_empty() {
        told.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", blame(&keeping)));
    }
    if !adding.is_empty() {
        told.push(format!("{} must not include {} in securityContext.capabilities.add", blame(&adding), quoted(&bad)));
    }
    if told.is_empty() { None } else { violation("unrestricted capabilities", told.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let bad: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| value::flag(pod.spec, field))
        .map(|field| format!("{field}=true"))
        .collect();
    if bad.is_empty() { None } else { violation("host namespaces", bad.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let bad: Vec<&str> = pod
        .volumes()
        .iter()
        .filter(|volume| volume.get("hostPath").is_some_and(|path| !path.is_null()))
        .map(name)
        .collect();
    if bad.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(bad.len(), "volume", "volumes"), quoted(&bad)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports: Vec<i64> = Vec::new();
    let mut blamed = Vec::new();
    for container in pod.containers() {
        let used: Vec<i64> = value::list(container, "ports")
            .iter()
            .filter_map(|port| value::int(port, "hostPort"))
            .filter(|port| *port != 0)
            .collect();
        if !used.is_empty() {
            blamed.push(name(container));
            ports.extend(used);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return None;
    }
    let listed: Vec<String> = ports.iter().map(i64::to_string).collect();
    let verb = plural(blamed.len(), "uses", "use");
    violation(
        "hostPort",
        format!("{} {verb} {} {}", blame(&blamed), plural(ports.len(), "hostPort", "hostPorts"), listed.join(", ")),
    )
}

fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] =
        ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];
    let mut hosts: Vec<&str> = Vec::new();
    let mut blamed = Vec::new();
    for container in pod.containers() {
        let named: Vec<&str> = HANDLERS
            .iter()
            .filter_map(|path| value::at(container, path))
            .flat_map(|handler| [value::text(handler, "httpGet.host"), value::text(handler, "tcpSocket.host")])
            .filter(|host| !matches!(*host, "" | "127.0.0.1" | "::1"))
            .collect();
        if !named.is_empty() {
            blamed.push(name(container));
            hosts.extend(named);
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() {
        return None;
    }
    let verb = plural(blamed.len(), "uses", "use");
    let what = plural(hosts.len(), "host", "hosts");
    violation(
        "probe or lifecycle host",
        format!("{} {verb} probe or lifecycle {what} {}", blame(&blamed), quoted(&hosts)),
    )
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad: Vec<&str> =
        pod.containers().filter(|container| value::flag(container, "securityContext.privileged")).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", blame(&bad)))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    // A pod with users of its own sees its own processes only.
    if pod.has_own_users() {
        return None;
    }
    let kind = |container: &'_ Value| value::text(container, "securityContext.procMount").to_owned();
    let bad: Vec<&Value> =
        pod.containers().filter(|container| !matches!(kind(container).as_str(), "" | "Default")).collect();
    if bad.is_empty() {
        return None;
    }
    let names: Vec<&str> = bad.iter().map(|container| name(container)).collect();
    let mut kinds: Vec<String> = bad.iter().map(|container| kind(container)).collect();
    kinds.sort();
    kinds.dedup();
    violation("procMount", format!("{} must not set securityContext.procMount to {}", blame(&names), quoted(&kinds)))
}

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let mut names = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for volume in pod.volumes() {
        let mut sources =
            volume.as_object().into_iter().flatten().filter(|(key, source)| *key != "name" && !source.is_null());
        let kind = sources.next().map_or("unknown", |(key, _)| key.as_str());
        if !ALLOWED.contains(&kind) {
            names.push(name(volume));
            kinds.push(kind);
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    if names.is_empty() {
        return None;
    }
    let (volume, verb) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
    let what = plural(kinds.len(), "restricted volume type", "restricted volume types");
    violation("restricted volume types", format!("{volume} {} {verb} {what} {}", quoted(&names), quoted(&kinds)))
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() || pod.is_windows() {
        return None;
    }
    let said = |holder: &Value| value::at(holder, "securityContext.runAsNonRoot").and_then(Value::as_bool);
    let whole = said(pod.spec);
    let explicit: Vec<&str> = pod.containers().filter(|container| said(container) == Some(false)).map(name).collect();
    let implicit: Vec<&str> = pod.containers().filter(|container| said(container).is_none()).map(name).collect();
    let mut told = Vec::new();
    if whole == Some(false) {
        told.push("pod must not set securityContext.runAsNonRoot=false".to_owned());
    }
    if !explicit.is_empty() {
        told.push(format!("{} must not set securityContext.runAsNonRoot=false", blame(&explicit)));
    }
    if !told.is_empty() {
        return violation("runAsNonRoot != true", told.join(" and "));
    }
    // What the pod says counts for containers that say nothing.
    if whole == Some(true) || implicit.is_empty() {
        return None;
    }
    violation("runAsNonRoot != true", format!("pod or {} must set securityContext.runAsNonRoot=true", blame(&implicit)))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() || pod.is_windows() {
        return None;
    }
    let is_root = |holder: &Value| value::int(holder, "securityContext.runAsUser") == Some(0);
    let bad: Vec<&str> = pod.containers().filter(|container| is_root(container)).map(name).collect();
    let mut blamed = Vec::new();
    if is_root(pod.spec) {
        blamed.push("pod".to_owned());
    }
    if !bad.is_empty() {
        blamed.push(blame(&bad));
    }
    if blamed.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", blamed.join(" and ")))
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    const TYPES: [(u16, &str); 6] = [
        (0, ""),
        (0, "container_t"),
        (0, "container_init_t"),
        (0, "container_kvm_t"),
        (31, "container_engine_t"),
        (31, "container_device_t"),
    ];
    let known = |kind: &str| TYPES.iter().any(|(since, name)| *name == kind && pod.version.is_since(*since));
    let options = |holder: &'_ Value| value::at(holder, "securityContext.seLinuxOptions").cloned();
    let (mut whole, mut blamed) = (false, Vec::new());
    let (mut types, mut user, mut role) = (Vec::new(), false, false);
    let mut look = |holder: &Value| {
        let Some(options) = options(holder) else { return false };
        let kind = value::text(&options, "type");
        let (odd, users, roles) =
            (!known(kind), !value::text(&options, "user").is_empty(), !value::text(&options, "role").is_empty());
        if odd {
            types.push(kind.to_owned());
        }
        user |= users;
        role |= roles;
        odd || users || roles
    };
    whole |= look(pod.spec);
    for container in pod.containers() {
        if look(container) {
            blamed.push(name(container));
        }
    }
    if !whole && blamed.is_empty() {
        return None;
    }
    types.sort();
    types.dedup();
    let mut bad = Vec::new();
    if !types.is_empty() {
        bad.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    }
    if user {
        bad.push("user may not be set".to_owned());
    }
    if role {
        bad.push("role may not be set".to_owned());
    }
    let mut who = Vec::new();
    if whole {
        who.push("pod".to_owned());
    }
    if !blamed.is_empty() {
        who.push(blame(&blamed));
    }
    violation(
        "seLinuxOptions",
        format!("{} set forbidden securityContext.seLinuxOptions: {}", who.join(" and "), bad.join("; ")),
    )
}

const SECCOMP: &str = "securityContext.seccompProfile.type";

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.is_since(19) {
        return seccomp_annotations(pod);
    }
    let kind = |holder: &'_ Value| value::text(holder, SECCOMP).to_owned();
    let forbidden = |holder: &Value| kind(holder) == "Unconfined";
    let bad: Vec<&str> = pod.containers().filter(|container| forbidden(container)).map(name).collect();
    let mut blamed = Vec::new();
    if forbidden(pod.spec) {
        blamed.push("pod".to_owned());
    }
    if !bad.is_empty() {
        blamed.push(blame(&bad));
    }
    if blamed.is_empty() {
        return None;
    }
    violation("seccompProfile", format!("{} must not set {SECCOMP} to \"Unconfined\"", blamed.join(" and ")))
}

/// Before profiles had a field they were named by annotations.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    const WHOLE: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let allowed =
        |text: &str| matches!(text, "" | "runtime/default" | "docker/default") || text.starts_with("localhost/");
    let annotations = pod.metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let bad: Vec<String> = annotations
        .filter(|(key, _)| *key == WHOLE || key.starts_with(CONTAINER))
        .map(|(key, text)| (key, text.as_str().unwrap_or_default()))
        .filter(|(_, text)| !allowed(text))
        .map(|(key, text)| format!("{key}={text:?}"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!("forbidden {} {}", plural(bad.len(), "annotation", "annotations"), bad.join(", ")),
    )
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let kind = |holder: &'_ Value| value::text(holder, SECCOMP).to_owned();
    let allowed = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let whole = kind(pod.spec);
    let explicit: Vec<&Value> =
        pod.containers().filter(|container| !kind(container).is_empty() && !allowed(&kind(container))).collect();
    let mut blamed = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    if !whole.is_empty() && !allowed(&whole) {
        blamed.push("pod".to_owned());
        kinds.push(whole.clone());
    }
    if !explicit.is_empty() {
        blamed.push(blame(&explicit.iter().map(|container| name(container)).collect::<Vec<_>>()));
        kinds.extend(explicit.iter().map(|container| kind(container)));
    }
    if !blamed.is_empty() {
        kinds.sort();
        kinds.dedup();
        return violation(
            "seccompProfile",
            format!("{} must not set {SECCOMP} to {}", blamed.join(" and "), quoted(&kinds)),
        );
    }
    let implicit: Vec<&str> = pod.containers().filter(|container| kind(container).is_empty()).map(name).collect();
    if allowed(&whole) || implicit.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!("pod or {} must set {SECCOMP} to \"RuntimeDefault\" or \"Localhost\"", blame(&implicit)),
    )
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [(u16, &str); 12] = [
        (0, "kernel.shm_rmid_forced"),
        (0, "net.ipv4.ip_local_port_range"),
        (0, "net.ipv4.tcp_syncookies"),
        (0, "net.ipv4.ping_group_range"),
        (0, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
        (32, "net.ipv4.tcp_wmem"),
    ];
    let allowed = |name: &str| ALLOWED.iter().any(|(since, known)| *known == name && pod.version.is_since(*since));
    let all = value::list(pod.spec, "securityContext.sysctls").iter().map(|sysctl| value::text(sysctl, "name"));
    let bad: Vec<&str> = all.filter(|name| !allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let set = |holder: &Value| value::flag(holder, "securityContext.windowsOptions.hostProcess");
    let bad: Vec<&str> = pod.containers().filter(|container| set(container)).map(name).collect();
    let mut blamed = Vec::new();
    if set(pod.spec) {
        blamed.push("pod".to_owned());
    }
    if !bad.is_empty() {
        blamed.push(blame(&bad));
    }
    if blamed.is_empty() {
        return None;
    }
    violation(
        "hostProcess",
        format!("{} must not set securityContext.windowsOptions.hostProcess=true", blamed.join(" and ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<String> {
        violations(level, version, metadata, spec).iter().map(ToString::to_string).collect()
    }

    fn check(level: Level, spec: Value, expect: &[&str]) {
        assert_eq!(told(level, Version::LATEST, &json!({}), &spec), expect, "{spec}");
    }

    #[test]
    fn pinned_versions_forbid_what_they_forbade_then() {
        let reasons = |level: Level, version: &str, metadata: Value, spec: Value| -> Vec<&'static str> {
            let version = Version::parse(version).expect("a version");
            violations(level, version, &metadata, &spec).iter().map(|violation| violation.reason).collect()
        };
        let (baseline, restricted) = (Level::Baseline, Level::Restricted);
        let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
        let check = |level, version: &str, spec: &Value, expect: &[&str]| {
            assert_eq!(reasons(level, version, json!({}), spec.clone()), expect, "{version} {spec}");
        };
        check(baseline, "v1.31", &sysctl("net.ipv4.tcp_rmem"), &["forbidden sysctls"]);
        check(baseline, "v1.32", &sysctl("net.ipv4.tcp_rmem"), &[]);
        check(baseline, "v1.26", &sysctl("net.ipv4.ip_local_reserved_ports"), &["forbidden sysctls"]);
        check(baseline, "v1.27", &sysctl("net.ipv4.ip_local_reserved_ports"), &[]);
        let probe = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]});
        check(baseline, "v1.33", &probe, &[]);
        check(baseline, "v1.34", &probe, &["probe or lifecycle host"]);
        let label = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}});
        check(baseline, "v1.30", &label, &["seLinuxOptions"]);
        check(baseline, "latest", &label, &[]);
        let plain = json!({"containers": [{"name": "c"}]});
        check(restricted, "v1.7", &plain, &["runAsNonRoot != true"]);
        check(restricted, "v1.18", &plain, &["allowPrivilegeEscalation != false", "runAsNonRoot != true"]);
        check(
            restricted,
            "v1.21",
            &plain,
            &["allowPrivilegeEscalation != false", "runAsNonRoot != true", "seccompProfile"],
        );
        let windows = json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]});
        check(
            restricted,
            "v1.24",
            &windows,
            &["allowPrivilegeEscalation != false", "unrestricted capabilities", "seccompProfile"],
        );
        check(restricted, "v1.25", &windows, &[]);
        let root = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]});
        check(restricted, "v1.22", &root, &[]);
        check(restricted, "v1.23", &root, &["runAsUser=0"]);
        let old = json!({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}});
        assert_eq!(reasons(baseline, "v1.18", old.clone(), plain.clone()), ["seccompProfile"]);
        assert_eq!(reasons(baseline, "v1.19", old, plain), Vec::<&str>::new());
        for (text, expect) in
            [("latest", true), ("v1.37", true), ("1.37", false), ("v1.", false), ("v1.07", false), ("v2.1", false)]
        {
            assert_eq!(Version::parse(text).is_some(), expect, "{text}");
        }
    }

    #[test]
    fn a_plain_pod_is_baseline_and_not_restricted() {
        let plain = json!({"containers": [{"name": "c"}]});
        check(Level::Privileged, json!({"hostNetwork": true}), &[]);
        check(Level::Baseline, plain.clone(), &[]);
        check(
            Level::Restricted,
            plain,
            &[
                r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
                r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#,
                r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#,
                r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
            ],
        );
    }

    #[test]
    fn a_hardened_pod_is_restricted() {
        let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        let spec = json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": context}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        });
        check(Level::Restricted, spec, &[]);
    }

    #[test]
    fn baseline_refuses_known_escalations() {
        let container = |context: Value| json!({"containers": [{"name": "c", "securityContext": context}]});
        check(
            Level::Baseline,
            json!({"hostNetwork": true, "hostPID": true}),
            &["host namespaces (hostNetwork=true, hostPID=true)"],
        );
        check(
            Level::Baseline,
            container(json!({"privileged": true})),
            &[r#"privileged (container "c" must not set securityContext.privileged=true)"#],
        );
        check(
            Level::Baseline,
            container(json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}})),
            &[
                r#"non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)"#,
            ],
        );
        check(
            Level::Baseline,
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            &[r#"hostPath volumes (volume "v")"#],
        );
        check(
            Level::Baseline,
            json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 443}]}]}),
            &[r#"hostPort (containers "a", "b" use hostPorts 80, 443)"#],
        );
        check(
            Level::Baseline,
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}),
            &["forbidden sysctls (kernel.msgmax)"],
        );
        check(
            Level::Baseline,
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            &[r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#],
        );
        check(
            Level::Baseline,
            container(json!({"procMount": "Unmasked"})),
            &[r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#],
        );
        // Ephemeral and init containers are no way around.
        check(
            Level::Baseline,
            json!({"ephemeralContainers": [{"name": "d", "securityContext": {"privileged": true}}]}),
            &[r#"privileged (container "d" must not set securityContext.privileged=true)"#],
        );
        check(
            Level::Restricted,
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            &[r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#],
        );
    }
}
