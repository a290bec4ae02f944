//! Whether a pod may stay on a node with `NoExecute` taints, and for how long.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use crate::common::nodes::tolerates;
use crate::common::pods;

/// What becomes of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    GoesIn(Duration),
    /// And could have gone since then.
    Goes(Timestamp),
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

/// Every taint must be tolerated; the shortest time that a toleration grants holds.
pub(super) fn fate(pod: &Pod, taints: &[Taint], now: Timestamp) -> Fate {
    let tolerations = pods::spec(pod).and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut earliest: Option<Timestamp> = None;
    for taint in taints {
        let matching: Vec<&Toleration> = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).collect();
        let added = taint.time_added.as_ref().map_or(now, |time| time.0);
        if matching.is_empty() {
            return Fate::Goes(added);
        }
        for seconds in matching.iter().filter_map(|toleration| toleration.toleration_seconds) {
            let end = clock::add(added, Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
            earliest = Some(earliest.map_or(end, |known| known.min(end)));
        }
    }
    match earliest {
        None => Fate::Stays,
        Some(end) if end <= now => Fate::Goes(end),
        Some(end) => Fate::GoesIn(clock::since(end, now)),
    }
}
