//! Observes, applies what `plan` decides, and reports.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use informer::{Action, Change, EventType, Expectations, Informer, Key, Reconciler};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::plan::{self, Observed, Plan};
use crate::Error;
use crate::common::history;
use crate::common::meta::{MetaExt, controller_key};
use crate::common::pod_control::{self, Expected};
use crate::common::template_hash::template_hash;
use crate::common::{claim, pods, selector};
use crate::context::{Context, Tools};
use crate::inputs::{Inputs, changed};
use crate::metrics;

const WORKERS: usize = 2;
/// For the case that an echo never comes.
const UNMET: Duration = Duration::from_secs(60);

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = DaemonSets {
        tools: context.tools.clone(),
        expectations: Arc::new(Expectations::new(context.tools.clock.clone())),
        sets: inputs.read(),
        pods: inputs.read(),
        nodes: inputs.read(),
        revisions: inputs.read(),
    };
    claim::index_orphans(&controller.pods);
    claim::index_orphans(&controller.revisions);
    controller.listen(&inputs);
    inputs.run(controller, WORKERS).await;
}

struct DaemonSets {
    tools: Tools,
    expectations: Arc<Expectations>,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
}

impl DaemonSets {
    fn listen(&self, inputs: &Inputs) {
        inputs.feed(&self.sets, changed);
        inputs.feed(&self.revisions, |change| controller_key::<DaemonSet>(&change.object().metadata));
        let (expectations, sets) = (self.expectations.clone(), self.sets.clone());
        inputs.feed(&self.pods, move |change| {
            pod_control::observe::<DaemonSet>(change, &expectations);
            claim::concerned(change, &sets, |set| selector::parse(&set.spec.selector))
        });
        let sets = self.sets.clone();
        inputs.feed(&self.nodes, move |change| {
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
            self.tools.recorder.event(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::Done);
        }
        if set.metadata.is_deleting() {
            return Ok(Action::Done);
        }
        if !self.expectations.met(key) {
            metrics::DAEMON_STALE.increment(&["", "pods"]);
            return Ok(Action::After(UNMET));
        }
        let Some(observed) = self.observe(set).await? else { return Ok(Action::Done) };
        let set = &observed.set;
        let plan = plan::plan(&observed, self.tools.clock.now());
        let applied = self.apply(set, &plan).await;
        // Status is written even when `apply` failed: that is when users look.
        if set.status.as_ref() != Some(&plan.status) {
            let changed = DaemonSet { status: Some(plan.status.clone()), ..DaemonSet::clone(set) };
            self.tools.client.update_status(&changed).await?;
        }
        applied?;
        history::delete(&self.tools.client, &plan.surplus).await?;
        Ok(Action::after(plan.again))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata.uid.clone()
    }
}

impl DaemonSets {
    async fn observe(&self, set: Arc<DaemonSet>) -> Result<Option<Observed>, Error> {
        let Some(selector) = selector::parse(&set.spec.selector) else { return Ok(None) };
        let revisions =
            claim::claim(&self.tools.client, &*set, &selector, claim::candidates(&self.revisions, &*set, &selector))
                .await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&set.spec.template, collisions);
        let revision = history::present(&self.tools.client, &*set, &set.spec.template, &hash, &revisions).await?;
        let pods =
            claim::claim(&self.tools.client, &*set, &selector, claim::candidates(&self.pods, &*set, &selector)).await?;
        Ok(Some(Observed { nodes: self.nodes.list(), pods, revisions, revision, set }))
    }

    async fn apply(&self, set: &DaemonSet, plan: &Plan) -> Result<(), Error> {
        let recorder = &self.tools.recorder;
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
        let writes = Expected { owner: set, tools: &self.tools, expectations: &self.expectations, pods: &self.pods };
        let create = |at: usize| Cow::Owned(plan::pod_for(set, &plan.create[at], &plan.hash));
        let (_, answer) = writes.create(plan.create.len(), create).await;
        let deleted = writes.delete(&delete).await;
        Ok(answer.and(deleted)?)
    }
}
