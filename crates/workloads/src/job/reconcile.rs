//! Observes, applies what `plan` decides, and reports.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use client::{ListParams, Patch};
use informer::{Action, Change, Echoes, EventType, Expectations, Informer, Key, Reconciler};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::orphans::Orphans;
use super::plan::{self, Observed, Plan};
use super::tally::{self, Tally, tally};
use super::{figures, pod, status};
use crate::Error;
use crate::common::claim::{self, Claims};
use crate::common::meta::MetaExt;
use crate::common::pod_control::{self, Expected};
use crate::common::{batch, selector};
use crate::context::{Context, Tools};
use crate::inputs::Inputs;
use crate::metrics;

const WORKERS: usize = 5;
/// For the case that an echo never comes.
const UNMET: Duration = Duration::from_secs(60);
/// Jobs that somebody else runs say so.
const MANAGER: &str = "kubernetes.io/job-controller";
/// What the queue of orphans is called in metrics.
const ORPHAN_QUEUE: &str = "job_orphan_pod";

pub(crate) async fn start(context: Context) {
    let (mut inputs, mut orphaned) = (context.inputs(), context.inputs_of(context.queue_named(ORPHAN_QUEUE)));
    let (pods, jobs) = (inputs.read(), inputs.read());
    let controller = Jobs {
        tools: context.tools.clone(),
        expectations: Arc::new(Expectations::new(context.tools.clock.clone())),
        pod_echoes: Echoes::new(&pods, context.tools.clock.clone()),
        job_echoes: Echoes::new(&jobs, context.tools.clock.clone()),
        jobs,
        pods,
    };
    let orphans =
        Orphans { tools: context.tools.clone(), jobs: controller.jobs.clone(), pods: controller.pods.clone() };
    claim::index_orphans(&controller.pods);
    controller.listen(&inputs);
    orphans.listen(&mut orphaned);
    futures::join!(inputs.run(controller, WORKERS), orphaned.run(orphans, WORKERS));
}

struct Jobs {
    tools: Tools,
    expectations: Arc<Expectations>,
    /// A pod that was let go must be seen so before it could be counted again.
    pod_echoes: Echoes<Pod>,
    job_echoes: Echoes<Job>,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
}

impl Jobs {
    fn listen(&self, inputs: &Inputs) {
        inputs.feed(&self.jobs, |change| {
            if let Change::Added(job) = change
                && let Some(manager) = foreign_manager(job)
            {
                metrics::JOBS_OF_OTHERS.increment(&[manager]);
            }
            [change.object().metadata.key()]
        });
        let (expectations, jobs) = (self.expectations.clone(), self.jobs.clone());
        inputs.feed(&self.pods, move |change| {
            figures::tracked(change.before().map(|pod| &**pod), change.after().map(|pod| &**pod));
            pod_control::observe::<Job>(change, &expectations);
            claim::concerned(change, &jobs, |job| selector::parse(job.spec.as_ref()?.selector.as_ref()?))
        });
    }
}

/// Who runs a Job, if somebody else does.
pub(super) fn foreign_manager(job: &Job) -> Option<&str> {
    job.spec.as_ref()?.managed_by.as_deref().filter(|manager| *manager != MANAGER)
}

impl Reconciler for Jobs {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(job) = self.jobs.get(key) else {
            self.expectations.forget(key);
            return Ok(Action::Done);
        };
        let Some(spec) = job.spec.clone() else { return Ok(Action::Done) };
        if foreign_manager(&job).is_some() {
            return Ok(Action::Done);
        }
        let begun = self.tools.clock.monotonic();
        let mut action = "reconciling";
        let answer = self.sync(key, &job, &spec, &mut action).await;
        let took = self.tools.clock.monotonic().saturating_sub(begun).as_secs_f64();
        figures::turned(figures::mode(&spec), action, answer.is_ok(), took);
        answer
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.jobs.get(key)?.metadata.uid.clone()
    }
}

impl Jobs {
    /// One turn of a Job of ours; `action` becomes what it did.
    async fn sync(
        &self,
        key: &Key,
        job: &Arc<Job>,
        spec: &JobSpec,
        action: &mut &'static str,
    ) -> Result<Action, Error> {
        if !self.expectations.met(key) || !self.pod_echoes.observed(key) {
            metrics::JOB_STALE.increment(&["", "pods"]);
            return Ok(Action::After(UNMET));
        }
        if !self.job_echoes.observed(key) {
            metrics::JOB_STALE.increment(&["batch", "jobs"]);
            return Ok(Action::After(UNMET));
        }
        let known = job.status.clone().unwrap_or_default();
        let selector = selector::parse_optional(spec.selector.as_ref());
        // A pod that comes has to be counted; one that is released goes without the finalizer, for nobody will look at it again.
        let claims = Claims::new(&self.tools.client, &**job, &selector).with_finalizer(pod::FINALIZER);
        let own = claims.claim(claim::candidates(&self.pods, &**job, &selector)).await?;
        if tally::is_finished(&known) {
            self.remove_finalizers(job, own.iter().filter(|pod| pod::is_tracked(pod))).await?;
            return Ok(Action::Done);
        }
        let now = self.tools.clock.now();
        let tally = self.confirmed(tally(spec, &known, &own, now)).await?;
        let observed = Observed { job: job.clone(), spec: spec.clone(), known, pods: own, tally };
        let plan = plan::plan(&observed, now);
        *action = figures::action(&plan);
        let (created, applied) = self.apply(job, &plan).await;
        figures::created(spec, &observed.tally, created, plan.create.len() - created);
        let deleted = if applied.is_ok() { plan.delete.len() } else { 0 };
        let status = status::status(&observed, &plan, created, deleted, now);
        self.report(&observed, &status).await?;
        // Only after the status that names them is written may they be let go.
        self.remove_finalizers(job, status::noted(&observed.pods, &status)).await?;
        applied?;
        Ok(Action::after(plan.again))
    }

    async fn report(&self, observed: &Observed, status: &JobStatus) -> Result<(), Error> {
        let Observed { job, spec, known, tally, .. } = observed;
        if job.status.as_ref() != Some(status) {
            let changed = Job { status: Some(status.clone()), ..Job::clone(job) };
            let written = self.tools.client.update_status(&changed).await?;
            self.job_echoes.wrote(&job.metadata.key(), &written);
            self.record(job, known, status);
            figures::reported(job, spec, tally, known, status);
        }
        Ok(())
    }

    /// A cache of pods may be older than the cache of Jobs, above all after a restart, and show a pod that was counted long ago as one to be counted. So
    /// the API server is asked about those, and only those.
    async fn confirmed(&self, mut tally: Tally) -> Result<Tally, Error> {
        for list in [&mut tally.newly_succeeded, &mut tally.newly_failed] {
            let mut confirmed = Vec::with_capacity(list.len());
            for pod in list.drain(..) {
                // By a list, because the controller's role may list pods and not get them.
                let field_selector = format!("metadata.name={}", pod.metadata.name());
                let only = ListParams { field_selector, ..ListParams::default() };
                let live = self.tools.client.list::<Pod>(pod.metadata.namespace(), &only).await?;
                if live.items.iter().any(|live| live.metadata.uid == pod.metadata.uid && pod::is_tracked(live)) {
                    confirmed.push(pod);
                }
            }
            *list = confirmed;
        }
        Ok(tally)
    }

    async fn apply(&self, job: &Job, plan: &Plan) -> (usize, Result<(), Error>) {
        let writes = Expected { owner: job, tools: &self.tools, expectations: &self.expectations, pods: &self.pods };
        let deleted = writes.delete(&plan.delete.iter().collect::<Vec<_>>()).await;
        let create = |at: usize| Cow::Owned(pod::new_pod(job, plan.create[at].index, plan.create[at].failures));
        let (created, answer) = writes.create(plan.create.len(), create).await;
        (created, deleted.and(answer).map_err(Error::from))
    }

    /// Takes the finalizer from pods.
    async fn remove_finalizers<'a>(&self, job: &Job, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Result<(), Error> {
        let key = job.metadata.key();
        batch::all(pods, |pod| async { self.release(&key, pod).await }).await
    }

    async fn release(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        let patch =
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [pod::FINALIZER], "uid": pod.metadata.uid}});
        match self
            .tools
            .client
            .patch::<Pod>(pod.metadata.namespace(), pod.metadata.name(), &Patch::Strategic(patch))
            .await
        {
            Ok(written) => {
                // A pod that was being deleted is gone with its last finalizer; then its end is the echo.
                if !written.metadata.is_deleting() {
                    self.pod_echoes.wrote(key, &written);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() || error.is_invalid() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn record(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let has = |status: &JobStatus, type_: &str, value: &str| {
            status.conditions.iter().flatten().any(|condition| condition.type_ == type_ && condition.status == value)
        };
        let became = |type_: &str, value: &str| has(after, type_, value) && !has(before, type_, value);
        let recorder = &self.tools.recorder;
        if became("Suspended", "True") {
            recorder.event(job, EventType::Normal, "Suspended", "Job suspended");
        }
        if became("Suspended", "False") {
            recorder.event(job, EventType::Normal, "Resumed", "Job resumed");
        }
        if became("Complete", "True") {
            recorder.event(job, EventType::Normal, "Completed", "Job completed");
        }
        let failed = after.conditions.iter().flatten().find(|condition| condition.type_ == "Failed");
        if let Some(failed) = failed.filter(|_| became("Failed", "True")) {
            let (reason, message) =
                (failed.reason.clone().unwrap_or_default(), failed.message.clone().unwrap_or_default());
            recorder.event(job, EventType::Warning, &reason, message);
        }
    }
}
