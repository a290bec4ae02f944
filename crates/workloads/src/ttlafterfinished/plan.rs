//! When a Job goes that has ended.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::common::meta::MetaExt;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    Wait(Duration),
    /// It should have gone then.
    Delete(Timestamp),
}

pub(super) fn plan(job: &Job, now: Timestamp) -> Plan {
    let Some(end) = expires(job) else { return Plan::Keep };
    let left = clock::since(end, now);
    if left.is_zero() { Plan::Delete(end) } else { Plan::Wait(left) }
}

/// When a finished Job expires; `None` for those that run, keep themselves, or are going already.
pub(super) fn expires(job: &Job) -> Option<Timestamp> {
    let seconds = u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?;
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    let mut ended = conditions
        .filter(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True");
    let at = ended.next()?.last_transition_time.as_ref()?.0;
    (!job.metadata.is_deleting()).then(|| clock::add(at, Duration::from_secs(seconds)))
}
