//! Observes, applies what `plan` decides, and reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Patch;
use informer::{Action, Change, EventType, Filter, Informer, Key, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use parking_lot::Mutex;
use serde_json::json;

use super::plan::{self, Eviction, Observed, Plan};
use super::status;
use super::zones::{self, Zones};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::{batch, pods};
use crate::context::{Context, Tools};
use crate::metrics::{self, Collect};

const WORKERS: usize = 8;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = NodeLifecycle {
        tools: context.tools.clone(),
        nodes: inputs.read(),
        leases: inputs.read_some(Filter::namespace(rules::names::NODE_LEASES)),
        pods: inputs.read(),
        grace: context.config.node_monitor_grace_period,
        last_seen: Arc::default(),
        zones: Zones::default(),
        _figures: metrics::collected(zones::Collector(inputs.read())),
    };
    controller.pods.add_index(pods::NODE_INDEX, pods::node_of);
    let (last_seen, Tools { clock, recorder, .. }) = (controller.last_seen.clone(), context.tools.clone());
    inputs.feed(&controller.nodes, move |change| {
        let node = change.object();
        let name = node.metadata.name();
        match change {
            Change::Added(_) => {
                last_seen.lock().insert(name.to_owned(), clock.monotonic());
                record(
                    &recorder,
                    node,
                    "RegisteredNode",
                    format!("Node {name} event: Registered Node {name} in Controller"),
                );
            }
            Change::Modified { old, new } => {
                if plan::heartbeat(old) != plan::heartbeat(new) {
                    last_seen.lock().insert(name.to_owned(), clock.monotonic());
                }
            }
            Change::Deleted(_) => {
                last_seen.lock().remove(name);
                record(
                    &recorder,
                    node,
                    "RemovingNode",
                    format!("Node {name} event: Removing Node {name} from Controller"),
                );
            }
        }
        [node.metadata.key()]
    });
    let (last_seen, clock, nodes) =
        (controller.last_seen.clone(), context.tools.clock.clone(), controller.nodes.clone());
    inputs.feed(&controller.leases, move |change| {
        let lease: &Lease = change.after()?;
        let key = Key::cluster(lease.metadata.name());
        last_seen.lock().insert(key.name.clone(), clock.monotonic());
        // A renewal needs no turn: the one that waits for the grace period to pass will see it. Only a node taken for lost comes back by it.
        nodes.get(&key).is_some_and(|node| plan::is_unknown(&node)).then_some(key)
    });
    inputs.run(controller, WORKERS).await;
}

/// Events about nodes carry the name as uid: that is how kubelets write theirs, and describe joins the two.
fn record(recorder: &Recorder, node: &Node, reason: &str, message: String) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        ..ObjectReference::default()
    };
    recorder.event_about(about, EventType::Normal, reason, message);
}

struct NodeLifecycle {
    tools: Tools,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    grace: Duration,
    /// When each node last showed life, on this process' monotonic clock.
    last_seen: Arc<Mutex<HashMap<String, Duration>>>,
    zones: Zones,
    _figures: Arc<dyn Collect>,
}

impl Reconciler for NodeLifecycle {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let begun = self.tools.clock.monotonic();
        let answer = self.turn(key).await;
        let took = self.tools.clock.monotonic().saturating_sub(begun);
        metrics::NODE_HEALTH_SECONDS.observe(&[], took.as_secs_f64());
        answer
    }
}

impl NodeLifecycle {
    async fn turn(&self, key: &Key) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Action::Done) };
        let now = self.tools.clock.now();
        let observed = self.observe(key, node, now);
        let plan = plan::plan(&observed, now);
        self.apply(&observed.node, &plan).await?;
        Ok(Action::after(plan.again))
    }

    fn observe(&self, key: &Key, node: Arc<Node>, now: Timestamp) -> Observed {
        let monotonic = self.tools.clock.monotonic();
        let seen = *self.last_seen.lock().entry(key.name.clone()).or_insert(monotonic);
        let silent = monotonic.saturating_sub(seen);
        let lost = (silent >= self.grace).then(|| status::lost(&node, now)).flatten();
        let judged = plan::judged(&node, lost.as_ref());
        let pods = if plan::is_ready(&judged) {
            Vec::new()
        } else {
            self.pods.by_index(pods::NODE_INDEX, node.metadata.name())
        };
        Observed { eviction: self.eviction(&judged, monotonic), lost, silent, grace: self.grace, pods, node }
    }

    /// How the others fare matters only where somebody may be evicted: a node that is well costs the same among ten and among ten thousand.
    fn eviction(&self, node: &Node, now: Duration) -> Eviction {
        let Some(taint) = plan::eviction_taint(node) else { return Eviction::No };
        let all = self.nodes.list();
        if zones::all_disrupted(&all) {
            return Eviction::No;
        }
        if plan::has_eviction_taint(node, taint) {
            return Eviction::Yes(taint);
        }
        self.zones.turn(&zones::zone_of(node), &all, now).map_or(Eviction::Yes(taint), Eviction::In)
    }

    async fn apply(&self, node: &Node, plan: &Plan) -> Result<(), Error> {
        let mut version = node.metadata.resource_version.clone();
        if let Some(status) = &plan.status {
            let changed = Node { status: Some(status.clone()), ..node.clone() };
            version = self.tools.client.update_status(&changed).await?.metadata.resource_version;
        }
        if plan.announce {
            let message = format!("Node {} status is now: NodeNotReady", node.metadata.name());
            record(&self.tools.recorder, node, "NodeNotReady", message);
        }
        batch::all(&plan.pods, |pod| self.mark_not_ready(pod)).await?;
        if plan.taints.is_none() && plan.labels.is_empty() {
            return Ok(());
        }
        // The whole list at once, and only if nobody changed it meanwhile.
        let mut patch = json!({"metadata": {"resourceVersion": version}});
        if let Some(taints) = &plan.taints {
            patch["spec"]["taints"] = json!(taints);
        }
        if !plan.labels.is_empty() {
            patch["metadata"]["labels"] = json!(plan.labels);
        }
        match self.tools.client.patch::<Node>("", node.metadata.name(), &Patch::Merge(patch)).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        if plan.evicts {
            metrics::NODE_EVICTIONS.increment(&[&zones::zone_of(node)]);
        }
        Ok(())
    }

    async fn mark_not_ready(&self, pod: &Pod) -> Result<(), Error> {
        match self.tools.client.update_status(pod).await {
            Ok(_) => {
                self.tools.recorder.event(pod, EventType::Warning, "NodeNotReady", "Node is not ready");
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
