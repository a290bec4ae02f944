//! What is counted of StatefulSets that are updated by rolling.

use informer::Key;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::plan::{is_ordered, max_unavailable, replicas};
use crate::common::meta::MetaExt;
use crate::metrics;

/// `OrderedReady` or `Parallel`.
fn policy(set: &StatefulSet) -> &'static str {
    if is_ordered(set) { "OrderedReady" } else { "Parallel" }
}

/// The figures after a turn.
pub(super) fn note(set: &StatefulSet, status: &StatefulSetStatus) {
    let labels = [set.metadata.namespace(), set.metadata.name(), policy(set)];
    let unavailable = replicas(set) - status.available_replicas.unwrap_or_default();
    metrics::STATEFUL_UNAVAILABLE.set(&labels, f64::from(unavailable.max(0)));
    metrics::STATEFUL_MAX_UNAVAILABLE.set(&labels, max_unavailable(set) as f64);
}

/// A set is gone.
pub(super) fn forget(key: &Key) {
    for policy in ["OrderedReady", "Parallel"] {
        let labels = [key.namespace.as_str(), key.name.as_str(), policy];
        metrics::STATEFUL_UNAVAILABLE.remove(&labels);
        metrics::STATEFUL_MAX_UNAVAILABLE.remove(&labels);
    }
}
