//! DaemonSet: one pod on every node that it fits.
//!
//! `plan` decides and is pure: which nodes lack a pod, which pods have no business where they are, and which old pods an update may replace
//! now. Upstream: DaemonSetsController.

mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::{Action, Change, Clock, EventType, Expectations, Informer, Key, Reconciler, WorkQueue};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::Error;
use crate::common::history::{self, Present};
use crate::common::meta::{MetaExt, controller_key};
use crate::common::pod_control::{self, Expected, PodControl};
use crate::common::template_hash::template_hash;
use crate::common::{claim, pods, selector};
use crate::context::Context;
use crate::metrics;
use plan::Plan;

const WORKERS: usize = 2;
/// For the case that an echo never comes.
const UNMET: Duration = Duration::from_secs(60);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = DaemonSets {
        client: context.client.clone(),
        control: context.pod_control(),
        clock: context.clock.clone(),
        expectations: Arc::new(Expectations::new(context.clock.clone())),
        sets: context.informers.of(),
        pods: context.informers.of(),
        nodes: context.informers.of(),
        revisions: context.informers.of(),
    };
    claim::index_orphans(&controller.pods);
    claim::index_orphans(&controller.revisions);
    let queue = context.queue();
    controller.listen(&queue);
    futures::join!(
        controller.sets.synced(),
        controller.pods.synced(),
        controller.nodes.synced(),
        controller.revisions.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct DaemonSets {
    client: Client,
    control: PodControl,
    clock: Arc<dyn Clock>,
    expectations: Arc<Expectations>,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
}

impl DaemonSets {
    fn listen(&self, queue: &WorkQueue<Key>) {
        informer::feed(&self.sets, queue, |change| [change.object().metadata.key()]);
        informer::feed(&self.revisions, queue, |change| controller_key::<DaemonSet>(&change.object().metadata));
        let (expectations, sets) = (self.expectations.clone(), self.sets.clone());
        informer::feed(&self.pods, queue, move |change| {
            pod_control::observe::<DaemonSet>(change, &expectations);
            claim::concerned(change, &sets, |set| selector::parse(&set.spec.selector))
        });
        let sets = self.sets.clone();
        informer::feed(&self.nodes, queue, move |change| {
            if let Change::Modified { old, new } = change
                && plan::same_to_daemons(old, new)
            {
                return Vec::new();
            }
            sets.list().iter().map(|set| set.metadata.key()).collect()
        });
    }
}

impl Reconciler for DaemonSets {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(set) = self.sets.get(key) else {
            self.expectations.forget(key);
            return Ok(Action::Done);
        };
        if set.spec.selector == LabelSelector::default() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.recorder.event(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::Done);
        }
        if set.metadata.is_deleting() {
            return Ok(Action::Done);
        }
        if !self.expectations.met(key) {
            metrics::DAEMON_STALE.increment(&["", "pods"]);
            return Ok(Action::After(UNMET));
        }
        let Some(selector) = selector::parse(&set.spec.selector) else { return Ok(Action::Done) };
        let known = claim::claim(&self.client, &*set, &selector, claim::candidates(&self.revisions, &*set)).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&set.spec.template, collisions);
        let present = history::present(&self.client, &*set, &set.spec.template, &hash, &known).await?;
        let Present::Revision(revision) = present else { return self.note_collision(&set).await };
        let hash = revision.metadata.label(history::HASH_LABEL).unwrap_or_default().to_owned();
        let pods = claim::claim(&self.client, &*set, &selector, claim::candidates(&self.pods, &*set)).await?;
        let nodes = self.nodes.list();
        let now = self.clock.now();
        let plan = plan::plan(&set, &nodes, &pods, &hash, now);
        let applied = self.apply(&set, &plan, &hash).await;
        let status = status::status(&set, &nodes, &pods, &hash, now);
        if set.status.as_ref() != Some(&status) {
            let changed = DaemonSet { status: Some(status.clone()), ..DaemonSet::clone(&set) };
            self.client.update_status(&changed).await?;
        }
        applied?;
        let in_use = |candidate: &ControllerRevision| {
            let label = candidate.metadata.label(history::HASH_LABEL);
            candidate.metadata.name == revision.metadata.name
                || pods.iter().any(|pod| pod.metadata.label(history::HASH_LABEL) == label)
        };
        history::truncate(&self.client, &known, set.spec.revision_history_limit, in_use).await?;
        let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
        let next = pods.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min();
        Ok(Action::after(next))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata.uid.clone()
    }
}

impl DaemonSets {
    async fn note_collision(&self, set: &DaemonSet) -> Result<Action, Error> {
        let mut changed = set.clone();
        let status = changed.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        self.client.update_status(&changed).await?;
        Ok(Action::Done)
    }

    async fn apply(&self, set: &DaemonSet, plan: &Plan, hash: &str) -> Result<(), Error> {
        let recorder = &self.control.recorder;
        for pod in &plan.ended {
            let (namespace, name, node) =
                (pod.metadata.namespace(), pod.metadata.name(), pods::node_name(pod).unwrap_or_default());
            if pods::phase(pod) == "Failed" {
                let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                recorder.event(set, EventType::Warning, "FailedDaemonPod", message);
            } else {
                let message =
                    format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
                recorder.event(set, EventType::Normal, "SucceededDaemonPod", message);
            }
        }
        let delete: Vec<&Arc<Pod>> = plan.ended.iter().chain(&plan.delete).collect();
        let writes =
            Expected { owner: set, control: &self.control, expectations: &self.expectations, pods: &self.pods };
        let create = |at: usize| Cow::Owned(plan::pod_for(set, &plan.create[at], hash));
        let (_, answer) = writes.create(plan.create.len(), create).await;
        let deleted = writes.delete(&delete).await;
        Ok(answer.and(deleted)?)
    }
}
