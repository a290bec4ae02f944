//! Node IPAM: gives every node a range of pod addresses out of the cluster's.
//!
//! `plan` keeps the books and is pure. One worker, so that no range is given twice; what was given is in the nodes themselves. Upstream: the range allocator.

mod plan;
#[cfg(test)]
mod tests;

use client::{Client, Patch};
use informer::{Action, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use serde_json::json;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::config::{Cidr, Network};
use crate::context::Context;
use plan::Ranges;

/// Runs the controller, if the cluster's ranges are its to give.
pub(crate) async fn start(context: Context) {
    let network = context.config.network.clone();
    if network.cluster_cidrs.is_empty() {
        return;
    }
    let controller = NodeIpam {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        nodes: context.informers.of(),
        network,
    };
    let queue = context.queue();
    informer::feed(&controller.nodes, &queue, |change| {
        let without =
            |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.pod_cidrs.as_ref().is_none_or(Vec::is_empty));
        change.after().filter(|node| without(node)).map(|node| node.metadata.key())
    });
    controller.nodes.synced().await;
    context.run(controller, queue, 1).await;
}

struct NodeIpam {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    network: Network,
}

impl Reconciler for NodeIpam {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Action::Done) };
        if node.metadata.is_deleting() || !cidrs(&node).is_empty() {
            return Ok(Action::Done);
        }
        // The cache may not show the range given a moment ago to another node; the API server does.
        let live = self.client.list::<Node>("", &client::ListParams::default()).await?;
        let used: Vec<Cidr> = live.items.iter().flat_map(|node| cidrs(node)).collect();
        let mut given = Vec::new();
        for cluster in &self.network.cluster_cidrs {
            let bits = if cluster.address.is_ipv4() { self.network.node_bits_v4 } else { self.network.node_bits_v6 };
            let ranges = Ranges::new(*cluster, bits);
            let Some(free) = ranges.free(used.iter().chain(&self.network.service_cidrs)) else {
                self.tell(&node, "CIDRNotAvailable");
                return Err(Error::Unusable {
                    key: key.clone(),
                    reason:
                        "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range"
                            .to_owned(),
                });
            };
            given.push(free.to_string());
        }
        let patch = Patch::Strategic(json!({"spec": {"podCIDR": given.first(), "podCIDRs": given}}));
        match self.client.patch::<Node>("", &key.name, &patch).await {
            Ok(_) => Ok(Action::Done),
            Err(error) if error.is_not_found() => Ok(Action::Done),
            Err(error) => {
                self.tell(&node, "CIDRAssignmentFailed");
                Err(error.into())
            }
        }
    }
}

impl NodeIpam {
    fn tell(&self, node: &Node, status: &str) {
        let name = node.metadata.name();
        // Events about nodes carry the name as uid: that is how kubelets write theirs, and describe joins the two.
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.recorder.event_about(about, EventType::Normal, status, format!("Node {name} status is now: {status}"));
    }
}

fn cidrs(node: &Node) -> Vec<Cidr> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(spec.pod_cidr.iter());
    all.filter_map(|text| Cidr::parse(text)).collect()
}
