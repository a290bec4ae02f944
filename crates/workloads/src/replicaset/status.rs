//! What is reported about a set of replicas.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};

use crate::common::{pods, selector};

/// What one turn saw and did.
pub(super) struct Observed<'a> {
    pub(super) active: &'a [Arc<Pod>],
    pub(super) terminating: usize,
    pub(super) failure: Option<&'a client::Error>,
    pub(super) now: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replicas: i32,
    pub(super) fully_labeled: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    pub(super) terminating: i32,
}

/// Counts what was seen.
pub(super) fn counts(observed: &Observed<'_>, template: &PodTemplateSpec, min_ready_seconds: i32) -> Counts {
    let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let of_template = selector::of_map(&labels);
    let count = |test: &dyn Fn(&Pod) -> bool| clamp(observed.active.iter().filter(|pod| test(pod)).count());
    Counts {
        replicas: clamp(observed.active.len()),
        fully_labeled: count(&|pod| selector::matches(&of_template, &pod.metadata.labels)),
        ready: count(&pods::is_ready),
        available: count(&|pod| pods::is_available(pod, min_ready_seconds, observed.now)),
        terminating: clamp(observed.terminating),
    }
}

/// The reason and message of the `ReplicaFailure` condition.
pub(super) fn failure(observed: &Observed<'_>, wanted: i32) -> Option<(&'static str, String)> {
    let error = observed.failure?;
    if clamp(observed.active.len()) < wanted {
        return Some(("FailedCreate", error.to_string()));
    }
    Some(("FailedDelete", format!("unable to delete pods: {error}")))
}

/// When the next ready pod becomes available.
pub(super) fn next_check(min_ready_seconds: i32, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    active.iter().filter_map(|pod| pods::available_in(pod, min_ready_seconds, now)).min()
}

fn clamp(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
