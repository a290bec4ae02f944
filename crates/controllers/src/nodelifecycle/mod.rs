//! Node lifecycle: notices nodes that fell silent, marks them and their pods, and taints nodes by their conditions.
//!
//! A node shows life by renewing its Lease or reporting its status. Life is counted by this process' own clock from when the change was *seen*: node clocks
//! are not trusted. `plan` decides and is pure; `zones` keeps evictions slow when many nodes fail at once, because then the fault is more likely
//! with the network than with the nodes. Upstream: node lifecycle controller.

mod plan;
mod status;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch};
use informer::{Action, Change, Clock, EventType, Filter, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::json;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::{batch, pods};
use crate::context::Context;
use crate::metrics::{self, Collect};
use zones::Zones;

const WORKERS: usize = 8;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = NodeLifecycle {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        nodes: context.informers.of(),
        leases: context.informers.filtered(Filter::namespace("kube-node-lease")),
        pods: context.informers.of(),
        grace: context.config.node_monitor_grace_period,
        signs: Arc::default(),
        zones: Zones::default(),
        _figures: metrics::collected(zones::Census(context.informers.of())),
    };
    controller.pods.add_index(pods::NODE_INDEX, pods::node_of);
    let queue = context.queue();
    let (signs, clock, recorder) = (controller.signs.clone(), context.clock.clone(), context.recorder.clone());
    informer::feed(&controller.nodes, &queue, move |change| {
        let node = change.object();
        let name = node.metadata.name();
        match change {
            Change::Added(_) => {
                signs.lock().insert(name.to_owned(), clock.monotonic());
                tell(
                    &recorder,
                    node,
                    "RegisteredNode",
                    format!("Node {name} event: Registered Node {name} in Controller"),
                );
            }
            Change::Modified { old, new } => {
                if plan::heartbeat(old) != plan::heartbeat(new) {
                    signs.lock().insert(name.to_owned(), clock.monotonic());
                }
            }
            Change::Deleted(_) => {
                signs.lock().remove(name);
                tell(
                    &recorder,
                    node,
                    "RemovingNode",
                    format!("Node {name} event: Removing Node {name} from Controller"),
                );
            }
        }
        [node.metadata.key()]
    });
    let (signs, clock, nodes) = (controller.signs.clone(), context.clock.clone(), controller.nodes.clone());
    informer::feed(&controller.leases, &queue, move |change| {
        let lease: &Lease = change.after()?;
        let key = Key::cluster(lease.metadata.name());
        signs.lock().insert(key.name.clone(), clock.monotonic());
        // A renewal needs no turn: the one that waits for the grace period to pass will see it. Only a node taken for lost comes back by it.
        nodes.get(&key).is_some_and(|node| plan::is_unknown(&node)).then_some(key)
    });
    futures::join!(controller.nodes.synced(), controller.leases.synced(), controller.pods.synced());
    context.run(controller, queue, WORKERS).await;
}

/// Events about nodes carry the name as uid: that is how kubelets write theirs, and describe joins the two.
fn tell(recorder: &Recorder, node: &Node, reason: &str, message: String) {
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
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    grace: Duration,
    /// When each node last showed life, on this process' monotonic clock.
    signs: Arc<Mutex<HashMap<String, Duration>>>,
    zones: Zones,
    _figures: Arc<dyn Collect>,
}

impl Reconciler for NodeLifecycle {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let begun = self.clock.monotonic();
        let answer = self.look(key).await;
        let took = self.clock.monotonic().saturating_sub(begun);
        metrics::NODE_HEALTH_SECONDS.observe(&[], took.as_secs_f64());
        answer
    }
}

impl NodeLifecycle {
    async fn look(&self, key: &Key) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Action::Done) };
        let now = self.clock.monotonic();
        let sign = *self.signs.lock().entry(key.name.clone()).or_insert(now);
        let silent = now.saturating_sub(sign);
        let mut node = Node::clone(&node);
        if silent >= self.grace
            && let Some(status) = status::lost(&node, self.clock.now())
        {
            let was_ready = plan::is_ready(&node);
            node = self.client.update_status(&Node { status: Some(status), ..node }).await?;
            if was_ready {
                let message = format!("Node {} status is now: NodeNotReady", key.name);
                tell(&self.recorder, &node, "NodeNotReady", message);
            }
        }
        if !plan::is_ready(&node) {
            self.mark_pods_not_ready(&node).await?;
        }
        let wait = self.adjust_taints(&node).await?;
        let next = self.grace.saturating_sub(silent).max(Duration::from_millis(100));
        let watch = (silent < self.grace).then_some(next);
        Ok(Action::after([wait, watch].into_iter().flatten().min()))
    }

    /// Brings the taints in line with the conditions. Answers when to come back if an eviction has to wait for its turn.
    async fn adjust_taints(&self, node: &Node) -> Result<Option<Duration>, Error> {
        let evict = plan::eviction_taint(node);
        // How the others fare matters only where somebody may be evicted: a node that is well costs the same among ten and among ten thousand.
        let all = if evict.is_some() { self.nodes.list() } else { Vec::new() };
        let evict = evict.filter(|_| !zones::all_disrupted(&all));
        let has = evict.is_some_and(|key| plan::has_eviction_taint(node, key));
        let wait = if evict.is_some() && !has {
            self.zones.turn(&zones::zone_of(node), &all, self.clock.monotonic())
        } else {
            None
        };
        let evict = if wait.is_some() { None } else { evict };
        let taints = plan::taints(node, evict, wait.is_some(), Time(self.clock.now()));
        let current = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let labels = plan::missing_labels(node);
        if !plan::same_taints(&current, &taints) || !labels.is_empty() {
            // The whole list at once, and only if nobody changed it meanwhile.
            let mut patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}});
            if !plan::same_taints(&current, &taints) {
                patch["spec"]["taints"] = json!(taints);
            }
            if !labels.is_empty() {
                patch["metadata"]["labels"] = json!(labels);
            }
            match self.client.patch::<Node>("", node.metadata.name(), &Patch::Merge(patch)).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
            if evict.is_some() && !has {
                metrics::NODE_EVICTIONS.increment(&[&zones::zone_of(node)]);
            }
        }
        Ok(wait)
    }

    /// Nobody can vouch for the pods of a silent node, so Services must not send traffic to them.
    async fn mark_pods_not_ready(&self, node: &Node) -> Result<(), Error> {
        let on_node = self.pods.by_index(pods::NODE_INDEX, node.metadata.name());
        let ready = on_node.iter().filter(|pod| pods::is_ready(pod));
        batch::all(ready, |pod| async move {
            let Some(status) = status::pod_not_ready(pod, self.clock.now()) else { return Ok(()) };
            let changed = Pod { status: Some(status), ..Pod::clone(pod) };
            match self.client.update_status(&changed).await {
                Ok(_) => {
                    self.recorder.event(&**pod, EventType::Warning, "NodeNotReady", "Node is not ready");
                    Ok(())
                }
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }
}
