//! What is reported about a StatefulSet.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::plan::{Templates, is_running, partition, replicas};
use crate::common::history::HASH_LABEL;
use crate::common::meta::MetaExt;
use crate::common::pods;

/// Counts; and once every pod is of the new revision, that one is the current.
pub(super) fn status(set: &StatefulSet, own: &[Arc<Pod>], templates: &Templates, now: Timestamp) -> StatefulSetStatus {
    let known = set.status.clone().unwrap_or_default();
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    let count =
        |test: &dyn Fn(&Pod) -> bool| i32::try_from(own.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX);
    let of =
        |revision: &str| count(&|pod| !pod.metadata.is_deleting() && pod.metadata.label(HASH_LABEL) == Some(revision));
    let (ready, updated) = (count(&is_running), of(&templates.update_name));
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: i32::try_from(own.len()).unwrap_or(i32::MAX),
        ready_replicas: nonzero(ready),
        available_replicas: Some(count(&|pod| is_running(pod) && pods::is_available(pod, min_ready, now))),
        current_replicas: nonzero(of(&templates.current_name)),
        updated_replicas: nonzero(updated),
        current_revision: Some(templates.current_name.clone()),
        update_revision: Some(templates.update_name.clone()),
        collision_count: Some(known.collision_count.unwrap_or_default()),
        conditions: known.conditions,
    };
    let all = replicas(set);
    if partition(set) == 0 && updated == all && status.replicas == all && ready == all {
        status.current_revision.clone_from(&status.update_revision);
        status.current_replicas = nonzero(updated);
    }
    status
}

/// Another template has the same hash: the next attempt is made with another one.
pub(super) fn collided(set: &StatefulSet) -> StatefulSetStatus {
    let known = set.status.clone().unwrap_or_default();
    StatefulSetStatus { collision_count: Some(known.collision_count.unwrap_or_default().saturating_add(1)), ..known }
}

fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
