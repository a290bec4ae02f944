//! What state a pod is in, as controllers see it.

use std::cmp::Ordering;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use rules::pods::{
    available_in, condition, is_active, is_available, is_ready, is_terminal, is_terminating, node_name, phase,
    ready_since,
};

use super::meta::MetaExt;

/// The taint of a node that somebody knows to be switched off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The index of pods by the node they are bound to.
pub const NODE_INDEX: &str = "node";
/// The index of objects without a controller, by namespace.
pub const ORPHAN_INDEX: &str = "orphan";

/// Keys of [`NODE_INDEX`].
pub fn node_of(pod: &Pod) -> Vec<String> {
    node_name(pod).map(str::to_owned).into_iter().collect()
}

pub fn spec(pod: &Pod) -> Option<&PodSpec> {
    pod.spec.as_ref()
}

/// What an endpoint says of the pod behind it.
pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// A count of seconds that validation keeps from being negative.
pub fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

/// Which of two pods a controller should rather delete: `Less` is the first. The ranks say how many related pods share the pod's node.
pub fn deletion_order((a, rank_a): (&Pod, usize), (b, rank_b): (&Pod, usize), now: Timestamp) -> Ordering {
    let assigned = |pod| node_name(pod).is_some();
    let phase_rank = |pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| rank_b.cmp(&rank_a))
        .then_with(|| younger_first(ready_since(a), ready_since(b), is_ready(a), (a, b), now))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| younger_first(created(a), created(b), true, (a, b), now))
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|Time(at)| *at)
}

/// Younger before older on a logarithmic scale: pods of about the same age are in the (random) order of their uids.
fn younger_first(
    a: Option<Timestamp>,
    b: Option<Timestamp>,
    applies: bool,
    (pod_a, pod_b): (&Pod, &Pod),
    now: Timestamp,
) -> Ordering {
    if !applies || a == b {
        return Ordering::Equal;
    }
    let (Some(a), Some(b)) = (a, b) else {
        return a.is_some().cmp(&b.is_some());
    };
    let rank = |at: Timestamp| {
        let nanos = clock::since(now, at).as_nanos();
        if nanos == 0 { -1 } else { i64::from(nanos.ilog2()) }
    };
    rank(a).cmp(&rank(b)).then_with(|| pod_a.metadata.uid().cmp(pod_b.metadata.uid()))
}

/// `controller.kubernetes.io/pod-deletion-cost`; what is not a plain number costs nothing.
fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.metadata.annotation("controller.kubernetes.io/pod-deletion-cost");
    cost.filter(|cost| !cost.starts_with('+')).and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

/// The most restarts of a container, then of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let containers = status.container_statuses.iter().flatten().map(|status| status.restart_count).max();
    let is_sidecar = |name: &str| {
        spec(pod)
            .into_iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten();
    let sidecars = sidecars.filter(|status| is_sidecar(&status.name)).map(|status| status.restart_count).max();
    (containers.unwrap_or_default(), sidecars.unwrap_or_default())
}
