//! What is reported about a DaemonSet.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::plan::{fits, is_updated, target};
use crate::common::meta::MetaExt;
use crate::common::pods;

/// Counts nodes; of several pods on one the oldest counts.
pub(super) fn status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    own: &[Arc<Pod>],
    hash: &str,
    now: Timestamp,
) -> DaemonSetStatus {
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    let known = set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: known.collision_count,
        conditions: known.conditions,
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated) = (0, 0);
    for node in nodes {
        let on_node = own.iter().filter(|pod| target(pod) == Some(node.metadata.name()));
        let mut on_node: Vec<&Arc<Pod>> = on_node.collect();
        on_node.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
        if !fits(set, node).0 {
            status.number_misscheduled += i32::from(!on_node.is_empty());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(first) = on_node.first() else { continue };
        status.current_number_scheduled += 1;
        // During a surge the readiness of either pod counts.
        let ready = on_node.iter().find(|pod| pods::is_ready(pod) && !pod.metadata.is_deleting());
        status.number_ready += i32::from(ready.is_some());
        available += i32::from(ready.is_some_and(|pod| pods::is_available(pod, min_ready, now)));
        updated += i32::from(is_updated(set, first, hash));
    }
    let unavailable = status.desired_number_scheduled - available;
    let nonzero = |count: i32| (count != 0).then_some(count);
    status.number_available = nonzero(available);
    status.number_unavailable = nonzero(unavailable);
    status.updated_number_scheduled = nonzero(updated);
    status
}

/// Another template has the same hash: the next attempt is made with another one.
pub(super) fn collided(set: &DaemonSet) -> DaemonSetStatus {
    let known = set.status.clone().unwrap_or_default();
    DaemonSetStatus { collision_count: Some(known.collision_count.unwrap_or_default().saturating_add(1)), ..known }
}
