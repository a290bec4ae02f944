//! Observes, applies what `plan` decides, and reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Gvr;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResourceList, OwnerReference};

use super::plan::{self, Observed, Scale};
use crate::Error;
use crate::common::discovery::discover;
use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::context::{Context, Tools};
use crate::inputs::changed;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Disruption {
        tools: context.tools.clone(),
        budgets: inputs.watch(changed),
        pods: inputs.read(),
        replica_sets: inputs.read(),
        deployments: inputs.read(),
        stateful_sets: inputs.read(),
        controllers: inputs.read(),
    };
    let budgets = controller.budgets.clone();
    inputs.feed(&controller.pods, move |change| {
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
    inputs.feed(&controller.deployments, move |change| of(change.object().metadata.namespace()));
    let of = all.clone();
    inputs.feed(&controller.replica_sets, move |change| of(change.object().metadata.namespace()));
    let of = all.clone();
    inputs.feed(&controller.controllers, move |change| of(change.object().metadata.namespace()));
    inputs.feed(&controller.stateful_sets, move |change| all(change.object().metadata.namespace()));
    inputs.run(controller, WORKERS).await;
}

struct Disruption {
    tools: Tools,
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
        let pods = self.pods.select(&key.namespace, &selector);
        let scale = self.scale_of_all(&budget, &pods).await;
        let known = scale.as_ref().map(|scale| *scale).map_err(ToString::to_string);
        let plan = plan::plan(&Observed { budget: budget.clone(), pods, scale: known }, self.tools.clock.now());
        for (type_, reason, message) in plan.events {
            self.tools.recorder.event(&*budget, type_, reason, message);
        }
        if budget.status.as_ref() != Some(&plan.status) {
            let changed = PodDisruptionBudget { status: Some(plan.status), ..PodDisruptionBudget::clone(&budget) };
            self.tools.client.update_status(&changed).await?;
        }
        scale?;
        for pod in &plan.clear {
            match self.tools.client.update_status(pod).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::after(plan.again))
    }
}

impl Disruption {
    /// How many pods there should be: as many as their workloads want, or as many as there are.
    async fn scale_of_all(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Scale, Error> {
        if !plan::needs_scale(budget) {
            return Ok(Scale { replicas: i32::try_from(pods.len()).unwrap_or(i32::MAX), unmanaged: false });
        }
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = pod.metadata.controller().filter(|owner| !scales.contains_key(&owner.uid)) else {
                continue;
            };
            let (uid, scale) = self
                .scale(pod.metadata.namespace(), owner)
                .await?
                .ok_or_else(|| Error::Waiting(format!("found no controllers for pod {:?}", pod.metadata.name())))?;
            scales.insert(uid, scale);
        }
        let unmanaged = pods.iter().any(|pod| pod.metadata.controller().is_none());
        Ok(Scale { replicas: scales.into_values().fold(0, i32::saturating_add), unmanaged })
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
        let resources = discover(&self.tools.client).await?.resources;
        let found = resources.into_iter().find(|resource| resource.gvr.group == group && resource.kind == owner.kind);
        let Some(resource) = found else { return Ok(None) };
        let Gvr { group, version, resource } = &resource.gvr;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let path = format!("{root}/namespaces/{namespace}/{resource}/{}/scale", owner.name);
        match self.tools.client.raw(&path).await {
            Ok(bytes) => {
                let scale: serde_json::Value =
                    serde_json::from_slice(&bytes).map_err(|source| client::Error::Decode { what: "Scale", source })?;
                if machinery::value::text(&scale, "metadata.uid") != owner.uid {
                    return Ok(None);
                }
                let replicas = machinery::value::int(&scale, "spec.replicas").unwrap_or_default();
                Ok(Some((owner.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX))))
            }
            // Either the object is not there, or objects of its kind have no scale.
            Err(error) if error.is_not_found() => {
                let resources: APIResourceList = serde_json::from_slice(&self.tools.client.raw(&root).await?)
                    .map_err(|source| client::Error::Decode { what: "discovery document", source })?;
                if resources.resources.iter().any(|known| known.name == format!("{resource}/scale")) {
                    return Ok(None);
                }
                let named = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
                Err(Error::Waiting(format!("{named} does not implement the scale subresource")))
            }
            Err(error) => Err(error.into()),
        }
    }
}
