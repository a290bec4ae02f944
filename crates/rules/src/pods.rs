//! What state a pod is in.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};

/// `Pending` until somebody says otherwise.
pub fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// It ended by itself and will not start again.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// It runs or may still run, and nobody deletes it.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_deleting(pod)
}

/// It is being deleted and may still run.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && is_deleting(pod)
}

/// The node it is bound to.
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// A condition by its type.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "Ready").filter(|condition| condition.status == "True")
}

/// Its condition says so, whatever its phase is.
pub fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Since when it is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// When a ready pod has been ready for long enough; `None` if it is not ready, or nobody knows since when.
fn available_at(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    let wait = jiff::SignedDuration::from_secs(i64::from(min_ready_seconds.max(0)));
    Some(ready_since(pod)?.checked_add(wait).unwrap_or(Timestamp::MAX))
}

/// Ready for at least so many seconds.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && (min_ready_seconds <= 0 || available_at(pod, min_ready_seconds).is_some_and(|at| at <= now))
}

/// How long until a ready pod becomes available; `None` if it is, or is not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let at = available_at(pod, min_ready_seconds).filter(|at| min_ready_seconds > 0 && *at > now)?;
    Some(at.duration_since(now).unsigned_abs())
}

/// Whether a node's condition says that it is ready.
pub fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let pod = |status: &str, since: Option<&str>| -> Pod {
            let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
            serde_json::from_value(json!({"status": {"conditions": [condition]}})).expect("a pod")
        };
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let check = |pod: Pod, seconds: i32, expect: (bool, Option<u64>)| {
            let left = available_in(&pod, seconds, now).map(|left| left.as_secs());
            assert_eq!((is_available(&pod, seconds, now), left), expect, "{pod:?} {seconds}");
        };
        let minute_ago = Some("2026-01-01T00:00:00Z");
        check(pod("True", minute_ago), 0, (true, None));
        check(pod("True", None), 0, (true, None));
        check(pod("True", minute_ago), 60, (true, None));
        check(pod("True", minute_ago), 70, (false, Some(10)));
        check(pod("True", None), 70, (false, None));
        check(pod("False", minute_ago), 0, (false, None));
    }

    #[test]
    fn a_phase_that_nobody_wrote_is_pending() {
        for (status, expect) in
            [(json!({}), "Pending"), (json!({"phase": ""}), "Pending"), (json!({"phase": "Failed"}), "Failed")]
        {
            let pod: Pod = serde_json::from_value(json!({"status": status})).expect("a pod");
            assert_eq!(phase(&pod), expect, "{status}");
        }
    }
}
