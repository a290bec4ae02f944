//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::Patch;
use informer::{Action, EventType, Informer, Key, Reconciler};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use parking_lot::Mutex;
use serde_json::json;

use super::plan::Ledger;
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::metrics;

/// Runs the controller, if the cluster's ranges are its to give.
pub(crate) async fn start(context: Context) {
    let network = &context.config.network;
    if network.cluster_cidrs.is_empty() {
        return;
    }
    let bits = |cidr: &IpNet| if cidr.addr().is_ipv4() { network.node_bits_v4 } else { network.node_bits_v6 };
    let ranges = network.cluster_cidrs.iter().map(|cidr| (*cidr, bits(cidr)));
    let mut inputs = context.inputs();
    let controller = NodeIpam {
        tools: context.tools.clone(),
        nodes: inputs.read(),
        ledger: Arc::new(Mutex::new(Ledger::new(ranges, &network.service_cidrs))),
    };
    let ledger = controller.ledger.clone();
    inputs.feed(&controller.nodes, move |change| {
        let name = change.object().metadata.name();
        let mut ledger = ledger.lock();
        let Some(node) = change.after() else {
            let released = ledger.release(name);
            count(&ledger, &metrics::CIDR_RELEASES, released);
            return None;
        };
        // A node without ranges may be older than what was just given to it: that stays given.
        let has = cidrs(node);
        let without = has.is_empty();
        if !without && ledger.note(name, has) {
            count(&ledger, &metrics::CIDR_RELEASES, 0);
        }
        without.then(|| node.metadata.key())
    });
    inputs.run(controller, 1).await;
}

/// Counts what was given or released, and how full the ranges are now.
fn count(ledger: &Ledger, family: &figures::Counter, changed: usize) {
    for usage in ledger.usage() {
        let name = usage.cluster.to_string();
        family.add(&[&name], usize::from(changed > 0));
        metrics::CIDR_MOST.set(&[&name], usage.most as f64);
        metrics::CIDR_USAGE.set(&[&name], usage.taken as f64 / usage.most as f64);
    }
}

struct NodeIpam {
    tools: Tools,
    nodes: Informer<Node>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Reconciler for NodeIpam {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Action::Done) };
        if node.metadata.is_deleting() || !cidrs(&node).is_empty() {
            return Ok(Action::Done);
        }
        let Some(given) = self.ledger.lock().give(&key.name) else {
            self.record(&node, "CIDRNotAvailable");
            let reason = "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range";
            return Err(Error::Unusable { key: key.clone(), reason: reason.to_owned() });
        };
        let given: Vec<String> = given.iter().map(ToString::to_string).collect();
        let patch = Patch::Strategic(json!({"spec": {"podCIDR": given.first(), "podCIDRs": given}}));
        match self.tools.client.patch::<Node>("", &key.name, &patch).await {
            Ok(_) => {
                count(&self.ledger.lock(), &metrics::CIDR_ALLOCATIONS, given.len());
                Ok(Action::Done)
            }
            Err(error) if error.is_not_found() => Ok(Action::Done),
            Err(error) => {
                self.record(&node, "CIDRAssignmentFailed");
                Err(error.into())
            }
        }
    }
}

impl NodeIpam {
    fn record(&self, node: &Node, status: &str) {
        let name = node.metadata.name();
        // Events about nodes carry the name as uid: that is how kubelets write theirs, and describe joins the two.
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.tools.recorder.event_about(
            about,
            EventType::Normal,
            status,
            format!("Node {name} status is now: {status}"),
        );
    }
}

fn cidrs(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    // The single range is the first of the list, where there is one.
    let single = spec.pod_cidr.iter().filter(|_| spec.pod_cidrs.is_none());
    let all = spec.pod_cidrs.iter().flatten().chain(single);
    all.filter_map(|text| text.parse().ok()).collect()
}
