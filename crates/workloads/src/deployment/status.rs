//! What is reported about a Deployment: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::sizes::{available, max_unavailable, size, total, wanted};
use crate::common::meta::MetaExt;
use crate::common::pods::seconds;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const COMPLETE: &str = "NewReplicaSetAvailable";

/// The deadline in seconds; the largest number means none.
fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

/// Notes that the generation was seen, and nothing else.
pub(super) fn note_observed(deployment: &mut Deployment) {
    let generation = deployment.metadata.generation;
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed < generation {
        deployment.status.get_or_insert_default().observed_generation = generation;
    }
}

/// Notes that a Deployment was paused or resumed, so that a pause does not count as lack of progress.
pub(super) fn note_pause(deployment: &mut Deployment, paused: bool, now: Timestamp) {
    let known = deployment.status.clone().unwrap_or_default();
    let reason = find(&known, PROGRESSING).and_then(|condition| condition.reason.as_deref());
    let (reason, message) = match (reason, paused) {
        (Some(TIMED_OUT), _) | (Some(PAUSED), true) => return,
        (_, true) => (PAUSED, "Deployment is paused"),
        (Some(PAUSED), false) => ("DeploymentResumed", "Deployment is resumed"),
        (_, false) => return,
    };
    note_progress(deployment, "Unknown", reason, message.to_owned(), now);
}

/// Notes which ReplicaSet is the new one, where nothing is known of its progress.
pub(super) fn note_found(deployment: &mut Deployment, set: &str, now: Timestamp) {
    let known = deployment.status.clone().unwrap_or_default();
    if find(&known, PROGRESSING).is_none() {
        note_progress(deployment, "True", "FoundNewReplicaSet", format!("Found new replica set {set:?}"), now);
    }
}

pub(super) fn note_created(deployment: &mut Deployment, set: &str, now: Timestamp) {
    note_progress(deployment, "True", "NewReplicaSetCreated", format!("Created new replica set {set:?}"), now);
}

pub(super) fn note_not_created(deployment: &mut Deployment, message: String, now: Timestamp) {
    note_progress(deployment, "False", "ReplicaSetCreateError", message, now);
}

/// Another template has the same hash: the next attempt is made with another one.
pub(super) fn note_collision(deployment: &mut Deployment) {
    let status = deployment.status.get_or_insert_default();
    status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
}

/// Without a deadline nobody looks at progress.
fn note_progress(deployment: &mut Deployment, status: &str, reason: &str, message: String, now: Timestamp) {
    if progress_deadline(deployment).is_some() {
        let condition = condition(PROGRESSING, status, reason, message, now);
        set(deployment.status.get_or_insert_default(), condition);
    }
}

/// A condition with both times set to now.
fn condition(type_: &str, status: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(type_.to_owned()),
        status: Some(status.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

pub(super) fn find<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(type_))
}

/// Sets a condition unless one with the same status and reason is there; the time of transition changes only with the status.
fn set(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    let type_ = new.type_.clone().unwrap_or_default();
    if let Some(known) = find(status, &type_)
        && known.status == new.status
    {
        if known.reason == new.reason {
            return;
        }
        new.last_transition_time.clone_from(&known.last_transition_time);
    }
    remove(status, &type_);
    status.conditions.get_or_insert_default().push(new);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    let Some(conditions) = &mut status.conditions else { return };
    conditions.retain(|condition| condition.type_.as_deref() != Some(type_));
    if conditions.is_empty() {
        status.conditions = None;
    }
}

pub(super) fn basic(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let all = || old.iter().chain(new);
    let available = total(all().map(|set| available(set)));
    let actual = |set: &Arc<ReplicaSet>| set.status.as_ref().map_or(0, |status| status.replicas);
    let ready =
        |set: &Arc<ReplicaSet>| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let asked = total(all().map(|set| size(set)));
    let known = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(total(all().map(actual))),
        updated_replicas: nonzero(new.map_or(0, actual)),
        ready_replicas: nonzero(total(all().map(ready))),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((asked - available).max(0)),
        terminating_replicas: terminating(all()),
        collision_count: known.collision_count,
        conditions: known.conditions,
    };
    let (value, reason, message) = if available >= wanted(deployment) - max_unavailable(deployment) {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, condition(AVAILABLE, value, reason, message.to_owned(), now));
    status
}

/// The sum, unless a ReplicaSet that was looked at does not say.
fn terminating<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> Option<i32> {
    let mut sum = 0_i32;
    for set in sets {
        let status = set.status.clone().unwrap_or_default();
        match status.terminating_replicas {
            Some(count) => sum = total([sum, count]),
            None if status.observed_generation.unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// All wanted replicas are new and available, and no old ones are left.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = wanted(deployment);
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|count| count.unwrap_or_default() == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

/// Something moved since the last report.
fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or_default();
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// The last progress is longer ago than the deadline allows.
fn has_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let (Some(deadline), Some(condition)) = (progress_deadline(deployment), find(status, PROGRESSING)) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => {
            let last = condition.last_update_time.as_ref().map_or(now, |time| time.0);
            clock::add(last, seconds(deadline)) < now
        }
    }
}

/// The status during a rollout: [`basic`], and how the rollout fares.
pub(super) fn rollout(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = basic(deployment, new, old, now);
    let known = deployment.status.clone().unwrap_or_default();
    if progress_deadline(deployment).is_none() {
        remove(&mut status, PROGRESSING);
    } else {
        let current = find(&known, PROGRESSING);
        let was_complete = status.replicas == status.updated_replicas
            && current.is_some_and(|condition| condition.reason.as_deref() == Some(COMPLETE));
        if !was_complete {
            progress(deployment, new, &known, &mut status, now);
        }
    }
    let failures = |set: &Arc<ReplicaSet>| {
        let conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_.as_deref() == Some(FAILURE))
    };
    match new.into_iter().chain(old).find_map(failures) {
        Some(failure) => set(
            &mut status,
            DeploymentCondition {
                type_: failure.type_,
                status: failure.status,
                reason: failure.reason,
                message: failure.message,
                last_update_time: failure.last_transition_time.clone(),
                last_transition_time: failure.last_transition_time,
            },
        ),
        None => remove(&mut status, FAILURE),
    }
    status
}

fn progress(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    known: &DeploymentStatus,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let subject = match new {
        Some(set) => format!("ReplicaSet {:?}", set.metadata.name()),
        None => format!("Deployment {:?}", deployment.metadata.name()),
    };
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set(status, condition(PROGRESSING, "True", COMPLETE, message, now));
    } else if is_progressing(known, status) {
        let mut new = condition(PROGRESSING, "True", "ReplicaSetUpdated", format!("{subject} is progressing."), now);
        // Here the time of the update changes even if nothing else does: it is what the deadline is counted from.
        if let Some(current) = find(known, PROGRESSING).filter(|current| current.status.as_deref() == Some("True")) {
            new.last_transition_time.clone_from(&current.last_transition_time);
        }
        remove(status, PROGRESSING);
        set(status, new);
    } else if has_timed_out(deployment, status, now) {
        let message = format!("{subject} has timed out progressing.");
        set(status, condition(PROGRESSING, "False", TIMED_OUT, message, now));
    }
}

/// When to see whether the rollout is stuck; `None` if it is complete, has timed out or has no deadline.
pub(super) fn next_check(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let deadline = progress_deadline(deployment)?;
    let condition = find(status, PROGRESSING)?;
    if is_complete(deployment, status) || condition.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let due = clock::add(condition.last_update_time.as_ref()?.0, seconds(deadline));
    // A second more, because times in objects are whole seconds.
    Some(clock::since(due, now) + Duration::from_secs(1))
}

fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
