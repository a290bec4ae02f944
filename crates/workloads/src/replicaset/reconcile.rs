//! Observes, applies what `plan` decides, and reports.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use informer::{Action, Change, Expectations, Informer, Key, Reconciler};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};

use super::figures;
use super::kinds::Replicated;
use super::plan::{Plan, plan};
use super::status::{self, Observed};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::{self, Expected, from_template};
use crate::common::{claim, pods, selector};
use crate::context::{Context, Tools};
use crate::inputs::Inputs;
use crate::metrics;

/// Keys worked on at the same time.
const WORKERS: usize = 5;
/// For the case that an echo never comes.
const UNMET: Duration = Duration::from_secs(60);

/// Runs the controller of ReplicaSets.
pub(crate) async fn start(context: Context) {
    run::<ReplicaSet>(context).await;
}

/// Runs the controller of ReplicationControllers.
pub(crate) async fn start_replication_controllers(context: Context) {
    run::<ReplicationController>(context).await;
}

async fn run<K: Replicated>(context: Context) {
    let mut inputs = context.inputs();
    let (sets, pods) = (inputs.read::<K>(), inputs.read::<Pod>());
    claim::index_orphans(&pods);
    let controller = Replicas {
        tools: context.tools.clone(),
        expectations: Arc::new(Expectations::new(context.tools.clock.clone())),
        sets,
        pods,
    };
    controller.listen(&inputs);
    inputs.run(controller, WORKERS).await;
}

struct Replicas<K> {
    tools: Tools,
    expectations: Arc<Expectations>,
    sets: Informer<K>,
    pods: Informer<Pod>,
}

impl<K: Replicated> Replicas<K> {
    fn listen(&self, inputs: &Inputs) {
        let expectations = self.expectations.clone();
        inputs.feed(&self.sets, move |change| {
            if let Change::Deleted(set) = change {
                expectations.forget(&set.metadata().key());
            }
            [change.object().metadata().key()]
        });
        let (expectations, sets) = (self.expectations.clone(), self.sets.clone());
        inputs.feed(&self.pods, move |change| {
            pod_control::observe::<K>(change, &expectations);
            claim::concerned(change, &sets, K::selector)
        });
    }

    async fn apply(&self, set: &K, plan: &Plan, active: &[Arc<Pod>]) -> Result<(), client::Error> {
        plan.say(active.len());
        let (pod, writes) = (from_template(&set.template(), set), self.writes(set));
        writes.create(plan.create, |_| Cow::Borrowed(&pod)).await.1?;
        figures::deleted(&plan.delete, active, self.tools.clock.now());
        writes.delete(&plan.delete.iter().collect::<Vec<_>>()).await
    }

    fn writes<'a>(&'a self, owner: &'a K) -> Expected<'a, K> {
        Expected { owner, tools: &self.tools, expectations: &self.expectations, pods: &self.pods }
    }

    /// Pods of all sets with the same controller: where they are decides which pods are doubled up on a node.
    fn related(&self, set: &K) -> Vec<Arc<Pod>> {
        let Some(owner) = set.metadata().controller() else { return self.pods.by_owner(set.metadata().uid()) };
        let siblings = self.sets.by_owner(&owner.uid);
        siblings.iter().flat_map(|sibling| self.pods.by_owner(sibling.metadata().uid())).collect()
    }
}

impl<K: Replicated> Reconciler for Replicas<K> {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(set) = self.sets.get(key) else {
            self.expectations.forget(key);
            return Ok(Action::Done);
        };
        // Asked before listing: otherwise the pods may be older than the answer. Until they are all in the cache they can be neither planned with nor
        // counted; the last of them brings the next turn.
        if !self.expectations.met(key) {
            metrics::REPLICA_STALE.increment(&["", "pods"]);
            return Ok(Action::After(UNMET));
        }
        let Some(selector) = set.selector() else { return Ok(Action::Done) };
        let candidates = claim::candidates(&self.pods, &*set, &selector);
        let (alive, dying): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|pod| pods::is_active(pod));
        let active = claim::claim(&self.tools.client, &*set, &selector, alive).await?;
        let owns = |pod: &Arc<Pod>| {
            pod.metadata.controller().is_some_and(|owner| owner.uid == set.metadata().uid())
                && pods::is_terminating(pod)
                && selector::matches(&selector, &pod.metadata.labels)
        };
        let terminating = dying.iter().filter(|pod| owns(pod)).count();
        let now = self.tools.clock.now();
        let plan = if set.metadata().is_deleting() {
            Plan::default()
        } else {
            plan(set.replicas(), &active, || self.related(&set), now)
        };
        let applied = self.apply(&set, &plan, &active).await;
        let observed = Observed { active: &active, terminating, failure: applied.as_ref().err(), now };
        // Status is written even when `apply` failed: that is when users look.
        set.write_status(&self.tools.client, &observed).await?;
        applied?;
        Ok(Action::after(status::next_check(set.min_ready_seconds(), &active, now)))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata().uid.clone()
    }
}
