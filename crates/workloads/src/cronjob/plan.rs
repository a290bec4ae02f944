//! What a CronJob should do now.

use std::sync::Arc;
use std::time::Duration;

use informer::events::reference;
use informer::{EventType, clock};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use rules::cron::Schedule;

use crate::common::meta::{MetaExt, controller_reference};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// So many missed times mean that something is wrong with a clock.
const TOO_MANY: usize = 100;
/// Times in objects are whole seconds; a little later is certainly after.
const MARGIN: Duration = Duration::from_millis(100);

/// What a turn sees.
pub(super) struct Observed {
    pub(super) cron: Arc<CronJob>,
    /// Its own, whoever made them.
    pub(super) jobs: Vec<Arc<Job>>,
    /// The zone that it names, or why there is no such zone.
    pub(super) zone: Result<TimeZone, String>,
}

/// An event: its type, reason and message.
pub(super) type Message = (EventType, &'static str, String);

/// What a turn does.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) events: Vec<Message>,
    /// Names of finished Jobs that are too many.
    pub(super) clean_up: Vec<String>,
    pub(super) start: Option<Start>,
    /// What is to be reported of the Jobs that were there.
    pub(super) status: CronJobStatus,
    pub(super) again: Option<Duration>,
}

/// A time that is due.
pub(super) struct Start {
    pub(super) at: Timestamp,
    pub(super) job: Job,
    /// Names of Jobs that have to go before.
    pub(super) replaces: Vec<String>,
}

/// What came of a start.
#[derive(Default)]
pub(super) struct Started {
    /// Whether those that had to go are gone.
    pub(super) replaced: bool,
    /// Whether the time is served, and by which Job, unless that has ended meanwhile.
    pub(super) served: Option<Option<Job>>,
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { cron, jobs, zone } = observed;
    let (status, mut events) = seen(cron, jobs);
    let mut plan = Plan { status, ..Plan::default() };
    plan.clean_up = surplus(cron, jobs).iter().map(|job| job.metadata.name().to_owned()).collect();
    if cron.metadata.is_deleting() || cron.spec.suspend == Some(true) {
        return Plan { events, ..plan };
    }
    match (zone, Schedule::parse(&cron.spec.schedule)) {
        (Err(error), _) => {
            let name = cron.spec.time_zone.as_deref().unwrap_or_default();
            let message = format!("invalid timeZone: {name:?}: {error}");
            events.push((EventType::Warning, "UnknownTimeZone", message));
        }
        (_, Err(error)) => {
            let message = format!("unparseable schedule: {:?} : {error}", cron.spec.schedule);
            events.push((EventType::Warning, "UnparseableSchedule", message));
        }
        (Ok(zone), Ok(schedule)) => {
            let due = due(cron, &schedule, zone, now);
            if due.too_many {
                let message =
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                events.push((EventType::Warning, "TooManyMissedTimes", message.to_owned()));
            }
            match due.at.map(|at| start(cron, &plan.status, at, zone, now)) {
                Some(Ok(start)) => plan.start = Some(start),
                Some(Err(event)) => events.push(event),
                None => {}
            }
            plan.again = schedule.next(now, zone).map(|next| clock::since(next, now) + MARGIN);
            if plan.again.is_none() {
                let why = "time difference between two schedules is less than 1 second";
                let message = format!("invalid schedule: {} : {why}", cron.spec.schedule);
                events.push((EventType::Warning, "InvalidSchedule", message));
            }
        }
    }
    Plan { events, ..plan }
}

/// Whether a Job runs that the status does not name.
pub(super) fn is_surprised(observed: &Observed) -> bool {
    let active = observed.cron.status.as_ref().and_then(|status| status.active.as_deref()).unwrap_or_default();
    observed.jobs.iter().any(|job| finished(job).is_none() && !is_listed(active, job))
}

fn is_listed(active: &[ObjectReference], job: &Job) -> bool {
    active.iter().any(|known| known.uid == job.metadata.uid)
}

/// The status with the list of active Jobs brought up to date, and what is worth an event.
fn seen(cron: &CronJob, jobs: &[Arc<Job>]) -> (CronJobStatus, Vec<Message>) {
    let mut status = cron.status.clone().unwrap_or_default();
    let mut events = Vec::new();
    let mut active = status.active.take().unwrap_or_default();
    for job in jobs {
        let listed = is_listed(&active, job);
        match finished(job) {
            None if !listed => {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {}", job.metadata.name());
                events.push((EventType::Warning, "UnexpectedJob", message));
            }
            Some(condition) if listed => {
                active.retain(|known| known.uid != job.metadata.uid);
                let message = format!("Saw completed job: {}, condition: {condition}", job.metadata.name());
                events.push((EventType::Normal, "SawCompletedJob", message));
            }
            _ => {}
        }
        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
        if finished(job) == Some("Complete") && completed > status.last_successful_time {
            status.last_successful_time = completed;
        }
    }
    let is_there = |known: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == known.uid);
    for missing in active.iter().filter(|known| !is_there(known)) {
        let message = format!("Active job went missing: {}", missing.name.as_deref().unwrap_or_default());
        events.push((EventType::Normal, "MissingJob", message));
    }
    active.retain(is_there);
    status.active = (!active.is_empty()).then_some(active);
    (status, events)
}

/// How a time that is due is served, or why it is not.
fn start(
    cron: &CronJob,
    status: &CronJobStatus,
    at: Timestamp,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Start, Message> {
    if too_late(cron, at, now) {
        let time =
            jiff::fmt::strtime::format("%a, %d %b %Y %H:%M:%S +0000", &at.to_zoned(TimeZone::UTC)).unwrap_or_default();
        return Err((EventType::Warning, "MissSchedule", format!("Missed scheduled time to start a job: {time}")));
    }
    let active = status.active.as_deref().unwrap_or_default();
    let replaces = match cron.spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return Err((EventType::Normal, "JobAlreadyActive", message.to_owned()));
        }
        Some("Replace") => active.iter().map(|job| job.name.clone().unwrap_or_default()).collect(),
        _ => Vec::new(),
    };
    Ok(Start { at, job: job_for(cron, at, zone), replaces })
}

/// What is reported after a start.
pub(super) fn after_start(mut status: CronJobStatus, start: &Start, started: &Started) -> CronJobStatus {
    if started.replaced && !start.replaces.is_empty() {
        status.active = None;
    }
    if let Some(job) = &started.served {
        status.last_schedule_time = Some(Time(start.at));
        let listed = status.active.get_or_insert_default();
        if let Some(job) = job.as_ref().filter(|job| !is_listed(listed, job)) {
            listed.push(reference(job));
        }
        status.active = status.active.filter(|listed| !listed.is_empty());
    }
    status
}

/// Which time is due, if any, and how many were missed.
struct Due {
    at: Option<Timestamp>,
    too_many: bool,
}

/// The latest time that came and was not served.
fn due(cron: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Due {
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
fn too_late(cron: &CronJob, at: Timestamp, now: Timestamp) -> bool {
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
fn surplus(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
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
fn job_for(cron: &CronJob, at: Timestamp, zone: &TimeZone) -> Job {
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
