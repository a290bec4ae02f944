//! Whether a Job is decided, and which pods to create or delete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::indexes;
use super::pod::{index, remaining};
use super::tally::{Tally, is_indexed, replaces_only_failed};
use crate::common::meta::MetaExt;
use crate::common::pods;

/// No more pods are created or deleted in one turn.
const BURST: usize = 500;
/// The wait after the first failure; it doubles with every further one.
const BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Outcome {
    fn failure(reason: &str, message: &str) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { success: true, reason: reason.to_owned(), message: message.into() }
    }
}

/// A pod to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct New {
    pub(super) index: Option<i32>,
    pub(super) failures: Option<i32>,
}

/// What a turn sees.
pub(super) struct Observed {
    pub(super) job: Arc<Job>,
    pub(super) spec: JobSpec,
    pub(super) known: JobStatus,
    /// Those that it controls.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) tally: Tally,
}

/// What a turn does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How the Job ends, if it is decided.
    pub(super) outcome: Option<Outcome>,
    pub(super) create: Vec<New>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// When to look again even if nothing happens.
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { job, spec, known, tally, .. } = observed;
    let outcome = outcome(spec, known, tally, now);
    if job.metadata.is_deleting() {
        return Plan { outcome, ..Plan::default() };
    }
    let steps = steps(spec, known, tally, outcome.is_some(), now);
    Plan { outcome, ..steps }
}

/// Whether the Job is decided: by what was decided before, then failures, then success.
fn outcome(spec: &JobSpec, status: &JobStatus, tally: &Tally, now: Timestamp) -> Option<Outcome> {
    let conditions = status.conditions.iter().flatten();
    let decided = conditions.into_iter().find(|condition| {
        matches!(condition.type_.as_str(), "FailureTarget" | "SuccessCriteriaMet") && condition.status == "True"
    });
    if let Some(decided) = decided {
        return Some(Outcome {
            success: decided.type_ == "SuccessCriteriaMet",
            reason: decided.reason.clone().unwrap_or_default(),
            message: decided.message.clone().unwrap_or_default(),
        });
    }
    if let Some(message) = &tally.failing {
        return Some(Outcome::failure("PodFailurePolicy", message));
    }
    let limit = usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(usize::MAX);
    if tally.failed > limit || restarts_exceed(spec, tally) {
        return Some(Outcome::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline_passed(spec, status, now) {
        return Some(Outcome::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    if is_indexed(spec)
        && let Some(most) = spec.max_failed_indexes
        && tally.failed_indexes.len() > usize::try_from(most).unwrap_or_default()
    {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Outcome::failure("MaxFailedIndexesExceeded", message));
    }
    if let Some(rule) = success_rule(spec, tally) {
        return Some(Outcome::success("SuccessPolicy", format!("Matched rules at index {rule}")));
    }
    completion(spec, tally)
}

/// All that was asked for is done.
fn completion(spec: &JobSpec, tally: &Tally) -> Option<Outcome> {
    let reached = || Outcome::success("CompletionsReached", "Reached expected number of succeeded pods");
    let Some(completions) = spec.completions else {
        // Without a number the pods agree among themselves: one success says there is no more work.
        return (tally.succeeded > 0 && tally.active.is_empty()).then(reached);
    };
    let completions = usize::try_from(completions).unwrap_or_default();
    if tally.succeeded >= completions {
        return Some(reached());
    }
    let all_decided = is_indexed(spec) && tally.succeeded + tally.failed_indexes.len() >= completions;
    (all_decided && !tally.failed_indexes.is_empty())
        .then(|| Outcome::failure("FailedIndexes", "Job has failed indexes"))
}

/// The first rule of the success policy that holds.
fn success_rule(spec: &JobSpec, tally: &Tally) -> Option<usize> {
    let policy = spec.success_policy.as_ref().filter(|_| is_indexed(spec))?;
    policy.rules.iter().position(|rule| {
        let done = &tally.completed_indexes;
        let wanted: Option<BTreeSet<i32>> =
            rule.succeeded_indexes.as_ref().map(|text| indexes::parse(text, spec.completions.unwrap_or_default()));
        let counted = match &wanted {
            Some(wanted) => done.intersection(wanted).count(),
            None => done.len(),
        };
        match (rule.succeeded_count, wanted) {
            (Some(count), _) => counted >= usize::try_from(count).unwrap_or_default(),
            (None, Some(wanted)) => counted == wanted.len(),
            (None, None) => false,
        }
    })
}

/// Containers that restart in place count against the limit too.
fn restarts_exceed(spec: &JobSpec, tally: &Tally) -> bool {
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let statuses = tally.active.iter().filter_map(|pod| pod.status.as_ref());
    let restarts: i32 = statuses
        .flat_map(|status| {
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
        })
        .fold(0, |sum: i32, container| sum.saturating_add(container.restart_count));
    let limit = spec.backoff_limit.unwrap_or(6);
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn deadline_passed(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> bool {
    deadline(spec, status).is_some_and(|end| end <= now) && spec.suspend != Some(true)
}

fn deadline(spec: &JobSpec, status: &JobStatus) -> Option<Timestamp> {
    let seconds = u64::try_from(spec.active_deadline_seconds?).ok()?;
    Some(clock::add(status.start_time.as_ref()?.0, Duration::from_secs(seconds)))
}

/// Brings the number of active pods to what it should be.
fn steps(spec: &JobSpec, status: &JobStatus, tally: &Tally, ended: bool, now: Timestamp) -> Plan {
    let again =
        deadline(spec, status).filter(|_| !ended).map(|end| clock::since(end, now)).filter(|left| !left.is_zero());
    if ended || spec.suspend == Some(true) {
        return Plan { delete: tally.active.iter().take(BURST).cloned().collect(), again, ..Plan::default() };
    }
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or_default();
    let wanted = match spec.completions {
        None if tally.succeeded > 0 => tally.active.len().min(parallelism),
        None => parallelism,
        Some(completions) => {
            let left = usize::try_from(completions).unwrap_or_default();
            left.saturating_sub(tally.succeeded + tally.failed_indexes.len()).min(parallelism)
        }
    };
    let mut delete = surplus(spec, tally, wanted, now);
    if !delete.is_empty() {
        delete.truncate(BURST);
        return Plan { delete, again, ..Plan::default() };
    }
    let occupied = tally.active.len() + if replaces_only_failed(spec) { tally.terminating } else { 0 };
    let missing = wanted.saturating_sub(occupied).min(BURST);
    if missing == 0 {
        return Plan { again, ..Plan::default() };
    }
    let (create, wait) =
        if is_indexed(spec) { missing_indexes(spec, tally, missing, now) } else { missing_pods(tally, missing, now) };
    Plan { create, delete, again: [again, wait].into_iter().flatten().min(), ..Plan::default() }
}

/// Pods too many: duplicates of an index and indexes that are not wanted first.
fn surplus(spec: &JobSpec, tally: &Tally, wanted: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut keep: Vec<Arc<Pod>> = tally.active.clone();
    let mut delete = Vec::new();
    if is_indexed(spec) {
        let mut seen = BTreeSet::new();
        keep.sort_by(|a, b| pods::deletion_order((b, 0), (a, 0), now));
        let (good, bad): (Vec<_>, Vec<_>) = keep.into_iter().partition(|pod| {
            index(pod).is_some_and(|index| {
                index < spec.completions.unwrap_or_default()
                    && !tally.completed_indexes.contains(&index)
                    && !tally.failed_indexes.contains(&index)
                    && seen.insert(index)
            })
        });
        (keep, delete) = (good, bad);
    }
    if keep.len() > wanted {
        keep.sort_by(|a, b| pods::deletion_order((a, 0), (b, 0), now));
        delete.extend(keep.into_iter().take(tally.active.len().saturating_sub(delete.len()) - wanted));
    }
    delete
}

fn backoff(failures: u32) -> Duration {
    let doubled = failures.checked_sub(1).and_then(|times| 2_u32.checked_pow(times));
    doubled.and_then(|factor| BACKOFF.checked_mul(factor)).map_or(MAX_BACKOFF, |delay| delay.min(MAX_BACKOFF))
}

fn missing_pods(tally: &Tally, missing: usize, now: Timestamp) -> (Vec<New>, Option<Duration>) {
    let wait = tally.last_failure.and_then(|last| remaining(last, backoff(tally.failures_in_a_row), now));
    match wait {
        Some(wait) => (Vec::new(), Some(wait)),
        None => (vec![New { index: None, failures: None }; missing], None),
    }
}

fn missing_indexes(spec: &JobSpec, tally: &Tally, missing: usize, now: Timestamp) -> (Vec<New>, Option<Duration>) {
    let busy: BTreeSet<i32> = tally.active.iter().filter_map(|pod| index(pod)).collect();
    let per_index = spec.backoff_limit_per_index.is_some();
    if !per_index && let (_, Some(wait)) = missing_pods(tally, missing, now) {
        return (Vec::new(), Some(wait));
    }
    let (mut create, mut wait) = (Vec::new(), None);
    let free = (0..spec.completions.unwrap_or_default()).filter(|index| {
        !busy.contains(index) && !tally.completed_indexes.contains(index) && !tally.failed_indexes.contains(index)
    });
    for index in free {
        if create.len() == missing {
            break;
        }
        let failures = tally.index_failures.get(&index).copied().unwrap_or_default();
        let last = tally.index_last_failure.get(&index).filter(|_| per_index && failures > 0);
        let left = last.and_then(|last| remaining(*last, backoff(u32::try_from(failures).unwrap_or(1)), now));
        match left {
            Some(left) => wait = Some(wait.map_or(left, |known: Duration| known.min(left))),
            None => create.push(New { index: Some(index), failures: per_index.then_some(failures) }),
        }
    }
    (create, wait)
}
