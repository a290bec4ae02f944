//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use informer::{Action, Change, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use parking_lot::Mutex;

use super::traffic::{self, Traffic};
use super::{endpoints, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pods::{NODE_INDEX, node_of};
use crate::common::slices::{Figures, Slices};
use crate::common::{selector, services};
use crate::context::{Context, Tools};
use crate::inputs::changed;
use crate::metrics;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = EndpointSlices {
        tools: context.tools.clone(),
        services: inputs.watch(changed),
        pods: inputs.read(),
        nodes: inputs.read(),
        slices: Slices::new(&context, &mut inputs, plan::MANAGER, FIGURES),
        traffic: Mutex::default(),
    };
    controller.pods.add_index(NODE_INDEX, node_of);
    let known = controller.services.clone();
    inputs.feed(&controller.pods, move |change| services::affected(change, &known));
    let (known, pods) = (controller.services.clone(), controller.pods.clone());
    inputs.feed(&controller.nodes, move |change| zone_changed(change, &known, &pods));
    inputs.run(controller, WORKERS).await;
}

/// A node that came, went or moved to another zone changes the zones that endpoints show.
fn zone_changed(change: &Change<Node>, services: &Informer<Service>, pods: &Informer<Pod>) -> Vec<Key> {
    let zone =
        |node: Option<&Arc<Node>>| node.and_then(|node| node.metadata.label(endpoints::ZONE_LABEL).map(str::to_owned));
    if zone(change.before()) == zone(change.after()) {
        return Vec::new();
    }
    let node = change.object().metadata.name();
    let on_node = pods.by_index(NODE_INDEX, node);
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

const FIGURES: Figures = Figures {
    added: &metrics::SLICE_ADDED,
    removed: &metrics::SLICE_REMOVED,
    endpoints: &metrics::SLICE_ENDPOINTS,
    slices: &metrics::SLICES,
    desired: &metrics::SLICES_DESIRED,
    changes: &metrics::SLICE_CHANGES,
};

struct EndpointSlices {
    tools: Tools,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Slices,
    /// How Services want their traffic spread, for the figures.
    traffic: Mutex<Traffic>,
}

impl Reconciler for EndpointSlices {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        // The slices of a Service that is gone go with it: it owns them.
        let service = self.services.get(key).filter(|service| !service.metadata.is_deleting());
        self.traffic.lock().note(key, service.as_deref());
        let Some(service) = service else {
            self.slices.forget(key);
            return Ok(Action::Done);
        };
        let Some(selector) = services::pod_selector(&service) else { return Ok(Action::Done) };
        let selected = self.pods.select(&key.namespace, &selector);
        let zone = |node: &str| {
            self.nodes
                .get(&Key::cluster(node))
                .and_then(|node| node.metadata.label(endpoints::ZONE_LABEL).map(str::to_owned))
        };
        let desired = endpoints::desired(&service, &selected, zone);
        let enough = plan::enough(&desired);
        let existing = self.slices.of(key);
        let plan = plan::plan(&service, &existing, desired);
        let answer = self.slices.apply(key, &existing, &plan, enough).await;
        let spread = traffic::distribution(&service).unwrap_or_default();
        metrics::SLICES_CHANGED.observe(&[traffic::topology(&service), spread], plan.changes() as f64);
        metrics::SLICE_SYNCS.increment(&[if answer.is_ok() { "success" } else { "error" }]);
        if let Err(error) = answer {
            self.warn(&service, &error);
            return Err(error.into());
        }
        Ok(Action::Done)
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.services.get(key)?.metadata.uid.clone()
    }
}

impl EndpointSlices {
    fn warn(&self, service: &Service, error: &client::Error) {
        // Somebody was faster: the next turn sees what came of it.
        if error.is_conflict() || error.is_not_found() {
            return;
        }
        let (namespace, name) = (service.metadata.namespace(), service.metadata.name());
        let message = format!("Error updating Endpoint Slices for Service {namespace}/{name}: {error}");
        self.tools.recorder.event(service, EventType::Warning, "FailedToUpdateEndpointSlices", message);
    }
}
