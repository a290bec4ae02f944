//! Doing what scheduling decided: binding, evicting, patching, recording; many at once, and reporting how it went.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use rustc_hash::FxHasher;
use tokio::sync::{Semaphore, mpsc};

use crate::api::{Api, ApiFailure, PodEvent};
use crate::inbox::{Inbox, Message};
use crate::pod::PodInfo;
use crate::queue::Nomination;
use crate::scheduler::{BindJob, Effect, PreemptJob};
use crate::status::{self, Condition};

/// Bindings under way at the same time.
const MAX_BINDINGS: usize = 512;
/// Status patches go through lanes, one at a time in each, so that those of one pod keep their order.
const LANES: usize = 16;
/// Patches waiting in a lane.
const LANE_CAPACITY: usize = 1024;

/// Does effects.
pub struct Doer {
    api: Arc<dyn Api>,
    inbox: Arc<Inbox>,
    bindings: Arc<Semaphore>,
    lanes: Vec<mpsc::Sender<(Arc<Pod>, serde_json::Value)>>,
}

impl Doer {
    /// Reports to this inbox. Must be made within a runtime.
    pub fn new(api: Arc<dyn Api>, inbox: Arc<Inbox>) -> Self {
        let lane = || {
            let (sender, mut receiver) = mpsc::channel::<(Arc<Pod>, serde_json::Value)>(LANE_CAPACITY);
            let api = api.clone();
            tokio::spawn(async move {
                while let Some((pod, patch)) = receiver.recv().await {
                    if let Err(error) = api.patch_pod_status(&pod, patch).await
                        && !error.is_not_found()
                    {
                        tracing::warn!(pod = name(&pod), %error, "cannot update the status of a pod");
                    }
                }
            });
            sender
        };
        let lanes = (0..LANES).map(|_| lane()).collect();
        Self { api, inbox, bindings: Arc::new(Semaphore::new(MAX_BINDINGS)), lanes }
    }

    /// Does effects as they come until there are no more.
    pub async fn run(self, mut effects: mpsc::Receiver<Effect>) {
        while let Some(effect) = effects.recv().await {
            match effect {
                Effect::Bind(job) => {
                    let Ok(permit) = self.bindings.clone().acquire_owned().await else { return };
                    let (api, inbox) = (self.api.clone(), self.inbox.clone());
                    tokio::spawn(async move {
                        bind(api, &inbox, job).await;
                        drop(permit);
                    });
                }
                Effect::Preempt(job) => {
                    let (api, inbox) = (self.api.clone(), self.inbox.clone());
                    tokio::spawn(async move {
                        let failed = preempt(&api, &job).await.is_err();
                        inbox.push(Message::Preempted(job.preemptor, failed));
                    });
                }
                Effect::PatchStatus { pod, patch } => {
                    let mut hasher = FxHasher::default();
                    pod.metadata.uid.hash(&mut hasher);
                    let lane = hasher.finish() as usize % LANES;
                    if self.lanes[lane].send((pod, patch)).await.is_err() {
                        return;
                    }
                }
                Effect::Record(event) => self.api.record(event),
            }
        }
    }
}

async fn bind(api: Arc<dyn Api>, inbox: &Inbox, job: BindJob) {
    let uid = job.pod.uid().clone();
    let timer = hops::start(hops::Hop::Bind, "create");
    for work in job.works {
        if let Err(error) = work(api.clone()).await {
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
        if let Some(patch) = status::patch(&displaced.pod, None, &clear, jiff::Timestamp::now())
            && let Err(error) = api.patch_pod_status(&displaced.pod, patch).await
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
    if let Some(patch) = status::patch(&victim.pod, Some(condition), &Nomination::Keep, jiff::Timestamp::now())
        && gone(api.patch_pod_status(&victim.pod, patch).await)?
    {
        return Ok(());
    }
    if gone(api.delete_pod(&victim.pod).await)? {
        return Ok(());
    }
    api.record(PodEvent {
        pod: victim.pod.clone(),
        related: Some(job.preemptor.pod.clone()),
        warning: false,
        reason: "Preempted",
        action: "Preempting",
        note: format!("Preempted by pod {} on node {}", job.preemptor.uid(), job.node),
    });
    Ok(())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
