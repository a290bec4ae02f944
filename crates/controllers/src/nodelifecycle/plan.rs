//! Which taints a node should have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rules::names::{DISK_PRESSURE, MEMORY_PRESSURE, NOT_READY, PID_PRESSURE, UNREACHABLE, UNSCHEDULABLE};

use super::status;
use crate::common::meta::MetaExt;
use crate::common::pods;

/// No turn comes sooner than this after another because of time that passes.
const SOONEST: Duration = Duration::from_millis(100);

/// Condition, its status, and the taint that keeps new pods away.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", MEMORY_PRESSURE),
    ("DiskPressure", "True", DISK_PRESSURE),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", PID_PRESSURE),
];

/// Labels that older clients read, and the ones they repeat.
const REPEATED: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// What a turn sees.
pub(super) struct Observed {
    pub(super) node: Arc<Node>,
    /// The status of a node that fell silent; `None` if it did not, or says so.
    pub(super) lost: Option<NodeStatus>,
    /// How long it has been silent, and how long that may be.
    pub(super) silent: Duration,
    pub(super) grace: Duration,
    /// The pods on it, if it is not ready.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) eviction: Eviction,
}

/// Whether pods are evicted from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    No,
    /// By a taint of this key.
    Yes(&'static str),
    /// Too many others are: it comes to its turn later.
    In(Duration),
}

/// What a turn does.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) status: Option<NodeStatus>,
    /// Whether an event says that the node is ready no more.
    pub(super) announce: bool,
    /// Nobody can vouch for the pods of a silent node, so Services must not send traffic to them.
    pub(super) pods: Vec<Pod>,
    /// All of its taints, if they are others than it has.
    pub(super) taints: Option<Vec<Taint>>,
    pub(super) labels: BTreeMap<String, String>,
    /// Whether an eviction begins.
    pub(super) evicts: bool,
    pub(super) again: Option<Duration>,
}

/// The node as it is once its status is written.
pub(super) fn judged(node: &Node, lost: Option<&NodeStatus>) -> Node {
    Node { status: lost.cloned().or_else(|| node.status.clone()), ..node.clone() }
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { node, lost, silent, grace, pods, eviction } = observed;
    let judged = judged(node, lost.as_ref());
    let (evict, wait) = match eviction {
        Eviction::No => (None, None),
        Eviction::Yes(key) => (Some(*key), None),
        Eviction::In(delay) => (None, Some(*delay)),
    };
    let current = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let wanted = taints(&judged, evict, wait.is_some(), Time(now));
    let not_ready = |pod: &Arc<Pod>| Some(Pod { status: Some(status::pod_not_ready(pod, now)?), ..Pod::clone(pod) });
    let watch = (silent < grace).then(|| grace.saturating_sub(*silent).max(SOONEST));
    Plan {
        status: lost.clone(),
        announce: lost.is_some() && is_ready(node),
        pods: pods.iter().filter(|pod| pods::is_ready(pod)).filter_map(not_ready).collect(),
        taints: (!same_taints(&current, &wanted)).then_some(wanted),
        labels: missing_labels(node),
        evicts: evict.is_some_and(|key| !has_eviction_taint(node, key)),
        again: [wait, watch].into_iter().flatten().min(),
    }
}

pub(super) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// `Unknown` until a condition says otherwise.
fn readiness(node: &Node) -> &str {
    condition(node, "Ready").map_or("Unknown", |condition| condition.status.as_str())
}

pub(super) fn is_ready(node: &Node) -> bool {
    readiness(node) == "True"
}

pub(super) fn is_unknown(node: &Node) -> bool {
    readiness(node) == "Unknown"
}

/// What changes when a kubelet reports: heartbeats and conditions.
pub(super) fn heartbeat(node: &Node) -> Option<&Vec<NodeCondition>> {
    node.status.as_ref()?.conditions.as_ref()
}

/// The taint by which the pods of a node that is not ready are evicted.
pub(super) fn eviction_taint(node: &Node) -> Option<&'static str> {
    match readiness(node) {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    }
}

pub(super) fn has_eviction_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key && taint.effect == "NoExecute")
}

/// All taints: others' as they are, and this controller's as the conditions ask. `hold` keeps an eviction taint that is there, while its zone waits.
pub(super) fn taints(node: &Node, evict: Option<&str>, hold: bool, now: Time) -> Vec<Taint> {
    let current = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let mut wanted: Vec<(&str, &str)> = BY_CONDITION
        .iter()
        .filter(|(type_, status, _)| condition(node, type_).is_some_and(|condition| condition.status == *status))
        .map(|(_, _, taint)| (*taint, "NoSchedule"))
        .collect();
    if unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted.extend(evict.map(|key| (key, "NoExecute")));
    let own = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key),
        "NoExecute" => !hold && (taint.key == NOT_READY || taint.key == UNREACHABLE),
        _ => false,
    };
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut taints: Vec<Taint> = current.into_iter().filter(|taint| !own(taint) || is_wanted(taint)).collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(now.clone()),
                value: None,
            });
        }
    }
    taints
}

/// Whether two lists hold the same taints, in any order.
fn same_taints(a: &[Taint], b: &[Taint]) -> bool {
    a.len() == b.len() && a.iter().all(|taint| b.contains(taint))
}

/// The older forms of labels that the node lacks.
fn missing_labels(node: &Node) -> BTreeMap<String, String> {
    let missing = REPEATED.iter().filter_map(|(current, older)| {
        let value = node.metadata.label(current)?;
        (node.metadata.label(older) != Some(value)).then(|| ((*older).to_owned(), value.to_owned()))
    });
    missing.collect()
}
