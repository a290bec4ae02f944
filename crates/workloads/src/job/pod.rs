//! The pods of a Job: how they are made, and what can be read from them.

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use crate::common::meta::MetaExt;
use crate::common::pod_control::from_template;
use crate::common::pods;

/// Keeps a pod until it is counted.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest name from which the API server still makes valid ones.
const MAX_PREFIX: usize = 58;

/// A pod for the Job, for an index where it has them; `failures` is how often the index failed before.
pub(super) fn new_pod(job: &Job, index: Option<i32>, failures: Option<i32>) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = from_template(&template, job);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|known| known == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let Some(index) = index else { return pod };
    let name = job.metadata.name();
    let mut prefix = format!("{name}-{index}-");
    prefix.truncate(MAX_PREFIX);
    pod.metadata.generate_name = Some(prefix);
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if let Some(failures) = failures {
        annotations.insert(FAILURES.to_owned(), failures.to_string());
    }
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        for container in containers {
            let variables = container.env.get_or_insert_default();
            if !variables.iter().any(|variable| variable.name == VARIABLE) {
                variables.push(index_variable());
            }
        }
    }
    pod
}

fn index_variable() -> EnvVar {
    let field =
        ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: format!("metadata.labels['{INDEX}']") };
    EnvVar {
        name: VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

/// The pod's completion index.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.metadata.annotation(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// How often the pod's index failed before it.
pub(super) fn earlier_failures(pod: &Pod) -> i32 {
    pod.metadata.annotation(FAILURES).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Whether it still has to be counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.has_finalizer(FINALIZER)
}

pub(super) fn succeeded(pod: &Pod) -> bool {
    pods::phase(pod) == "Succeeded"
}

/// A pod that failed; one that is deleted counts as failed when it is over, or at once if it may be replaced before.
pub(super) fn failed(pod: &Pod, only_when_over: bool) -> bool {
    pods::phase(pod) == "Failed" || (!only_when_over && pod.metadata.is_deleting() && !succeeded(pod))
}

pub(super) fn finished_at(pod: &Pod, now: Timestamp) -> Timestamp {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended = statuses.filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let latest = ended.map(|time| time.0).max();
    let ready = pods::condition(pod, "Ready").and_then(|condition| condition.last_transition_time.as_ref());
    latest.or(ready.map(|time| time.0)).or(pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)).unwrap_or(now)
}

/// `at + delay - now`, if that is still to come.
pub(super) fn remaining(at: Timestamp, delay: std::time::Duration, now: Timestamp) -> Option<std::time::Duration> {
    let left = clock::since(clock::add(at, delay), now);
    // A time that is further ahead than clocks differ is from before the clock was set back, and says nothing.
    if left > 2 * delay {
        return None;
    }
    (!left.is_zero()).then_some(left)
}
