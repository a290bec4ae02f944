//! CronJob: starts Jobs by a schedule.
//!
//! `schedule` knows cron, `plan` decides, both pure. Nothing runs between two times: a turn ends with how long until the next. Upstream: cronjob
//! controller v2.

mod plan;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions, Propagation};
use informer::events::reference;
use informer::{Action, Clock, EventType, Informer, Key, Reconciler, Recorder, clock};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::Error;
use crate::common::meta::{MetaExt, controller_key};
use crate::common::pod_control::namespace_ends;
use crate::context::Context;
use crate::metrics;
use schedule::Schedule;

const WORKERS: usize = 5;
/// Times in objects are whole seconds; a little later is certainly after.
const MARGIN: Duration = Duration::from_millis(100);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = CronJobs {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        crons: context.informers.of(),
        jobs: context.informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.crons, &queue, |change| [change.object().metadata.key()]);
    informer::feed(&controller.jobs, &queue, |change| controller_key::<CronJob>(&change.object().metadata));
    futures::join!(controller.crons.synced(), controller.jobs.synced());
    context.run(controller, queue, WORKERS).await;
}

struct CronJobs {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
}

impl Reconciler for CronJobs {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(cached) = self.crons.get(key) else { return Ok(Action::Done) };
        let mut cron = CronJob::clone(&cached);
        let jobs = self.jobs.by_owner(cron.metadata.uid());
        self.note_finished(&mut cron, &jobs);
        self.clean_up(&cron, &jobs).await?;
        let action = self.turn(&mut cron).await;
        if cron.status.clone().unwrap_or_default() != cached.status.clone().unwrap_or_default() {
            self.client.update_status(&cron).await?;
        }
        action
    }
}

impl CronJobs {
    /// Brings the list of active Jobs up to date.
    fn note_finished(&self, cron: &mut CronJob, jobs: &[Arc<Job>]) {
        let mut status = cron.status.clone().unwrap_or_default();
        let mut active = status.active.take().unwrap_or_default();
        for job in jobs {
            let listed = active.iter().any(|known| known.uid == job.metadata.uid);
            match plan::finished(job) {
                None if !listed => {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {}", job.metadata.name());
                    self.recorder.event(cron, EventType::Warning, "UnexpectedJob", message);
                }
                Some(condition) if listed => {
                    active.retain(|known| known.uid != job.metadata.uid);
                    let message = format!("Saw completed job: {}, condition: {condition}", job.metadata.name());
                    self.recorder.event(cron, EventType::Normal, "SawCompletedJob", message);
                }
                _ => {}
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if plan::finished(job) == Some("Complete") && completed > status.last_successful_time {
                status.last_successful_time = completed;
            }
        }
        active.retain(|known| {
            let there = jobs.iter().any(|job| job.metadata.uid == known.uid);
            if !there {
                let message = format!("Active job went missing: {}", known.name.as_deref().unwrap_or_default());
                self.recorder.event(cron, EventType::Normal, "MissingJob", message);
            }
            there
        });
        status.active = (!active.is_empty()).then_some(active);
        cron.status = (status != CronJobStatus::default() || cron.status.is_some()).then_some(status);
    }

    async fn clean_up(&self, cron: &CronJob, jobs: &[Arc<Job>]) -> Result<(), Error> {
        for job in plan::surplus(cron, jobs) {
            self.delete(cron, job.metadata.name()).await?;
        }
        Ok(())
    }

    async fn delete(&self, cron: &CronJob, name: &str) -> Result<(), Error> {
        let options = DeleteOptions { propagation_policy: Some(Propagation::Background), ..DeleteOptions::default() };
        match self.client.delete::<Job>(cron.metadata.namespace(), name, &options).await {
            Ok(()) => self.recorder.event(cron, EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}")),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                self.recorder.event(cron, EventType::Warning, "FailedDelete", format!("Deleted job: {error}"));
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn turn(&self, cron: &mut CronJob) -> Result<Action, Error> {
        if cron.metadata.is_deleting() || cron.spec.suspend == Some(true) {
            return Ok(Action::Done);
        }
        let zone = match cron.spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => match TimeZone::get(name) {
                Ok(zone) => zone,
                Err(error) => {
                    let message = format!("invalid timeZone: {name:?}: {error}");
                    self.recorder.event(cron, EventType::Warning, "UnknownTimeZone", message);
                    return Ok(Action::Done);
                }
            },
        };
        let schedule = match Schedule::parse(&cron.spec.schedule) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", cron.spec.schedule);
                self.recorder.event(cron, EventType::Warning, "UnparseableSchedule", message);
                return Ok(Action::Done);
            }
        };
        let now = self.clock.now();
        let due = plan::due(cron, &schedule, &zone, now);
        if due.too_many {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.recorder.event(cron, EventType::Warning, "TooManyMissedTimes", message);
        }
        if let Some(at) = due.at {
            self.serve(cron, at, &zone, now).await?;
        }
        let next = schedule.next(now, &zone).map(|next| clock::since(next, now) + MARGIN);
        Ok(Action::after(next))
    }

    async fn serve(&self, cron: &mut CronJob, at: Timestamp, zone: &TimeZone, now: Timestamp) -> Result<(), Error> {
        if plan::too_late(cron, at, now) {
            let time = jiff::fmt::strtime::format("%a, %d %b %Y %H:%M:%S +0000", &at.to_zoned(TimeZone::UTC))
                .unwrap_or_default();
            let message = format!("Missed scheduled time to start a job: {time}");
            self.recorder.event(cron, EventType::Warning, "MissSchedule", message);
            return Ok(());
        }
        let active = cron.status.as_ref().and_then(|status| status.active.clone()).unwrap_or_default();
        match cron.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.recorder.event(cron, EventType::Normal, "JobAlreadyActive", message);
                return Ok(());
            }
            Some("Replace") => {
                for job in &active {
                    self.delete(cron, job.name.as_deref().unwrap_or_default()).await?;
                }
                if let Some(status) = &mut cron.status {
                    status.active = None;
                }
            }
            _ => {}
        }
        let created = match self.client.create(&plan::job_for(cron, at, zone)).await {
            Ok(job) => {
                let made = job.metadata.creation_timestamp.as_ref().map_or(now, |Time(made)| *made);
                metrics::CRON_SKEW.observe(&[], clock::since(made, at).as_secs_f64());
                Some(job)
            }
            // An earlier turn made it and was cut off before it could say so.
            Err(error) if error.is_already_exists() => {
                let job = plan::job_for(cron, at, zone);
                let live = self.client.get::<Job>(job.metadata.namespace(), job.metadata.name()).await?;
                let own = live.metadata.controller().is_some_and(|owner| owner.uid == cron.metadata.uid());
                Some(live).filter(|live| own && plan::finished(live).is_none())
            }
            Err(error) if namespace_ends(&error) => return Ok(()),
            Err(error) => {
                self.recorder.event(cron, EventType::Warning, "FailedCreate", format!("Error creating job: {error}"));
                return Err(error.into());
            }
        };
        let status = cron.status.get_or_insert_default();
        status.last_schedule_time = Some(Time(at));
        if let Some(job) = created {
            let listed = status.active.get_or_insert_default();
            if !listed.iter().any(|known| known.uid == job.metadata.uid) {
                listed.push(reference(&job));
            }
            let message = format!("Created job {}", job.metadata.name());
            self.recorder.event(cron, EventType::Normal, "SuccessfulCreate", message);
        }
        Ok(())
    }
}
