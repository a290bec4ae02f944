//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::plan::{Plan, evicting_taints, evicts, plan};
use crate::Error;
use crate::common::eviction::evict;
use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::context::{Context, Tools};
use crate::metrics;

const WORKERS: usize = 8;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = TaintEviction { tools: context.tools.clone(), nodes: inputs.read(), pods: inputs.read() };
    controller.pods.add_index(pods::NODE_INDEX, pods::node_of);
    let nodes = controller.nodes.clone();
    inputs.feed(&controller.pods, move |change| {
        let pod = change.after().filter(|pod| pods::is_active(pod))?;
        let node = pods::node_name(pod).and_then(|name| nodes.get(&Key::cluster(name)))?;
        evicts(&node).then(|| pod.metadata.key())
    });
    let pods = controller.pods.clone();
    inputs.feed(&controller.nodes, move |change| {
        let taints = |node: Option<&Arc<Node>>| node.map(|node| evicting_taints(node));
        let node = change.after().filter(|node| evicts(node) && taints(change.before()) != taints(Some(node)));
        let on_node = node.map(|node| pods.by_index(pods::NODE_INDEX, node.metadata.name())).unwrap_or_default();
        on_node.iter().filter(|pod| pods::is_active(pod)).map(|pod| pod.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(controller, WORKERS).await;
}

struct TaintEviction {
    tools: Tools,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
}

impl Reconciler for TaintEviction {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| pods::is_active(pod)) else { return Ok(Action::Done) };
        let node = pods::node_name(&pod).and_then(|name| self.nodes.get(&Key::cluster(name)));
        let Some(node) = node else { return Ok(Action::Done) };
        match plan(&pod, &evicting_taints(&node), self.tools.clock.now()) {
            Plan::Keep => Ok(Action::Done),
            Plan::EvictIn(delay) => Ok(Action::After(delay)),
            Plan::Evict(since) => {
                self.evict(&pod).await?;
                metrics::TAINT_DELETIONS.increment(&[]);
                let waited = informer::clock::since(self.tools.clock.now(), since);
                metrics::TAINT_DELETION_SECONDS.observe(&[], waited.as_secs_f64());
                Ok(Action::Done)
            }
        }
    }
}

impl TaintEviction {
    async fn evict(&self, pod: &Pod) -> Result<(), Error> {
        let (namespace, name) = (pod.metadata.namespace(), pod.metadata.name());
        self.tools.recorder.event(
            pod,
            EventType::Normal,
            "TaintManagerEviction",
            format!("Marking for deletion Pod {namespace}/{name}"),
        );
        let (reason, message) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        Ok(evict(&self.tools.client, pod, reason, message, self.tools.clock.now()).await?)
    }
}
