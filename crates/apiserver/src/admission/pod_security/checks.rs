//! The pod security standards: what each level forbids, and how a refusal words it. Pure.
//!
//! Every check looks at a pod's metadata and spec and says nothing, or a reason with its detail. `restricted` has the
//! checks of `baseline` and more; where both have one for the same thing, the stricter stands for both.

use machinery::{Value, value};

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
struct Violation {
    reason: &'static str,
    detail: String,
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

/// A pod under check.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Every container: init, plain, ephemeral.
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| value::list(spec, list))
    }

    fn is_windows(&self) -> bool {
        value::text(self.spec, "os.name") == "windows"
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

/// Everything a level forbids and the pod does, as a refusal writes it: `reason (detail), reason (detail)`.
pub fn violations(level: Level, metadata: &Value, spec: &Value) -> Vec<String> {
    type Check = fn(&Pod<'_>) -> Option<Violation>;
    const BASELINE: [Check; 12] = [
        app_armor,
        capabilities_baseline,
        host_namespaces,
        host_path_volumes,
        host_ports,
        host_probes,
        privileged,
        proc_mount,
        se_linux,
        seccomp_baseline,
        sysctls,
        windows_host_process,
    ];
    const RESTRICTED: [Check; 16] = [
        app_armor,
        allow_privilege_escalation,
        capabilities_restricted,
        host_namespaces,
        host_path_volumes,
        host_ports,
        host_probes,
        privileged,
        proc_mount,
        restricted_volumes,
        run_as_non_root,
        run_as_user,
        se_linux,
        seccomp_restricted,
        sysctls,
        windows_host_process,
    ];
    let checks: &[Check] = match level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => &BASELINE,
        Level::Restricted => &RESTRICTED,
    };
    let pod = Pod { metadata, spec };
    let found: Vec<Violation> = checks.iter().filter_map(|check| check(&pod)).collect();
    // The stricter check of volumes tells all that the other does.
    let strict = found.iter().any(|violation| violation.reason == "restricted volume types");
    let told = found.into_iter().filter(|violation| !(strict && violation.reason == "hostPath volumes"));
    told.map(|violation| format!("{} ({})", violation.reason, violation.detail)).collect()
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
    const TYPES: [&str; 6] =
        ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t", "container_device_t"];
    let options = |holder: &'_ Value| value::at(holder, "securityContext.seLinuxOptions").cloned();
    let (mut whole, mut blamed) = (false, Vec::new());
    let (mut types, mut user, mut role) = (Vec::new(), false, false);
    let mut look = |holder: &Value| {
        let Some(options) = options(holder) else { return false };
        let kind = value::text(&options, "type");
        let (odd, users, roles) = (
            !TYPES.contains(&kind),
            !value::text(&options, "user").is_empty(),
            !value::text(&options, "role").is_empty(),
        );
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
    const ALLOWED: [&str; 12] = [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ];
    let allowed = |name: &str| ALLOWED.contains(&name);
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

    fn check(level: Level, spec: Value, expect: &[&str]) {
        assert_eq!(violations(level, &json!({}), &spec), expect, "{spec}");
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
