//! The conditions of nodes that fell silent, and of their pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions a kubelet vouches for.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The status of a node whose kubelet no longer reports; `None` if it says so already.
pub(super) fn lost(node: &Node, now: Timestamp) -> Option<NodeStatus> {
    let known = node.status.clone().unwrap_or_default();
    let mut status = known.clone();
    let conditions = status.conditions.get_or_insert_default();
    for type_ in VOUCHED {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            None => conditions.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            Some(_) => {}
        }
    }
    (status != known).then_some(status)
}

/// The status of a pod nobody can vouch for; `None` if it is not ready anyway.
pub(super) fn pod_not_ready(pod: &Pod, now: Timestamp) -> Option<PodStatus> {
    let mut status = pod.status.clone()?;
    let ready = status.conditions.iter_mut().flatten().find(|condition| condition.type_ == "Ready")?;
    if ready.status == "False" {
        return None;
    }
    ready.status = "False".to_owned();
    ready.last_transition_time = Some(Time(now));
    Some(status)
}
