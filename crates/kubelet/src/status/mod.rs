//! The status of a pod for the API: a pure function of the specification, the last status and the runtime's state.

mod conditions;
mod containers;
mod patch;
mod phase;

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod::allocation::Allocation;
use crate::pod::state::State;
use crate::pod::{resources, spec};
use crate::probes::Verdicts;
use rules::pod_resources::Side;

pub use patch::patch;

/// Why a container does not run yet: a word and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Such as `ImagePullBackOff`.
    pub reason: String,
    pub message: String,
}

/// An end that the kubelet itself decided: an eviction, a deadline, a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Such as `Evicted`.
    pub reason: String,
    pub message: String,
    /// Set when the pod was running well and had to go for the node's sake: what its condition says of that.
    pub disruption: Option<String>,
}

/// How far a change of a running pod's resources got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resize {
    /// Why the node has not granted it: a word and a sentence.
    pub pending: Option<(String, String)>,
    /// Set while it is being brought about; with what went wrong, if something did.
    pub progress: Option<Option<String>>,
}

/// Everything a status is made from.
#[derive(Debug)]
pub struct View<'a> {
    /// The pod as the API has it.
    pub pod: &'a Pod,
    /// The last status we made; the API's when we made none.
    pub old: &'a PodStatus,
    /// What the runtime has.
    pub state: &'a State,
    /// What the probes say.
    pub verdicts: &'a Verdicts,
    /// Containers that could not be started, by name.
    pub waiting: &'a HashMap<String, Waiting>,
    /// Set once no container of the pod runs or will run again.
    pub terminal: bool,
    /// Set when the kubelet ended the pod.
    pub verdict: Option<&'a Verdict>,
    /// What the pod was given, when that is known.
    pub allocation: Option<&'a Allocation>,
    /// How far a change of that got.
    pub resize: &'a Resize,
    /// The node's addresses, the main one first.
    pub host_ips: &'a [String],
    /// Prefix of container ids, such as `containerd`.
    pub runtime: &'a str,
    pub now: Timestamp,
}

pub fn status(view: &View<'_>) -> PodStatus {
    let View { pod, old, .. } = *view;
    let mut status = PodStatus {
        qos_class: Some(rules::qos::class(pod).as_str().to_owned()),
        observed_generation: pod.metadata.generation,
        start_time: old.start_time.clone().or_else(|| Some(seconds(view.now))),
        container_statuses: Some(containers::regular(view)),
        init_container_statuses: none_if_empty(containers::init(view)),
        ephemeral_container_statuses: none_if_empty(containers::ephemeral(view)),
        nominated_node_name: pod.status.as_ref().and_then(|s| s.nominated_node_name.clone()),
        resource_claim_statuses: pod.status.as_ref().and_then(|s| s.resource_claim_statuses.clone()),
        allocated_resources: Some(resources::whole(pod, Side::Requests)).filter(|list| !list.is_empty()),
        resources: Some(given(view)),
        ..PodStatus::default()
    };
    let phase = settle(view, phase::phase(view, &status));
    if Some(phase) == old.phase.as_deref() {
        let api = pod.status.as_ref();
        status.reason = old.reason.clone().or_else(|| api.and_then(|s| s.reason.clone()));
        status.message = old.message.clone().or_else(|| api.and_then(|s| s.message.clone()));
    }
    status.phase = Some(phase.to_owned());
    // An end is reported when it has come: until then others may rely on the pod still holding what it holds.
    if let Some(verdict) = view.verdict.filter(|_| view.terminal || !view.state.is_running()) {
        status.phase = Some("Failed".to_owned());
        status.reason = Some(verdict.reason.clone());
        status.message = Some(verdict.message.clone());
    }
    status.conditions = Some(conditions::all(view, &status));
    addresses(view, &mut status);
    status
}

/// What the pod as a whole has. While that changes it has what it had.
fn given(view: &View<'_>) -> ResourceRequirements {
    match (view.old.phase.as_deref(), &view.old.resources) {
        (Some("Running"), Some(before)) if view.resize.progress.is_some() => before.clone(),
        (Some("Running"), _) => resources::in_force(view.pod),
        _ => {
            let side = |side: Side| Some(resources::whole(view.pod, side)).filter(|list| !list.is_empty());
            ResourceRequirements { requests: side(Side::Requests), limits: side(Side::Limits), ..Default::default() }
        }
    }
}

/// Phases never leave an end they reached.
fn settle<'a>(view: &'a View<'_>, phase: &'static str) -> &'a str {
    if spec::is_finished(view.pod) {
        return spec::phase(view.pod);
    }
    match view.old.phase.as_deref() {
        Some(end @ ("Succeeded" | "Failed")) if !matches!(phase, "Succeeded" | "Failed") => end,
        _ => phase,
    }
}

fn addresses(view: &View<'_>, status: &mut PodStatus) {
    let mut ips: Vec<String> = view.state.ips(view.pod, view.host_ips).to_vec();
    if let Some(host) = view.host_ips.first() {
        status.host_ip = Some(host.clone());
        status.host_ips = Some(view.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    }
    // An ended pod's address is another's by now, but people still want to see which it was.
    if ips.is_empty() && view.terminal {
        ips = view.old.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    }
    status.pod_ip = ips.first().cloned();
    status.pod_ips = none_if_empty(ips.into_iter().map(|ip| PodIP { ip }).collect());
}

fn none_if_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// A time as the API keeps it: without parts of a second.
pub fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests;
