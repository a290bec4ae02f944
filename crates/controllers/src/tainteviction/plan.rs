//! Whether a pod may stay on a node with `NoExecute` taints, and for how long.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use rules::tolerations::tolerates;

use crate::common::pods;

/// What becomes of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    EvictIn(Duration),
    /// It could have gone since then.
    Evict(Timestamp),
}

/// The taints of a node that evict.
pub(super) fn evicting_taints(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// Whether the node evicts anybody.
pub(super) fn evicts(node: &Node) -> bool {
    !evicting_taints(node).is_empty()
}

/// Every taint must be tolerated. Of the tolerations that cover one, the first counts; the shortest time that any of these grants holds.
pub(super) fn plan(pod: &Pod, taints: &[Taint], now: Timestamp) -> Plan {
    let tolerations = pods::spec(pod).and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut earliest: Option<Timestamp> = None;
    for taint in taints {
        let added = taint.time_added.as_ref().map_or(now, |time| time.0);
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Plan::Evict(added);
        };
        if let Some(seconds) = toleration.toleration_seconds {
            let end = clock::add(added, Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
            earliest = Some(earliest.map_or(end, |known| known.min(end)));
        }
    }
    match earliest {
        None => Plan::Keep,
        Some(end) if end <= now => Plan::Evict(end),
        Some(end) => Plan::EvictIn(clock::since(end, now)),
    }
}
