//! What is counted of Jobs. Pure but for the counting: the controller does not know the names of its metrics.

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::failure_policy::{self, Verdict};
use super::indexes;
use super::plan::Plan;
use super::pod;
use super::tally::{Tally, is_indexed, replaces_only_failed};
use crate::common::pods;
use crate::metrics;

/// `Indexed` or `NonIndexed`.
pub(super) fn mode(spec: &JobSpec) -> &'static str {
    if is_indexed(spec) { "Indexed" } else { "NonIndexed" }
}

/// What a turn did, as the label says.
pub(super) fn action(plan: &Plan) -> &'static str {
    if !plan.create.is_empty() {
        "pods_created"
    } else if !plan.delete.is_empty() {
        "pods_deleted"
    } else {
        "tracking"
    }
}

/// A turn is over.
pub(super) fn turned(mode: &str, action: &str, succeeded: bool, seconds: f64) {
    let labels = [mode, if succeeded { "success" } else { "error" }, action];
    metrics::JOB_SYNC_SECONDS.observe(&labels, seconds);
    metrics::JOB_SYNCS.increment(&labels);
}

/// Pods were asked for.
pub(super) fn created(spec: &JobSpec, tally: &Tally, succeeded: usize, failed: usize) {
    let reason = if replaces_only_failed(spec) && tally.failed > 0 {
        "recreate_failed"
    } else if tally.failed > 0 || tally.terminating > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    };
    if succeeded > 0 {
        metrics::JOB_PODS_CREATED.add(&[reason, "succeeded"], succeeded);
    }
    if failed > 0 {
        metrics::JOB_PODS_CREATED.add(&[reason, "failed"], failed);
    }
}

/// The status was written: what is new in it counts now, and only now.
pub(super) fn reported(job: &Job, spec: &JobSpec, tally: &Tally, before: &JobStatus, after: &JobStatus) {
    let mode = mode(spec);
    let finished = |status: &JobStatus, type_: &str| {
        let conditions = status.conditions.iter().flatten();
        let mut of_type = conditions.filter(|condition| condition.type_ == type_ && condition.status == "True");
        of_type.next().map(|condition| condition.reason.clone().unwrap_or_default())
    };
    for (type_, result) in [("Complete", "succeeded"), ("Failed", "failed")] {
        if let (None, Some(reason)) = (finished(before, type_), finished(after, type_)) {
            metrics::JOBS_FINISHED.increment(&[mode, result, &reason]);
        }
    }
    for (newly, result) in [(&tally.newly_succeeded, "succeeded"), (&tally.newly_failed, "failed")] {
        if !newly.is_empty() {
            metrics::JOB_PODS_FINISHED.add(&[mode, result], newly.len());
        }
    }
    for pod in &tally.newly_failed {
        if spec.pod_failure_policy.is_some() && pods::phase(pod) == "Failed" {
            let action = match failure_policy::judge(spec.pod_failure_policy.as_ref(), pod) {
                Verdict::Ignore => "Ignore",
                Verdict::FailJob(_) => "FailJob",
                Verdict::FailIndex => "FailIndex",
                Verdict::Count => "Count",
            };
            metrics::JOB_FAILURE_POLICY.increment(&[action]);
        }
    }
    if is_indexed(spec) {
        let completions = spec.completions.unwrap_or_default();
        let count = |text: &Option<String>| indexes::parse(text.as_deref().unwrap_or_default(), completions).len();
        let limit = if job.spec.as_ref().is_some_and(|spec| spec.backoff_limit_per_index.is_some()) {
            "perIndex"
        } else {
            "global"
        };
        let grown = |before: &Option<String>, after: &Option<String>| count(after).saturating_sub(count(before));
        for (more, status) in [
            (grown(&before.completed_indexes, &after.completed_indexes), "succeeded"),
            (grown(&before.failed_indexes, &after.failed_indexes), "failed"),
        ] {
            if more > 0 {
                metrics::JOB_INDEXES_FINISHED.add(&[status, limit], more);
            }
        }
    }
}

/// A pod changed: whether it is over and waits to be counted is followed.
pub(super) fn tracked(before: Option<&Pod>, after: Option<&Pod>) {
    let waits = |pod: Option<&Pod>| pod.is_some_and(|pod| pods::is_terminal(pod) && pod::is_tracked(pod));
    match (waits(before), waits(after)) {
        (false, true) => metrics::JOB_TRACKED_PODS.increment(&["add"]),
        (true, false) => metrics::JOB_TRACKED_PODS.increment(&["delete"]),
        _ => {}
    }
}
