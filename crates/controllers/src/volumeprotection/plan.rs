//! Who uses a claim or a volume, and what a claim says of that. What follows for its finalizer is `common::protection`'s to say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::common::storage::{names_claim, owns_claim};

const UNUSED: &str = "Unused";

/// Whether a pod keeps a claim from being removed: it has a node, whether it has ended or not. A claim that was made for the pod is free when the
/// node is done with the pod: each may be waiting for the other to go.
pub(super) fn keeps(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    pods::node_name(pod).is_some() && (names_claim(pod, claim) || (!is_shut_down(pod) && owns_claim(pod, claim)))
}

/// Whether a pod refers to a claim and has not ended.
pub(super) fn refers(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    !is_terminated(pod) && (names_claim(pod, claim) || owns_claim(pod, claim))
}

fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Ended, or being deleted with nothing running in it.
fn is_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return pod.metadata.is_deleting() };
    let mut containers =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses]
            .into_iter()
            .flat_map(|statuses| statuses.iter().flatten());
    let runs = |state: &ContainerState| state.terminated.is_none() && state.waiting.is_none();
    pods::is_terminal(pod) || (pod.metadata.is_deleting() && !containers.any(|one| one.state.as_ref().is_none_or(runs)))
}

/// What about a pod decides whose claims are in use.
pub(super) fn stage(pod: &Pod) -> (bool, bool) {
    (is_terminated(pod), is_shut_down(pod))
}

/// The conditions of a bound claim that does not say yet whether it is used; nothing if it does.
pub(super) fn unused(
    claim: &PersistentVolumeClaim,
    used: bool,
    now: Timestamp,
) -> Option<Vec<PersistentVolumeClaimCondition>> {
    let status = claim.status.as_ref()?;
    if claim.metadata.is_deleting() || status.phase.as_deref() != Some("Bound") {
        return None;
    }
    let mut conditions = status.conditions.clone().unwrap_or_default();
    let known = conditions.iter_mut().find(|one| one.type_ == UNUSED);
    if known.as_ref().is_some_and(|known| (known.status == "True") != used) {
        return None;
    }
    let (status, reason, message) = if used {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    let fresh = PersistentVolumeClaimCondition {
        type_: UNUSED.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(Time(now)),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..PersistentVolumeClaimCondition::default()
    };
    match known {
        Some(known) => *known = fresh,
        None => conditions.push(fresh),
    }
    Some(conditions)
}

pub(super) fn is_bound(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
