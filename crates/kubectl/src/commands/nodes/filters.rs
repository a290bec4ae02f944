//! Which pods of a node are evicted, which stay, and which forbid it.

use machinery::value::{flag, list, text};
use serde_json::Value;

/// What the flags allow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    pub force: bool,
    pub ignore_daemon_sets: bool,
    pub delete_empty_dirs: bool,
    /// How many seconds a pod may have been ending before nobody waits for it any more; 0 is without limit.
    pub skip_after: i64,
}

/// For how many seconds a pod has been ending, where that is longer than anybody waits.
pub fn is_given_up(pod: &Value, skip_after: i64, now: jiff::Timestamp) -> bool {
    let ends = text(pod, "metadata.deletionTimestamp").parse::<jiff::Timestamp>();
    skip_after > 0 && ends.is_ok_and(|ends| now.duration_since(ends).as_secs() > skip_after)
}

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Evict,
    /// It goes, and somebody should know what that costs.
    EvictWarning(&'static str),
    Stay,
    StayWarning(&'static str),
    Refuse(&'static str),
}

const DAEMON_SET: &str = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const DAEMON_SET_WARNING: &str = "ignoring DaemonSet-managed Pods";
const LOCAL: &str = "Pods with local storage (use --delete-emptydir-data to override)";
const LOCAL_WARNING: &str = "deleting Pods with local storage";
const UNMANAGED: &str = "Pods that declare no controller (use --force to override)";
const UNMANAGED_WARNING: &str = "deleting Pods that declare no controller";

/// Judges a pod. `daemon_set` says whether the DaemonSet that the pod names is there.
pub fn judge(pod: &Value, daemon_set: Option<bool>, allowed: Allowed, now: jiff::Timestamp) -> Fate {
    if is_given_up(pod, allowed.skip_after, now) {
        return Fate::Stay;
    }
    let annotations = machinery::value::at(pod, "metadata.annotations");
    // Those that the node keeps itself come back whatever anybody does.
    if annotations.is_some_and(|all| all.get("kubernetes.io/config.mirror").is_some()) {
        return Fate::Stay;
    }
    let finished = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
    let owner = list(pod, "metadata.ownerReferences").iter().find(|owner| flag(owner, "controller"));
    if owner.is_some_and(|owner| text(owner, "kind") == "DaemonSet") && !finished {
        return match (daemon_set, allowed.ignore_daemon_sets) {
            (Some(false), _) if allowed.force => Fate::EvictWarning(UNMANAGED_WARNING),
            (_, false) => Fate::Refuse(DAEMON_SET),
            (_, true) => Fate::StayWarning(DAEMON_SET_WARNING),
        };
    }
    let local = list(pod, "spec.volumes").iter().any(|volume| volume.get("emptyDir").is_some());
    if local && !finished {
        if !allowed.delete_empty_dirs {
            return Fate::Refuse(LOCAL);
        }
        if owner.is_some() {
            return Fate::EvictWarning(LOCAL_WARNING);
        }
    }
    if owner.is_none() && !finished {
        return if allowed.force { Fate::EvictWarning(UNMANAGED_WARNING) } else { Fate::Refuse(UNMANAGED) };
    }
    Fate::Evict
}

/// Pods by what is said of them: `message: ns/a, ns/b`.
pub fn grouped(found: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let mut messages: Vec<&'static str> = found.iter().map(|(message, _)| *message).collect();
    messages.sort_unstable();
    messages.dedup();
    let pods = |message: &str| {
        found.iter().filter(|(other, _)| *other == message).map(|(_, pod)| pod.as_str()).collect::<Vec<_>>().join(", ")
    };
    messages.into_iter().map(|message| (message, pods(message))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_go_stay_or_forbid_it() {
        let owned = |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": true}]}});
        let none = Allowed::default();
        let all = Allowed { force: true, ignore_daemon_sets: true, delete_empty_dirs: true, skip_after: 0 };
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        assert_eq!(judge(&owned("ReplicaSet"), None, none, now), Fate::Evict);
        assert_eq!(judge(&owned("DaemonSet"), Some(true), none, now), Fate::Refuse(DAEMON_SET));
        assert_eq!(judge(&owned("DaemonSet"), Some(true), all, now), Fate::StayWarning(DAEMON_SET_WARNING));
        assert_eq!(judge(&json!({}), None, none, now), Fate::Refuse(UNMANAGED));
        assert_eq!(judge(&json!({}), None, all, now), Fate::EvictWarning(UNMANAGED_WARNING));
        assert_eq!(judge(&json!({"status": {"phase": "Succeeded"}}), None, none, now), Fate::Evict);
        let mut local = owned("ReplicaSet");
        local["spec"] = json!({"volumes": [{"emptyDir": {}}]});
        assert_eq!(judge(&local, None, none, now), Fate::Refuse(LOCAL));
        assert_eq!(judge(&local, None, all, now), Fate::EvictWarning(LOCAL_WARNING));
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
        assert_eq!(judge(&mirror, None, none, now), Fate::Stay);
        let mut ending = owned("ReplicaSet");
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        for (skip_after, fate) in [(0, Fate::Evict), (60, Fate::Evict), (59, Fate::Stay)] {
            assert_eq!(judge(&ending, None, Allowed { skip_after, ..none }, now), fate, "{skip_after}");
        }
    }
}
