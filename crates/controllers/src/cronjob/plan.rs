//! What a CronJob should do now.

use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::schedule::Schedule;
use crate::common::meta::{MetaExt, controller_reference};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// So many missed times mean that something is wrong with a clock.
const TOO_MANY: usize = 100;

/// Which time is due, if any, and how many were missed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Option<Timestamp>,
    pub(super) too_many: bool,
}

/// The latest time that came and was not served.
pub(super) fn due(cron: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Due {
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let created = cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut from = last.map_or(created, |time| time.0);
    if let Some(seconds) = cron.spec.starting_deadline_seconds {
        // Times that are too late to be served are no use looking at.
        let oldest = Timestamp::from_second(now.as_second().saturating_sub(seconds)).unwrap_or(Timestamp::MIN);
        from = from.max(oldest);
    }
    let (mut at, mut count) = (None, 0);
    while let Some(next) = schedule.next(from, zone) {
        if next > now {
            break;
        }
        (at, from) = (Some(next), next);
        count += 1;
        if count > TOO_MANY {
            // From here on only the latest matters: go near the end in one step.
            let near = Timestamp::from_second(now.as_second() - 86_400).unwrap_or(from);
            from = from.max(near);
        }
        if count > 20 * TOO_MANY {
            break;
        }
    }
    Due { at, too_many: count > TOO_MANY }
}

/// Whether a time is too long ago to be served.
pub(super) fn too_late(cron: &CronJob, at: Timestamp, now: Timestamp) -> bool {
    let deadline = cron.spec.starting_deadline_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    deadline.is_some_and(|seconds| clock::add(at, Duration::from_secs(seconds)) < now)
}

/// A finished Job's final condition.
pub(super) fn finished(job: &Job) -> Option<&'static str> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut final_ = conditions.filter(|condition| condition.status == "True");
    final_.find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some("Complete"),
        "Failed" => Some("Failed"),
        _ => None,
    })
}

/// Finished Jobs beyond the history limits, the oldest first.
pub(super) fn surplus(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron.spec;
    let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut surplus = Vec::new();
    for (condition, limit) in limits {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let mut done: Vec<Arc<Job>> = jobs.iter().filter(|job| finished(job) == Some(condition)).cloned().collect();
        done.sort_by_key(|job| {
            let started = job.status.as_ref().and_then(|status| status.start_time.clone());
            (started, job.metadata.name().to_owned())
        });
        done.truncate(done.len().saturating_sub(limit));
        surplus.extend(done);
    }
    surplus
}

/// The Job for a time. Its name is the same for the same time, so that a second attempt is noticed.
pub(super) fn job_for(cron: &CronJob, at: Timestamp, zone: &TimeZone) -> Job {
    let template = &cron.spec.job_template;
    let meta = template.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let local = at.to_zoned(zone.clone());
    annotations.insert(
        SCHEDULED.to_owned(),
        jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%S%:z", &local)
            .map_or_else(|_| at.to_string(), |text| text.replace("+00:00", "Z")),
    );
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron.metadata.name(), at.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron)]),
            creation_timestamp: None,
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
