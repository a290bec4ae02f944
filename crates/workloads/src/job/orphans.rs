//! Orphans: pods with the finalizer of Jobs that no Job will ever take off, because their Job is gone, is over, or released them.
//!
//! They have a queue of their own, with pods as keys: a pod without a Job is no Job's turn. `standing` decides and is pure. Upstream: the
//! orphan queue of the job controller.

use std::sync::Arc;

use client::Patch;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::Resource;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::reconcile::foreign_manager;
use super::{pod, tally};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Tools;
use crate::inputs::Inputs;

/// Whose a pod with the finalizer is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A Job will count it, or whoever else controls it knows what the finalizer is for.
    Kept,
    Orphan,
    /// It names a Job that is not known here.
    Missing(Key),
}

/// Whose a pod is; `job` is the Job of the name that its controller has.
pub(super) fn standing(pod: &Pod, job: impl FnOnce(&Key) -> Option<Arc<Job>>) -> Standing {
    let Some(owner) = pod.metadata.controller() else { return Standing::Orphan };
    if owner.kind != Job::KIND || owner.api_version != Job::API_VERSION {
        return Standing::Kept;
    }
    let key = Key::new(pod.metadata.namespace(), &owner.name);
    match job(&key).filter(|job| job.metadata.uid() == owner.uid) {
        None => Standing::Missing(key),
        Some(job) if foreign_manager(&job).is_some() => Standing::Kept,
        Some(job) if job.status.as_ref().is_some_and(tally::is_finished) => Standing::Orphan,
        Some(_) => Standing::Kept,
    }
}

pub(super) struct Orphans {
    pub(super) tools: Tools,
    pub(super) jobs: Informer<Job>,
    pub(super) pods: Informer<Pod>,
}

impl Orphans {
    pub(super) fn listen(&self, inputs: &mut Inputs) {
        inputs.fill(&self.pods);
        inputs.fill(&self.jobs);
        let jobs = self.jobs.clone();
        inputs.feed(&self.pods, move |change| {
            let tracked = change.after().filter(|pod| pod::is_tracked(pod));
            let orphan = tracked.filter(|pod| standing(pod, |key| jobs.get(key)) != Standing::Kept);
            orphan.map(|pod| pod.metadata.key())
        });
        let pods = self.pods.clone();
        inputs.feed(&self.jobs, move |change| {
            let gone = change.after().is_none();
            let left = if gone { pods.by_owner(change.object().metadata.uid()) } else { Vec::new() };
            left.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| pod.metadata.key()).collect::<Vec<_>>()
        });
    }

    /// Whether the Job that controls the pod really is gone. The cache of Jobs may be older than that of pods, and a pod that is let go is
    /// never counted.
    async fn is_gone(&self, pod: &Pod, key: &Key) -> Result<bool, Error> {
        match self.tools.client.get::<Job>(&key.namespace, &key.name).await {
            Ok(job) => Ok(standing(pod, |_| Some(Arc::new(job))) != Standing::Kept),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl Reconciler for Orphans {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| pod::is_tracked(pod)) else { return Ok(Action::Done) };
        let orphan = match standing(&pod, |key| self.jobs.get(key)) {
            Standing::Kept => false,
            Standing::Orphan => true,
            Standing::Missing(job) => self.is_gone(&pod, &job).await?,
        };
        if !orphan {
            return Ok(Action::Done);
        }
        // Only as it was seen: a Job that adopts it meanwhile has put the finalizer on for itself.
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": [pod::FINALIZER],
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
        }});
        match self.tools.client.patch::<Pod>(&key.namespace, &key.name, &Patch::Strategic(patch)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
