//! EndpointSlice: the addresses behind every Service with a selector, in slices of at most a hundred.
//!
//! `plan` decides and is pure: it changes as few slices as it can, because every change goes to every node. Upstream: endpointslice controller.

mod endpoints;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use client::{Client, DeleteOptions};
use informer::{Action, Change, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::common::{batch, selector, services};
use crate::context::Context;

const WORKERS: usize = 5;
/// The index of slices by the Service they belong to.
const SERVICE_INDEX: &str = "service";

pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
pub(crate) const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = EndpointSlices {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        services: context.informers.of(),
        pods: context.informers.of(),
        nodes: context.informers.of(),
        slices: context.informers.of(),
    };
    controller.slices.add_index(SERVICE_INDEX, |slice: &EndpointSlice| {
        owner_of(slice).map(|key| key.to_string()).into_iter().collect()
    });
    let queue = context.queue();
    informer::feed(&controller.services, &queue, |change| [change.object().metadata.key()]);
    let known = controller.services.clone();
    informer::feed(&controller.pods, &queue, move |change| services::affected(change, &known));
    informer::feed(&controller.slices, &queue, |change| {
        let keys = change.before().into_iter().chain(change.after()).filter_map(|slice| owner_of(slice));
        keys.collect::<Vec<_>>()
    });
    let (known, pods) = (controller.services.clone(), controller.pods.clone());
    informer::feed(&controller.nodes, &queue, move |change| zone_changed(change, &known, &pods));
    futures::join!(
        controller.services.synced(),
        controller.pods.synced(),
        controller.nodes.synced(),
        controller.slices.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

/// The Service of a slice that is this controller's.
fn owner_of(slice: &EndpointSlice) -> Option<Key> {
    let meta = &slice.metadata;
    let name = meta.label(SERVICE_LABEL).filter(|_| meta.label(MANAGED_BY_LABEL) == Some(MANAGER))?;
    Some(Key::new(meta.namespace(), name))
}

/// A node that came, went or moved to another zone changes the zones that endpoints show.
fn zone_changed(change: &Change<Node>, services: &Informer<Service>, pods: &Informer<Pod>) -> Vec<Key> {
    let zone =
        |node: Option<&Arc<Node>>| node.and_then(|node| node.metadata.label(endpoints::ZONE_LABEL).map(str::to_owned));
    if zone(change.before()) == zone(change.after()) {
        return Vec::new();
    }
    let node = change.object().metadata.name();
    let on_node: Vec<Arc<Pod>> =
        pods.list().into_iter().filter(|pod| crate::common::pods::node_name(pod) == Some(node)).collect();
    let selects = |service: &Service| {
        let selector = services::pod_selector(service);
        selector.is_some_and(|selector| {
            on_node.iter().any(|pod| {
                pod.metadata.namespace == service.metadata.namespace
                    && selector::matches(&selector, &pod.metadata.labels)
            })
        })
    };
    services.list().iter().filter(|service| selects(service)).map(|service| service.metadata.key()).collect()
}

struct EndpointSlices {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
}

impl Reconciler for EndpointSlices {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        // The slices of a Service that is gone go with it: it owns them.
        let Some(service) = self.services.get(key) else { return Ok(Action::Done) };
        let Some(selector) = services::pod_selector(&service) else { return Ok(Action::Done) };
        if service.metadata.is_deleting() {
            return Ok(Action::Done);
        }
        let pods = self.pods.by_namespace(&key.namespace);
        let selected: Vec<Arc<Pod>> =
            pods.into_iter().filter(|pod| selector::matches(&selector, &pod.metadata.labels)).collect();
        let zone = |node: &str| {
            self.nodes
                .get(&Key::cluster(node))
                .and_then(|node| node.metadata.label(endpoints::ZONE_LABEL).map(str::to_owned))
        };
        let desired = endpoints::desired(&service, &selected, zone);
        let existing = self.slices.by_index(SERVICE_INDEX, &key.to_string());
        let plan = plan::plan(&service, &existing, desired);
        self.apply(&service, plan).await.map(|()| Action::Done)
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.services.get(key)?.metadata.uid.clone()
    }
}

impl EndpointSlices {
    async fn apply(&self, service: &Service, plan: plan::Plan) -> Result<(), Error> {
        let created = batch::all(&plan.create, |slice| async {
            match self.client.create(slice).await {
                Err(error) if namespace_ends(&error) => Ok(()),
                answer => answer.map(drop),
            }
        });
        let updated = batch::all(&plan.update, |slice| async { self.client.update(slice).await.map(drop) });
        let deleted = batch::all(&plan.delete, |slice| async {
            let (namespace, name) = (slice.metadata.namespace(), slice.metadata.name());
            match self.client.delete::<EndpointSlice>(namespace, name, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => Ok(()),
                answer => answer,
            }
        });
        let (created, updated, deleted) = futures::join!(created, updated, deleted);
        let answer = created.and(updated).and(deleted);
        if let Err(error) = &answer
            && !error.is_conflict()
            && !error.is_not_found()
        {
            let (namespace, name) = (service.metadata.namespace(), service.metadata.name());
            let message = format!("Error updating Endpoint Slices for Service {namespace}/{name}: {error}");
            self.recorder.event(service, EventType::Warning, "FailedToUpdateEndpointSlices", message);
        }
        Ok(answer?)
    }
}
