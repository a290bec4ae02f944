//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::{DeleteOptions, Propagation};
use informer::{Action, Change, EventType, Informer, Key, Reconciler, clock};
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{self, Observed, Start, Started};
use crate::Error;
use crate::common::meta::{MetaExt, controller_key};
use crate::common::pod_control::namespace_ends;
use crate::context::{Context, Tools};
use crate::inputs::changed;
use crate::metrics;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = CronJobs {
        tools: context.tools.clone(),
        crons: inputs.watch(changed),
        jobs: inputs.watch(|change: &Change<Job>| controller_key::<CronJob>(&change.object().metadata)),
    };
    inputs.run(controller, WORKERS).await;
}

struct CronJobs {
    tools: Tools,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
}

impl Reconciler for CronJobs {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(cron) = self.crons.get(key) else { return Ok(Action::Done) };
        let mut observed = self.observe(cron);
        // A Job may be in its cache before the status that names it is in ours.
        if plan::is_surprised(&observed) {
            let live: CronJob = self.tools.client.get(&key.namespace, &key.name).await?;
            observed = self.observe(Arc::new(live));
        }
        let cron = &observed.cron;
        let plan = plan::plan(&observed, self.tools.clock.now());
        for (type_, reason, message) in &plan.events {
            self.tools.recorder.event(&**cron, *type_, reason, message.clone());
        }
        for name in &plan.clean_up {
            self.delete(cron, name).await?;
        }
        let (mut status, mut applied) = (plan.status, Ok(()));
        if let Some(start) = &plan.start {
            let mut started = Started::default();
            applied = self.start(cron, start, &mut started).await;
            status = plan::after_start(status, start, &started);
        }
        // What was done is reported even if the rest failed: a time that was served is not served again.
        if status != cron.status.clone().unwrap_or_default() {
            let changed = CronJob { status: Some(status), ..CronJob::clone(cron) };
            self.tools.client.update_status(&changed).await?;
        }
        applied?;
        Ok(Action::after(plan.again))
    }
}

impl CronJobs {
    fn observe(&self, cron: Arc<CronJob>) -> Observed {
        let zone = match cron.spec.time_zone.as_deref() {
            None => Ok(TimeZone::UTC),
            Some(name) => TimeZone::get(name).map_err(|error| error.to_string()),
        };
        Observed { jobs: self.jobs.by_owner(cron.metadata.uid()), cron, zone }
    }

    async fn delete(&self, cron: &CronJob, name: &str) -> Result<(), Error> {
        let options = DeleteOptions { propagation_policy: Some(Propagation::Background), ..DeleteOptions::default() };
        match self.tools.client.delete::<Job>(cron.metadata.namespace(), name, &options).await {
            Ok(()) => {
                self.tools.recorder.event(cron, EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}"))
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                self.tools.recorder.event(cron, EventType::Warning, "FailedDelete", format!("Deleted job: {error}"));
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Serves a time that is due; `started` becomes what came of it, however far it went.
    async fn start(&self, cron: &CronJob, start: &Start, started: &mut Started) -> Result<(), Error> {
        for name in &start.replaces {
            self.delete(cron, name).await?;
        }
        started.replaced = true;
        let created = match self.tools.client.create(&start.job).await {
            Ok(job) => {
                let made =
                    job.metadata.creation_timestamp.as_ref().map_or_else(|| self.tools.clock.now(), |Time(made)| *made);
                metrics::CRON_SKEW.observe(&[], clock::since(made, start.at).as_secs_f64());
                Some(job)
            }
            // An earlier turn made it and was cut off before it could say so.
            Err(error) if error.is_already_exists() => {
                let meta = &start.job.metadata;
                let live = self.tools.client.get::<Job>(meta.namespace(), meta.name()).await?;
                let own = live.metadata.controller().is_some_and(|owner| owner.uid == cron.metadata.uid());
                Some(live).filter(|live| own && plan::finished(live).is_none())
            }
            Err(error) if namespace_ends(&error) => return Ok(()),
            Err(error) => {
                self.tools.recorder.event(
                    cron,
                    EventType::Warning,
                    "FailedCreate",
                    format!("Error creating job: {error}"),
                );
                return Err(error.into());
            }
        };
        if let Some(job) = &created {
            let message = format!("Created job {}", job.metadata.name());
            self.tools.recorder.event(cron, EventType::Normal, "SuccessfulCreate", message);
        }
        started.served = Some(created);
        Ok(())
    }
}
