//! Disruption: keeps the numbers of PodDisruptionBudgets, by which the eviction API decides.
//!
//! `plan` counts and is pure. Upstream: DisruptionController.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Gvr};
use informer::{Action, Clock, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::Error;
use crate::common::discovery::discover;
use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::context::Context;
use plan::Expected;

const WORKERS: usize = 5;
/// A disruption condition of a pod that is not being deleted is stale after this.
const STALE: Duration = Duration::from_secs(120);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Disruption {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        budgets: context.informers.of(),
        pods: context.informers.of(),
        replica_sets: context.informers.of(),
        deployments: context.informers.of(),
        stateful_sets: context.informers.of(),
        controllers: context.informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.budgets, &queue, |change| [change.object().metadata.key()]);
    let budgets = controller.budgets.clone();
    informer::feed(&controller.pods, &queue, move |change| {
        let pods = || change.before().into_iter().chain(change.after());
        let candidates = budgets.by_namespace(change.object().metadata.namespace());
        let covers = |budget: &PodDisruptionBudget| {
            let selector = plan::selector(budget);
            pods().any(|pod| selector::matches(&selector, &pod.metadata.labels))
        };
        candidates.iter().filter(|budget| covers(budget)).map(|budget| budget.metadata.key()).collect::<Vec<_>>()
    });
    // A workload that is resized changes what is expected before its pods change.
    let budgets = controller.budgets.clone();
    let all = move |namespace: &str| -> Vec<Key> {
        budgets.by_namespace(namespace).iter().map(|budget| budget.metadata.key()).collect()
    };
    let of = all.clone();
    informer::feed(&controller.deployments, &queue, move |change| of(change.object().metadata.namespace()));
    let of = all.clone();
    informer::feed(&controller.replica_sets, &queue, move |change| of(change.object().metadata.namespace()));
    let of = all.clone();
    informer::feed(&controller.controllers, &queue, move |change| of(change.object().metadata.namespace()));
    informer::feed(&controller.stateful_sets, &queue, move |change| all(change.object().metadata.namespace()));
    futures::join!(
        controller.budgets.synced(),
        controller.pods.synced(),
        controller.replica_sets.synced(),
        controller.deployments.synced(),
        controller.stateful_sets.synced(),
        controller.controllers.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct Disruption {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    replica_sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    stateful_sets: Informer<StatefulSet>,
    controllers: Informer<ReplicationController>,
}

impl Reconciler for Disruption {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(budget) = self.budgets.get(key) else { return Ok(Action::Done) };
        let selector = plan::selector(&budget);
        let mut pods = self.pods.by_namespace(&key.namespace);
        pods.retain(|pod| selector::matches(&selector, &pod.metadata.labels));
        if pods.is_empty() {
            self.recorder.event(&*budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = self.clock.now();
        let expected = match self.expected(&budget, &pods).await {
            Ok(expected) => expected,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                self.recorder.event(&*budget, EventType::Warning, "CalculateExpectedPodCountFailed", message.clone());
                // Nothing may be evicted on numbers that nobody knows.
                let status = plan::failed(&budget, &error.to_string(), now);
                self.write(&budget, status).await?;
                return Err(error);
            }
        };
        let (status, again) = plan::status(&budget, &pods, expected, now);
        self.write(&budget, status).await?;
        for pod in pods.iter().filter(|pod| plan::stale_condition(pod, now, STALE)) {
            self.clear_condition(pod).await?;
        }
        let stale = pods.iter().filter_map(|pod| plan::stale_in(pod, now, STALE)).min();
        Ok(Action::after([again, stale].into_iter().flatten().min()))
    }
}

impl Disruption {
    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus,
    ) -> Result<(), Error> {
        if budget.status.as_ref() != Some(&status) {
            let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
            self.client.update_status(&changed).await?;
        }
        Ok(())
    }

    /// How many pods there should be, and how many of them healthy.
    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Expected, Error> {
        if !plan::needs_scale(budget) {
            return Ok(plan::expected(budget, i32::try_from(pods.len()).unwrap_or(i32::MAX)));
        }
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        let mut unmanaged = Vec::new();
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else {
                unmanaged.push(pod.metadata.name().to_owned());
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let (uid, scale) = self
                .scale(pod.metadata.namespace(), owner)
                .await?
                .ok_or_else(|| Error::Waiting(format!("found no controllers for pod {:?}", pod.metadata.name())))?;
            scales.insert(uid, scale);
        }
        if !unmanaged.is_empty() {
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                plan::selector(budget)
            );
            self.recorder.event(budget, EventType::Warning, "UnmanagedPods", message);
        }
        Ok(plan::expected(budget, scales.values().sum()))
    }

    /// The workload behind a pod's controller, and its size.
    async fn scale(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, Error> {
        let key = Key::new(namespace, &owner.name);
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let uid = owner.uid.clone();
        match (group, owner.kind.as_str()) {
            ("apps", "ReplicaSet") => {
                let Some(set) = self.replica_sets.get(&key).filter(|set| set.metadata.uid() == uid) else {
                    return Ok(None);
                };
                let parent = set.metadata.controller().filter(|parent| parent.kind == "Deployment");
                let deployment = parent.and_then(|parent| self.deployments.get(&Key::new(namespace, &parent.name)));
                Ok(Some(match deployment {
                    Some(deployment) => (deployment.metadata.uid().to_owned(), deployment.spec.replicas.unwrap_or(1)),
                    None => (uid, set.spec.replicas.unwrap_or(1)),
                }))
            }
            ("apps", "StatefulSet") => {
                let set = self.stateful_sets.get(&key).filter(|set| set.metadata.uid() == uid);
                Ok(set.map(|set| (uid, set.spec.replicas.unwrap_or(1))))
            }
            ("", "ReplicationController") => {
                let set = self.controllers.get(&key).filter(|set| set.metadata.uid() == uid);
                Ok(set.map(|set| (uid, set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1))))
            }
            _ => self.custom_scale(namespace, owner, group).await,
        }
    }

    /// Any other kind tells its size through its `scale` subresource.
    async fn custom_scale(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        group: &str,
    ) -> Result<Option<(String, i32)>, Error> {
        let resources = discover(&self.client).await?.resources;
        let found = resources.into_iter().find(|resource| resource.gvr.group == group && resource.kind == owner.kind);
        let Some(resource) = found else { return Ok(None) };
        let Gvr { group, version, resource } = &resource.gvr;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let path = format!("{root}/namespaces/{namespace}/{resource}/{}/scale", owner.name);
        match self.client.raw(&path).await {
            Ok(bytes) => {
                let scale: serde_json::Value =
                    serde_json::from_slice(&bytes).map_err(|source| client::Error::Decode { what: "Scale", source })?;
                let replicas = machinery::value::int(&scale, "spec.replicas").unwrap_or_default();
                Ok(Some((owner.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX))))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn clear_condition(&self, pod: &Pod) -> Result<(), Error> {
        let Some(status) = plan::without_condition(pod, self.clock.now()) else { return Ok(()) };
        match self.client.update_status(&Pod { status: Some(status), ..pod.clone() }).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
