//! Which taints a node should have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::meta::MetaExt;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, its status, and the taint that keeps new pods away.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels that older clients read, and the ones they repeat.
const REPEATED: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

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
pub(super) fn same_taints(a: &[Taint], b: &[Taint]) -> bool {
    a.len() == b.len() && a.iter().all(|taint| b.contains(taint))
}

/// The older forms of labels that the node lacks.
pub(super) fn missing_labels(node: &Node) -> BTreeMap<String, String> {
    let missing = REPEATED.iter().filter_map(|(current, older)| {
        let value = node.metadata.label(current)?;
        (node.metadata.label(older) != Some(value)).then(|| ((*older).to_owned(), value.to_owned()))
    });
    missing.collect()
}
