//! What a Job's pods amount to: who runs, who ended how, and which indexes are done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::failure_policy::{Verdict, judge};
use super::indexes;
use super::pod::{earlier_failures, failed, finished_at, index, is_tracked, succeeded};
use crate::common::meta::MetaExt;
use crate::common::pods;

/// A Job's pods, counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) active: Vec<Arc<Pod>>,
    pub(super) ready: usize,
    pub(super) terminating: usize,
    /// Ended and not in the status' numbers yet, nor among its uncounted ones.
    pub(super) newly_succeeded: Vec<Arc<Pod>>,
    pub(super) newly_failed: Vec<Arc<Pod>>,
    /// All that succeeded and failed, counted and uncounted.
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    /// Of the newly failed, those that a policy ignores.
    ignored: usize,
    pub(super) completed_indexes: BTreeSet<i32>,
    pub(super) failed_indexes: BTreeSet<i32>,
    /// How often indexes that are not done failed.
    pub(super) index_failures: BTreeMap<i32, i32>,
    /// The message of a rule that fails the Job.
    pub(super) failing: Option<String>,
    /// When the last failures were, and how many came in a row.
    pub(super) last_failure: Option<Timestamp>,
    pub(super) failures_in_a_row: u32,
    /// The last failure of each index that has to wait before its next pod.
    pub(super) index_last_failure: BTreeMap<i32, Timestamp>,
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Whether pods are replaced only when they are over.
pub(super) fn replaces_only_failed(spec: &JobSpec) -> bool {
    match spec.pod_replacement_policy.as_deref() {
        Some(policy) => policy == "Failed",
        None => spec.pod_failure_policy.is_some(),
    }
}

/// Counts the pods of a Job.
pub(super) fn tally(spec: &JobSpec, status: &JobStatus, own: &[Arc<Pod>], now: Timestamp) -> Tally {
    let mut tally = Tally::default();
    let completions = spec.completions.unwrap_or_default();
    let (indexed, careful) = (is_indexed(spec), replaces_only_failed(spec));
    if indexed {
        tally.completed_indexes = indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
        tally.failed_indexes = indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions);
    }
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let waiting = |pod: &Pod, uids: &Option<Vec<String>>| uids.iter().flatten().any(|uid| uid == pod.metadata.uid());
    let finished = is_finished(status);
    let mut last_success: Option<Timestamp> = None;
    let mut failures: Vec<Timestamp> = Vec::new();
    for pod in own {
        if pods::is_active(pod) {
            tally.ready += usize::from(pods::is_ready(pod));
            tally.active.push(pod.clone());
            continue;
        }
        tally.terminating += usize::from(pods::is_terminating(pod));
        let counted = waiting(pod, &uncounted.succeeded) || waiting(pod, &uncounted.failed);
        let valid = !indexed || index(pod).is_some_and(|index| index < completions);
        if succeeded(pod) {
            last_success = last_success.max(Some(finished_at(pod, now)));
            if is_tracked(pod) && !counted && valid {
                tally.newly_succeeded.push(pod.clone());
            }
            tally.completed_indexes.extend(index(pod).filter(|_| indexed && valid && (is_tracked(pod) || counted)));
        } else if failed(pod, careful || finished) && valid {
            judge_failure(spec, pod, indexed, is_tracked(pod) && !counted, now, &mut tally, &mut failures);
        }
    }
    for done in tally.completed_indexes.clone() {
        tally.failed_indexes.remove(&done);
        tally.index_failures.remove(&done);
        tally.index_last_failure.remove(&done);
    }
    let waiting = |uids: &Option<Vec<String>>| uids.as_ref().map_or(0, Vec::len);
    let known = |count: Option<i32>| usize::try_from(count.unwrap_or_default()).unwrap_or_default();
    tally.failed = known(status.failed) + waiting(&uncounted.failed) + tally.newly_failed.len() - tally.ignored;
    tally.succeeded = if indexed {
        tally.completed_indexes.len()
    } else {
        known(status.succeeded) + waiting(&uncounted.succeeded) + tally.newly_succeeded.len()
    };
    failures.retain(|at| last_success.is_none_or(|success| *at > success));
    tally.last_failure = failures.iter().max().copied();
    tally.failures_in_a_row = u32::try_from(failures.len()).unwrap_or(u32::MAX);
    tally
}

fn judge_failure(
    spec: &JobSpec,
    pod: &Arc<Pod>,
    indexed: bool,
    is_new: bool,
    now: Timestamp,
    tally: &mut Tally,
    failures: &mut Vec<Timestamp>,
) {
    let verdict =
        if pods::phase(pod) == "Failed" { judge(spec.pod_failure_policy.as_ref(), pod) } else { Verdict::Count };
    let at = finished_at(pod, now);
    if verdict != Verdict::Ignore {
        failures.push(at);
        if is_new {
            tally.newly_failed.push(pod.clone());
        }
    } else if is_new {
        // It does not count, but it must be let go like the others.
        tally.newly_failed.push(pod.clone());
        tally.ignored += 1;
    }
    if let Verdict::FailJob(message) = &verdict {
        tally.failing = tally.failing.take().or(Some(message.clone()));
    }
    let Some(index) = index(pod).filter(|_| indexed) else { return };
    let count = earlier_failures(pod) + i32::from(verdict != Verdict::Ignore);
    let known = tally.index_failures.entry(index).or_default();
    *known = (*known).max(count);
    let last = tally.index_last_failure.entry(index).or_insert(at);
    *last = (*last).max(at);
    let exceeded = spec.backoff_limit_per_index.is_some_and(|limit| count > limit);
    if exceeded || (verdict == Verdict::FailIndex && spec.backoff_limit_per_index.is_some()) {
        tally.failed_indexes.insert(index);
    }
}

/// It has a final condition.
pub(super) fn is_finished(status: &JobStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions
        .into_iter()
        .any(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")
}
