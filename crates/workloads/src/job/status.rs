//! What is reported about a Job.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::failure_policy::{Verdict, judge};
use super::indexes;
use super::plan::{Observed, Outcome, Plan};
use super::pod::is_tracked;
use super::tally::{Tally, is_indexed};
use crate::common::meta::MetaExt;

/// Sets a condition; its time changes with its status.
pub(super) fn set(status: &mut JobStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    if conditions
        .iter()
        .any(|known| known.type_ == type_ && known.status == value && known.reason.as_deref() == Some(reason))
    {
        return;
    }
    conditions.retain(|known| known.type_ != type_);
    conditions.push(JobCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}

/// What was seen and done in one turn.
struct Seen<'a> {
    spec: &'a JobSpec,
    tally: &'a Tally,
    /// Uids whose pods are let go: their finalizer is gone, or they are.
    released: &'a BTreeSet<String>,
    /// Failures that a policy ignores: let go, and not counted.
    ignored: &'a BTreeSet<String>,
    outcome: Option<&'a Outcome>,
    /// Pods created and deleted in this turn.
    created: usize,
    deleted: usize,
    now: Timestamp,
}

/// What is reported after a turn that created and deleted so many pods.
pub(super) fn status(observed: &Observed, plan: &Plan, created: usize, deleted: usize, now: Timestamp) -> JobStatus {
    let Observed { spec, known, pods, tally, .. } = observed;
    let held = |uid: &str| pods.iter().any(|pod| pod.metadata.uid() == uid && is_tracked(pod));
    let released: BTreeSet<String> = uncounted(known).filter(|uid| !held(uid)).cloned().collect();
    let is_ignored = |pod: &&Arc<Pod>| judge(spec.pod_failure_policy.as_ref(), pod) == Verdict::Ignore;
    let ignored = pods.iter().filter(is_ignored).map(|pod| pod.metadata.uid().to_owned()).collect();
    let outcome = plan.outcome.as_ref();
    counted(known, &Seen { spec, tally, released: &released, ignored: &ignored, outcome, created, deleted, now })
}

/// The pods that a status notes and that still have the finalizer: once it is written, they may be let go.
pub(super) fn noted<'a>(pods: &'a [Arc<Pod>], status: &'a JobStatus) -> impl Iterator<Item = &'a Arc<Pod>> {
    let is_noted = |pod: &Pod| uncounted(status).any(|uid| uid == pod.metadata.uid());
    pods.iter().filter(move |pod| is_tracked(pod) && is_noted(pod))
}

fn uncounted(status: &JobStatus) -> impl Iterator<Item = &String> {
    let lists = status.uncounted_terminated_pods.iter();
    lists.flat_map(|lists| lists.succeeded.iter().flatten().chain(lists.failed.iter().flatten()))
}

/// The status after a turn. Pods that ended go through `uncountedTerminatedPods`: first they are noted there, then their finalizer is removed, then they
/// are counted. Whatever is cut off in between is taken up where it was, and nothing is counted twice.
fn counted(known: &JobStatus, seen: &Seen<'_>) -> JobStatus {
    let mut status = known.clone();
    let (spec, tally, now) = (seen.spec, seen.tally, seen.now);
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let take = |list: &mut Option<Vec<String>>| {
        let all = list.take().unwrap_or_default();
        let (gone, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|uid| seen.released.contains(uid));
        *list = (!left.is_empty()).then_some(left);
        i32::try_from(gone.iter().filter(|uid| !seen.ignored.contains(*uid)).count()).unwrap_or(i32::MAX)
    };
    let succeeded = take(&mut uncounted.succeeded);
    let failed = take(&mut uncounted.failed);
    let note = |list: &mut Option<Vec<String>>, pods: &[std::sync::Arc<k8s_openapi::api::core::v1::Pod>]| {
        if !pods.is_empty() {
            list.get_or_insert_default().extend(pods.iter().map(|pod| pod.metadata.uid().to_owned()));
        }
    };
    note(&mut uncounted.succeeded, &tally.newly_succeeded);
    note(&mut uncounted.failed, &tally.newly_failed);
    let pending = uncounted.succeeded.is_some() || uncounted.failed.is_some();
    if !pending {
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
    }
    status.failed = nonzero(status.failed.unwrap_or_default() + failed);
    if is_indexed(spec) {
        status.completed_indexes = filled(indexes::format(&tally.completed_indexes));
        status.succeeded = nonzero(i32::try_from(tally.completed_indexes.len()).unwrap_or(i32::MAX));
        if spec.backoff_limit_per_index.is_some() {
            status.failed_indexes = Some(indexes::format(&tally.failed_indexes));
        }
    } else {
        status.succeeded = nonzero(status.succeeded.unwrap_or_default() + succeeded);
    }
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let active = tally.active.len() + seen.created - seen.deleted.min(tally.active.len());
    status.active = nonzero(count(active));
    status.ready = Some(count(tally.ready.min(active)));
    let terminating = tally.terminating + seen.deleted;
    status.terminating = Some(count(terminating));
    start_and_suspend(spec, &mut status, seen.outcome.is_some(), now);
    if let Some(outcome) = seen.outcome {
        finish(&mut status, outcome, active == 0 && terminating == 0 && !pending, now);
    }
    status
}

fn start_and_suspend(spec: &JobSpec, status: &mut JobStatus, decided: bool, now: Timestamp) {
    if decided {
        return;
    }
    let suspended = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Suspended" && condition.status == "True");
    if spec.suspend == Some(true) {
        set(status, "Suspended", "True", "JobSuspended", "Job suspended", now);
        // The deadline counts from when the Job runs again.
        status.start_time = None;
        return;
    }
    if suspended {
        set(status, "Suspended", "False", "JobResumed", "Job resumed", now);
        status.start_time = Some(Time(now));
    }
    status.start_time.get_or_insert(Time(now));
}

/// First what will become of the Job, and once nothing runs any more, that it has.
fn finish(status: &mut JobStatus, outcome: &Outcome, over: bool, now: Timestamp) {
    let (target, end) = if outcome.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
    set(status, target, "True", &outcome.reason, &outcome.message, now);
    if !over {
        return;
    }
    set(status, end, "True", &outcome.reason, &outcome.message, now);
    if outcome.success {
        status.completion_time.get_or_insert(Time(now));
    }
}

fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn filled(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
