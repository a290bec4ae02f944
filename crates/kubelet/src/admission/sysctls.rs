//! Which kernel parameters a pod may set: those that are its own namespace's and touch nobody else, and those that the
//! administrator allows besides.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use super::verdict;
use crate::cri_config::sandbox::dotted;
use crate::pod::spec;
use crate::status::Verdict;

/// Parameters that are safe, and the kernel from which on they belong to a namespace.
const SAFE: [(&str, (u32, u32)); 14] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
    ("net.ipv4.tcp_slow_start_after_idle", (4, 15)),
    ("net.ipv4.tcp_notsent_lowat", (4, 6)),
];
const LONGEST: usize = 253;
const PATTERN: &str = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

/// The kernel's namespace that a parameter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
    Uts,
    User,
}

impl Namespace {
    fn of(name: &str) -> Option<Self> {
        match name {
            "kernel.domainname" => return Some(Self::Uts),
            // The last two are what is left of `kernel.shm*` and `kernel.msg*`.
            "kernel.sem"
            | "kernel.shmall"
            | "kernel.shmmax"
            | "kernel.shmmni"
            | "kernel.shm_rmid_forced"
            | "kernel.msgmax"
            | "kernel.msgmnb"
            | "kernel.msgmni"
            | "kernel.shm"
            | "kernel.msg" => {
                return Some(Self::Ipc);
            }
            _ => {}
        }
        let below = [("net.", Self::Net), ("fs.mqueue.", Self::Ipc), ("user.", Self::User)];
        below.into_iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, namespace)| namespace)
    }

    /// Whether the pod has the node's instead of its own.
    fn is_the_hosts(self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        match self {
            Self::Ipc => spec.is_some_and(|spec| spec.host_ipc == Some(true)),
            Self::Net => spec::is_host_network(pod),
            Self::User => spec.is_none_or(|spec| spec.host_users != Some(false)),
            Self::Uts => false,
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
            Self::Uts => "UTS",
            Self::User => "User",
        })
    }
}

/// What pods of this node may set.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    names: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

impl Allowed {
    /// What is safe on this kernel, and what the administrator names; a `*` at the end stands for anything. The error is in
    /// upstream's words.
    pub fn new(kernel: &str, further: &[String]) -> Result<Self, String> {
        let kernel = version(kernel);
        let safe = SAFE.iter().filter(|(_, since)| *since <= kernel).map(|(name, _)| *name);
        let mut allowed = Self::default();
        for pattern in safe.chain(further.iter().map(String::as_str)) {
            if !is_pattern(pattern) {
                return Err(format!(
                    "sysctl {pattern:?} must have at most {LONGEST} characters and match regex {PATTERN}"
                ));
            }
            let name = dotted(pattern);
            let (start, open) = name.split_once('*').map_or((name.as_str(), false), |(start, _)| (start, true));
            let namespace =
                Namespace::of(start).ok_or_else(|| format!("the sysctls {start:?} are not known to be namespaced"))?;
            let list = if open { &mut allowed.prefixes } else { &mut allowed.names };
            list.insert(start.to_owned(), namespace);
        }
        Ok(allowed)
    }

    /// Why the pod may not run with what it sets; nothing when it may.
    pub fn refusal(&self, pod: &Pod) -> Option<Verdict> {
        let context = pod.spec.as_ref()?.security_context.as_ref()?;
        let why = context.sysctls.iter().flatten().find_map(|sysctl| self.forbids(&dotted(&sysctl.name), pod))?;
        Some(verdict("SysctlForbidden", format!("forbidden sysctl: {why}")))
    }

    fn forbids(&self, name: &str, pod: &Pod) -> Option<String> {
        let by_prefix = || self.prefixes.iter().find(|(start, _)| name.starts_with(start.as_str())).map(|(_, ns)| ns);
        match self.names.get(name).or_else(by_prefix) {
            None => Some(format!("{name:?} not allowlisted")),
            Some(namespace) => {
                namespace.is_the_hosts(pod).then(|| format!("{name:?} not allowed with host {namespace} enabled"))
            }
        }
    }
}

/// The first two numbers of a kernel's version; zeros where they cannot be read, so that nothing counts as safe which may not
/// be.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn is_pattern(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |part: &str| part.chars().all(|c| plain(c) || c == '-' || c == '_');
    let segment = |part: &str| part.starts_with(plain) && part.ends_with(plain) && inner(part);
    let mut parts: Vec<&str> = text.split(['.', '/']).collect();
    let last = parts.pop().unwrap_or_default();
    let Some(end) = last.chars().last() else { return false };
    let start = &last[..last.len() - end.len_utf8()];
    let last_fits = (plain(end) || end == '*') && (start.is_empty() || start.starts_with(plain)) && inner(start);
    text.len() <= LONGEST && last_fits && parts.into_iter().all(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_safe_or_allowed_may_be_set() {
        let further = ["kernel.msg*", "net/core/somaxconn", "net.ipv6.*", "user.max_*"].map(str::to_owned);
        let allowed = Allowed::new("6.18.0-rc1", &further).unwrap();
        let check = |name: &str, more: serde_json::Value, expect: Option<&str>| {
            let mut spec = json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let refused = allowed.refusal(&pod).map(|verdict| format!("{}: {}", verdict.reason, verdict.message));
            assert_eq!(refused.as_deref(), expect, "{name}");
        };
        let none = || json!({});
        check("kernel.shm_rmid_forced", none(), None);
        check("net/ipv4/tcp_rmem", none(), None);
        check("kernel.msgmax", none(), None);
        check("net.core.somaxconn", none(), None);
        check("net.ipv6.conf.all.disable_ipv6", none(), None);
        check("kernel.shmmax", none(), Some("SysctlForbidden: forbidden sysctl: \"kernel.shmmax\" not allowlisted"));
        check(
            "net/core/rmem_max",
            none(),
            Some("SysctlForbidden: forbidden sysctl: \"net.core.rmem_max\" not allowlisted"),
        );
        check(
            "kernel.msgmax",
            json!({"hostIPC": true}),
            Some("SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowed with host IPC enabled"),
        );
        check(
            "net.ipv4.tcp_syncookies",
            json!({"hostNetwork": true}),
            Some("SysctlForbidden: forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"),
        );
        check(
            "user.max_net_namespaces",
            none(),
            Some("SysctlForbidden: forbidden sysctl: \"user.max_net_namespaces\" not allowed with host User enabled"),
        );
        check("user.max_net_namespaces", json!({"hostUsers": false}), None);
    }

    #[test]
    fn an_old_kernel_has_fewer_safe_ones() {
        let names = |kernel: &str| Allowed::new(kernel, &[]).unwrap().names.len();
        assert_eq!((names("4.4.0"), names("4.14"), names("4.15.0-1"), names("?")), (6, 11, 14, 5));
    }

    #[test]
    fn patterns_that_are_none_or_concern_the_whole_node_are_refused() {
        let check = |pattern: &str, expect: &str| {
            assert_eq!(Allowed::new("6.1", &[pattern.to_owned()]).unwrap_err(), expect);
        };
        for bad in ["", "Net.x", "net..x", "net.*x", "net._x", "net.x_", ".net"] {
            check(bad, &format!("sysctl {bad:?} must have at most 253 characters and match regex {PATTERN}"));
        }
        check("kernel.sysrq", "the sysctls \"kernel.sysrq\" are not known to be namespaced");
        check("*", "the sysctls \"\" are not known to be namespaced");
    }
}
