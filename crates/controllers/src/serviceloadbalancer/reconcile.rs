//! Observes, applies what `plan` decides, and reports.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use client::{Client, Patch};
use informer::{Action, EventType, Informer, Informers, Key, Reconciler, Recorder, WorkQueue, feed};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::plan::{Observed, addresses, plan, wants};
use crate::common::meta::MetaExt;

const NAME: &str = "service-lb";
/// There is one key: who gets which port is one decision about all Services.
const ALL: &str = "all";

/// Gives addresses to Services until it is stopped. One in the whole cluster does so at a time. `reserved` are the TCP ports that nodes need themselves.
pub async fn run(reserved: BTreeSet<u16>, informers: &Informers, shutdown: CancellationToken) {
    let queue = WorkQueue::new(NAME, informers.clock().clone());
    let client = informers.client().clone();
    let balancer = Balancer {
        services: informers.of(),
        nodes: informers.of(),
        slices: informers.of(),
        recorder: Recorder::new(client.clone(), "service-controller", None, informers.clock().clone()),
        client,
        reserved,
    };
    feed(&balancer.services, &queue, |change| {
        let is_balanced = |service: Option<&Arc<Service>>| service.is_some_and(|service| wants(service));
        (is_balanced(change.before()) || is_balanced(change.after())).then(|| Key::cluster(ALL))
    });
    feed(&balancer.nodes, &queue, |change| {
        // Most changes to Nodes are heartbeats.
        let changed =
            change.before().and_then(|node| addresses(node)) != change.after().and_then(|node| addresses(node));
        changed.then(|| Key::cluster(ALL))
    });
    feed(&balancer.slices, &queue, |_| [Key::cluster(ALL)]);
    let synced =
        async { futures::join!(balancer.services.synced(), balancer.nodes.synced(), balancer.slices.synced()) };
    tokio::select! {
        _ = synced => {}
        () = shutdown.cancelled() => return,
    }
    informer::run(NAME, Arc::new(balancer), queue, 1, shutdown).await;
}

struct Balancer {
    services: Informer<Service>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    client: Client,
    recorder: Recorder,
    reserved: BTreeSet<u16>,
}

impl Reconciler for Balancer {
    type Error = client::Error;

    async fn reconcile(&self, _: &Key) -> Result<Action, client::Error> {
        let observed =
            Observed { services: self.services.list(), nodes: self.nodes.list(), slices: self.slices.list() };
        let mut failed = Ok(Action::Done);
        for step in plan(&observed, &self.reserved) {
            if let Some(why) = step.waits {
                let message = format!("Error syncing load balancer: {why}");
                self.recorder.event(&*step.service, EventType::Warning, "SyncLoadBalancerFailed", message);
            }
            if let Some(addresses) = step.addresses
                && let Err(error) = self.report(&step.service, &addresses).await
                && !error.is_not_found()
            {
                failed = Err(error);
            }
        }
        failed
    }
}

impl Balancer {
    async fn report(&self, service: &Service, addresses: &[IpAddr]) -> Result<(), client::Error> {
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
        let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        let (namespace, name) = (service.metadata.namespace(), service.metadata.name());
        self.client.patch_status::<Service>(namespace, name, &patch).await.map(drop)
    }
}
