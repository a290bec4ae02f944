//! Doing what scheduling decided: binding, evicting, patching, recording; many at once, and reporting how it went.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use informer::Clock;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::framework::api::{Api, ApiFailure, PodEvent};
use crate::live::inbox::{Inbox, Message};
use crate::live::statuses::{self, Statuses};
use crate::metrics::{Metrics, Status};
use crate::model::pod::PodInfo;
use crate::queue::Nomination;
use crate::scheduling::status::{self, Condition};
use crate::scheduling::{BindJob, Effect, PreemptJob};

/// Bindings under way at the same time.
const MAX_BINDINGS: usize = 512;

pub struct Doer {
    api: Arc<dyn Api>,
    inbox: Arc<Inbox>,
    bindings: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    statuses: Statuses,
}

impl Doer {
    /// Reports to this inbox. Must be made within a runtime.
    pub fn new(api: Arc<dyn Api>, inbox: Arc<Inbox>, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Self {
        let statuses = Statuses::new(&api);
        Self { api, inbox, bindings: Arc::new(Semaphore::new(MAX_BINDINGS)), metrics, clock, statuses }
    }

    /// Does effects as they come until there are no more.
    pub async fn run(self, mut effects: mpsc::Receiver<Effect>) {
        // What is under way ends with this.
        let mut under_way = JoinSet::new();
        while let Some(effect) = effects.recv().await {
            while under_way.try_join_next().is_some() {}
            match effect {
                Effect::Bind(job) => {
                    let Ok(permit) = self.bindings.clone().acquire_owned().await else { return };
                    let (api, inbox) = (self.api.clone(), self.inbox.clone());
                    let (metrics, clock) = (self.metrics.clone(), self.clock.clone());
                    let withdrawn = self.statuses.withdraw(job.pod.uid());
                    under_way.spawn(async move {
                        metrics.binding(1);
                        // What is to be done before takes its time: others are told which node is kept.
                        if let Some(patch) = withdrawn.nomination().await
                            && job.works.len() > 1
                        {
                            statuses::send(&*api, &job.pod, patch).await;
                        }
                        bind(api, &inbox, job, &metrics, &*clock).await;
                        metrics.binding(-1);
                        drop(permit);
                    });
                }
                Effect::Preempt(job) => {
                    let (api, inbox) = (self.api.clone(), self.inbox.clone());
                    let (metrics, clock) = (self.metrics.clone(), self.clock.clone());
                    under_way.spawn(async move {
                        let began = clock.monotonic();
                        let failed = preempt(&api, &job).await.is_err();
                        metrics.evictions(!failed, since(&*clock, began));
                        inbox.push(Message::Preempted(job.preemptor, failed));
                    });
                }
                Effect::PatchStatus { pod, patch } => self.statuses.patch(pod, patch),
                Effect::Record(event) => self.api.record(event),
            }
        }
    }
}

fn since(clock: &dyn Clock, began: Duration) -> f64 {
    clock.monotonic().saturating_sub(began).as_secs_f64()
}

async fn bind(api: Arc<dyn Api>, inbox: &Inbox, job: BindJob, metrics: &Metrics, clock: &dyn Clock) {
    let uid = job.pod.uid().clone();
    let timer = hops::stage(hops::Stage::Bind, "create").after(hops::export::cause_of(&uid));
    for (point, plugin, work) in job.works {
        let began = clock.monotonic();
        let outcome = hops::scope(timer.context(), work(api.clone())).await;
        let (status, took) = (Status::of(&outcome), since(clock, began));
        metrics.plugin(plugin, point, status, took);
        metrics.point(job.pod.scheduler_name(), point, status, took);
        if let Err(error) = outcome {
            tracing::debug!(pod = job.pod.name(), node = &*job.node, %error, "cannot bind a pod");
            inbox.push(Message::BindFailed(uid, error));
            return;
        }
    }
    timer.end(&uid, "", 0);
    inbox.push(Message::Bound(uid));
}

async fn preempt(api: &Arc<dyn Api>, job: &PreemptJob) -> Result<(), ApiFailure> {
    let mut outcome = Ok(());
    for displaced in &job.displaced {
        let clear = Nomination::Set(String::new());
        if let Some(patch) = status::patch(displaced, None, &clear, jiff::Timestamp::now())
            && let Err(error) = api.patch_pod_status(displaced, patch).await
        {
            tracing::warn!(pod = displaced.name(), %error, "cannot clear the nomination of a pod");
            outcome = Err(error);
        }
    }
    let Some((last, others)) = job.victims.split_last() else { return outcome };
    // The last victim goes last: its going wakes the pod, which must not be tried while others are still there.
    for result in join_all(others.iter().map(|victim| evict(api, job, victim))).await {
        result?;
    }
    evict(api, job, last).await?;
    outcome
}

async fn evict(api: &Arc<dyn Api>, job: &PreemptJob, victim: &Arc<PodInfo>) -> Result<(), ApiFailure> {
    let message = format!("{}: preempting to accommodate a higher priority pod", job.preemptor.scheduler_name());
    let condition =
        Condition { kind: "DisruptionTarget", status: "True", reason: "PreemptionByScheduler", message: &message };
    let gone = |result: Result<(), ApiFailure>| match result {
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    };
    if let Some(patch) = status::patch(victim, Some(condition), &Nomination::Keep, jiff::Timestamp::now())
        && gone(api.patch_pod_status(victim, patch).await)?
    {
        return Ok(());
    }
    if gone(api.delete_pod(victim).await)? {
        return Ok(());
    }
    api.record(PodEvent {
        pod: victim.clone(),
        related: Some(job.preemptor.clone()),
        warning: false,
        reason: "Preempted",
        action: "Preempting",
        note: format!("Preempted by pod {} on node {}", job.preemptor.uid(), job.node),
    });
    Ok(())
}
