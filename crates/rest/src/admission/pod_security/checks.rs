//! The pod security standards: what each level forbids since when, and how a refusal words it. Pure.
//!
//! Every check looks at a pod's metadata and spec and says nothing, or a reason with its detail. `restricted` has the
//! checks of `baseline` and more; where a stricter one stands for a laxer one, only the stricter speaks.

use std::borrow::Cow;
use std::collections::BTreeSet;

use machinery::{Value, value};

use super::super::pods;
use super::standard::{Level, Version};
pub use super::violation::Violation;

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

const ALWAYS: u16 = 0;
const NEVER: u16 = u16::MAX;

/// Each check with the version it came with, and the one since which `restricted` has a stricter one for it.
const BASELINE: [(u16, u16, Check); 12] = [
    (ALWAYS, NEVER, app_armor),
    (ALWAYS, 22, capabilities_baseline),
    (ALWAYS, NEVER, host_namespaces),
    (ALWAYS, ALWAYS, host_path_volumes),
    (ALWAYS, NEVER, host_ports),
    (34, NEVER, host_probes),
    (ALWAYS, NEVER, privileged),
    (ALWAYS, 35, proc_mount_baseline),
    (ALWAYS, NEVER, se_linux),
    (ALWAYS, 19, seccomp_baseline),
    (ALWAYS, NEVER, sysctls),
    (ALWAYS, NEVER, windows_host_process),
];

/// What `restricted` has besides.
const RESTRICTED: [(u16, Check); 7] = [
    (8, allow_privilege_escalation),
    (22, capabilities_restricted),
    (35, proc_mount),
    (ALWAYS, restricted_volumes),
    (ALWAYS, run_as_non_root),
    (23, run_as_user),
    (19, seccomp_restricted),
];

/// Everything a level forbids and the pod does.
pub fn violations(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<Violation> {
    if level == Level::Privileged {
        return Vec::new();
    }
    let restricted = level == Level::Restricted;
    let pod = Pod { metadata, spec, version };
    let laxer = |overridden: u16| restricted && overridden != NEVER && version.is_since(overridden);
    let baseline = BASELINE.iter().filter(|(_, overridden, _)| !laxer(*overridden));
    let baseline = baseline.map(|(since, _, check)| (*since, *check));
    let more = RESTRICTED.iter().filter(|_| restricted).copied();
    let current = baseline.chain(more).filter(|(since, _)| version.is_since(*since));
    current.filter_map(|(_, check)| check(&pod)).collect()
}

/// A pod under check.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    version: Version,
}

/// Values that are forbidden, each named once, in order.
type Values<'a> = BTreeSet<Cow<'a, str>>;

/// Who does what is forbidden.
struct Blame<'a> {
    pod: bool,
    containers: Vec<&'a str>,
    values: Values<'a>,
}

impl<'a> Pod<'a> {
    /// The containers of which something holds: init, plain, ephemeral.
    fn blame(&self, mut bad: impl FnMut(&'a Value, &mut Values<'a>) -> bool) -> Blame<'a> {
        let mut blame = Blame { pod: false, containers: Vec::new(), values: Values::new() };
        for container in pods::containers(self.spec) {
            if bad(container, &mut blame.values) {
                blame.containers.push(name(container));
            }
        }
        blame
    }

    /// The same, of what can also be said for the whole pod.
    fn blame_all(&self, mut bad: impl FnMut(&'a Value, &mut Values<'a>) -> bool) -> Blame<'a> {
        let mut values = Values::new();
        let pod = bad(self.spec, &mut values);
        let mut blame = self.blame(bad);
        blame.values.append(&mut values);
        Blame { pod, ..blame }
    }

    /// Whether it is for a system that knows nothing of what some checks are about; pods could say so since v1.25.
    fn is_windows(&self) -> bool {
        self.version.is_since(25) && value::text(self.spec, "os.name") == "windows"
    }

    /// Whether root inside is nobody outside, which counts since v1.35.
    fn has_own_users(&self) -> bool {
        self.version.is_since(35) && value::at(self.spec, "hostUsers").and_then(Value::as_bool) == Some(false)
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
        annotations.map(|(key, text)| (key.as_str(), text.as_str().unwrap_or_default()))
    }

    fn volumes(&self) -> &'a [Value] {
        value::list(self.spec, "volumes")
    }
}

impl Blame<'_> {
    /// Who it is, `pod and containers "a", "b"`; nothing when it is nobody.
    fn who(&self) -> Option<String> {
        match (self.pod, self.containers.as_slice()) {
            (false, []) => None,
            (true, []) => Some("pod".to_owned()),
            (false, names) => Some(containers(names)),
            (true, names) => Some(format!("pod and {}", containers(names))),
        }
    }

    fn quoted_values(&self) -> String {
        quoted(&self.values)
    }
}

fn name(container: &Value) -> &str {
    value::text(container, "name")
}

fn flag(holder: &Value, path: &str) -> Option<bool> {
    value::at(holder, path).and_then(Value::as_bool)
}

/// `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    quoted.join(", ")
}

fn plural<'a>(count: usize, one: &'a str, several: &'a str) -> &'a str {
    if count == 1 { one } else { several }
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let blame = pod.blame_all(|holder, kinds| {
        let profile = value::at(holder, "securityContext.appArmorProfile").filter(|profile| profile.is_object());
        let kind = profile.map(|profile| value::text(profile, "type"));
        let bad = kind.filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        kinds.extend(bad.map(Cow::Borrowed));
        bad.is_some()
    });
    let allowed = |text: &str| text.is_empty() || text == "runtime/default" || text.starts_with("localhost/");
    let annotations = pod.annotations().filter(|(key, text)| key.starts_with(PREFIX) && !allowed(text));
    let mut annotations: Vec<String> = annotations.map(|(key, text)| format!("{key}={text:?}")).collect();
    annotations.sort();
    let mut who: Vec<String> = blame.who().into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural(annotations.len(), "annotation", "annotations").to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let what: Vec<&str> =
        blame.values.iter().map(AsRef::as_ref).chain(annotations.iter().map(String::as_str)).collect();
    violation(
        plural(what.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&what)),
    )
}

fn allow_privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let allowed = |container| flag(container, "securityContext.allowPrivilegeEscalation") != Some(false);
    let who = pod.blame(|container, _| allowed(container)).who()?;
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

/// Containers that add capabilities besides those allowed.
fn adding<'a>(pod: &Pod<'a>, allowed: &[&str]) -> Blame<'a> {
    pod.blame(|container, capabilities| {
        let added = value::list(container, "securityContext.capabilities.add").iter().filter_map(Value::as_str);
        let forbidden: Vec<&str> = added.filter(|capability| !allowed.contains(capability)).collect();
        capabilities.extend(forbidden.iter().copied().map(Cow::Borrowed));
        !forbidden.is_empty()
    })
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
    let blame = adding(pod, &ALLOWED);
    let (who, what) = (blame.who()?, blame.quoted_values());
    violation("non-default capabilities", format!("{who} must not include {what} in securityContext.capabilities.add"))
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let keeping = pod.blame(|container, _| {
        !value::list(container, "securityContext.capabilities.drop").iter().any(|capability| capability == "ALL")
    });
    let adding = adding(pod, &["NET_BIND_SERVICE"]);
    let mut messages = Vec::new();
    if let Some(who) = keeping.who() {
        messages.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if let Some(who) = adding.who() {
        let what = adding.quoted_values();
        messages.push(format!("{who} must not include {what} in securityContext.capabilities.add"));
    }
    if messages.is_empty() { None } else { violation("unrestricted capabilities", messages.join("; ")) }
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
    let is_path = |volume: &&Value| volume.get("hostPath").is_some_and(|path| !path.is_null());
    let bad: Vec<&str> = pod.volumes().iter().filter(is_path).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(bad.len(), "volume", "volumes"), quoted(&bad)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let blame = pod.blame(|container, ports| {
        let used = value::list(container, "ports").iter().filter_map(|port| value::int(port, "hostPort"));
        let used: Vec<i64> = used.filter(|port| *port != 0).collect();
        ports.extend(used.iter().map(|port| Cow::Owned(port.to_string())));
        !used.is_empty()
    });
    let (who, verb) = (blame.who()?, plural(blame.containers.len(), "uses", "use"));
    let ports: Vec<&str> = blame.values.iter().map(AsRef::as_ref).collect();
    let what = plural(ports.len(), "hostPort", "hostPorts");
    violation("hostPort", format!("{who} {verb} {what} {}", ports.join(", ")))
}

fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] =
        ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];
    let mut blame = pod.blame(|container, hosts| {
        let handlers = HANDLERS.iter().filter_map(|path| value::at(container, path));
        let named = handlers.flat_map(|handler| ["httpGet.host", "tcpSocket.host"].map(|at| value::text(handler, at)));
        let named: Vec<&str> = named.filter(|host| !host.is_empty()).collect();
        hosts.extend(named.iter().copied().map(Cow::Borrowed));
        !named.is_empty()
    });
    blame.containers.sort_unstable();
    let (who, verb) = (blame.who()?, plural(blame.containers.len(), "uses", "use"));
    let what = plural(blame.values.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    violation("probe or lifecycle host", format!("{who} {verb} {what} {}", blame.quoted_values()))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let who = pod.blame(|container, _| value::flag(container, "securityContext.privileged")).who()?;
    violation("privileged", format!("{who} must not set securityContext.privileged=true"))
}

/// A pod with users of its own sees its own processes only.
fn proc_mount_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let blame = pod.blame(|container, kinds| {
        let kind = value::text(container, "securityContext.procMount");
        let bad = !matches!(kind, "" | "Default");
        kinds.extend(bad.then_some(Cow::Borrowed(kind)));
        bad
    });
    let (who, what) = (blame.who()?, blame.quoted_values());
    violation("procMount", format!("{who} must not set securityContext.procMount to {what}"))
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
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in pod.volumes() {
        let mut sources =
            volume.as_object().into_iter().flatten().filter(|(key, source)| *key != "name" && !source.is_null());
        let kind = sources.next().map_or("unknown", |(key, _)| key.as_str());
        if !ALLOWED.contains(&kind) {
            names.push(name(volume));
            kinds.insert(kind);
        }
    }
    if names.is_empty() {
        return None;
    }
    let (volume, verb) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
    let what = plural(kinds.len(), "restricted volume type", "restricted volume types");
    violation("restricted volume types", format!("{volume} {} {verb} {what} {}", quoted(&names), quoted(&kinds)))
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "securityContext.runAsNonRoot";
    const REASON: &str = "runAsNonRoot != true";
    if pod.has_own_users() {
        return None;
    }
    if let Some(who) = pod.blame_all(|holder, _| flag(holder, FIELD) == Some(false)).who() {
        return violation(REASON, format!("{who} must not set {FIELD}=false"));
    }
    // What the pod says counts for containers that say nothing.
    let whole = flag(pod.spec, FIELD) == Some(true);
    let who = pod.blame(|container, _| !whole && flag(container, FIELD).is_none()).who()?;
    violation(REASON, format!("pod or {who} must set {FIELD}=true"))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let who = pod.blame_all(|holder, _| value::int(holder, "securityContext.runAsUser") == Some(0)).who()?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    const TYPES: [(u16, &str); 6] = [
        (ALWAYS, ""),
        (ALWAYS, "container_t"),
        (ALWAYS, "container_init_t"),
        (ALWAYS, "container_kvm_t"),
        (31, "container_engine_t"),
        (31, "container_device_t"),
    ];
    let known = |kind: &str| TYPES.iter().any(|(since, name)| *name == kind && pod.version.is_since(*since));
    let (mut user, mut role) = (false, false);
    let blame = pod.blame_all(|holder, types| {
        let text = |field: &str| value::text(holder, field);
        let kind = text("securityContext.seLinuxOptions.type");
        let odd = !known(kind);
        types.extend(odd.then_some(Cow::Borrowed(kind)));
        let users = !text("securityContext.seLinuxOptions.user").is_empty();
        let roles = !text("securityContext.seLinuxOptions.role").is_empty();
        user |= users;
        role |= roles;
        odd || users || roles
    });
    let who = blame.who()?;
    let mut bad = Vec::new();
    if !blame.values.is_empty() {
        bad.push(format!("{} {}", plural(blame.values.len(), "type", "types"), blame.quoted_values()));
    }
    for (set, what) in [(user, "user may not be set"), (role, "role may not be set")] {
        if set {
            bad.push(what.to_owned());
        }
    }
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", bad.join("; ")))
}

/// The type of a profile, where there is one.
fn seccomp(holder: &Value) -> Option<&str> {
    let profile = value::at(holder, "securityContext.seccompProfile").filter(|profile| profile.is_object());
    profile.map(|profile| value::text(profile, "type"))
}

/// Whoever has a profile that is not allowed.
fn seccomp_unallowed(pod: &Pod<'_>) -> Option<Violation> {
    let blame = pod.blame_all(|holder, kinds| {
        let bad = seccomp(holder).filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        kinds.extend(bad.map(Cow::Borrowed));
        bad.is_some()
    });
    let (who, what) = (blame.who()?, blame.quoted_values());
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {what}"))
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version.is_since(19) { seccomp_unallowed(pod) } else { seccomp_annotations(pod) }
}

/// Before profiles had a field they were named by annotations.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    const WHOLE: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let names: Vec<&str> = pods::containers(pod.spec).map(name).collect();
    let about = |key: &str| key == WHOLE || key.strip_prefix(CONTAINER).is_some_and(|name| names.contains(&name));
    let allowed = |text: &str| matches!(text, "runtime/default" | "docker/default") || text.starts_with("localhost/");
    let bad: BTreeSet<String> = pod
        .annotations()
        .filter(|(key, text)| about(key) && !allowed(text))
        .map(|(key, text)| format!("{key}={text:?}"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let what = plural(bad.len(), "annotation", "annotations");
    violation("seccompProfile", format!("forbidden {what} {}", bad.into_iter().collect::<Vec<_>>().join(", ")))
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    if let Some(found) = seccomp_unallowed(pod) {
        return Some(found);
    }
    let whole = seccomp(pod.spec).is_some();
    let who = pod.blame(|container, _| !whole && seccomp(container).is_none()).who()?;
    violation(
        "seccompProfile",
        format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""),
    )
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [(u16, &str); 14] = [
        (ALWAYS, "kernel.shm_rmid_forced"),
        (ALWAYS, "net.ipv4.ip_local_port_range"),
        (ALWAYS, "net.ipv4.tcp_syncookies"),
        (ALWAYS, "net.ipv4.ping_group_range"),
        (ALWAYS, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
        (32, "net.ipv4.tcp_wmem"),
        (37, "net.ipv4.tcp_slow_start_after_idle"),
        (37, "net.ipv4.tcp_notsent_lowat"),
    ];
    let allowed = |name: &str| ALLOWED.iter().any(|(since, known)| *known == name && pod.version.is_since(*since));
    let all = value::list(pod.spec, "securityContext.sysctls").iter().map(|sysctl| value::text(sysctl, "name"));
    let bad: Vec<&str> = all.filter(|name| !allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "securityContext.windowsOptions.hostProcess";
    let who = pod.blame_all(|holder, _| value::flag(holder, FIELD)).who()?;
    violation("hostProcess", format!("{who} must not set {FIELD}=true"))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
