//! Node TTL: tells kubelets, by an annotation, for how long they may use Secrets and ConfigMaps without asking again. The larger the cluster, the longer.
//!
//! Upstream: the TTL controller.

use client::{Client, Patch};
use informer::{Action, Informer, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;

const WORKERS: usize = 2;
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Sizes of a cluster: from, to, and the seconds for it. They overlap, so that a node that comes and goes does not change every other one.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let queue = context.queue();
    let controller = NodeTtl {
        client: context.client.clone(),
        nodes: context.informers.of(),
        queue: queue.clone(),
        step: Mutex::new(0),
    };
    informer::feed(&controller.nodes, &queue, |change| [change.object().metadata.key()]);
    controller.nodes.synced().await;
    context.run(controller, queue, WORKERS).await;
}

struct NodeTtl {
    client: Client,
    nodes: Informer<Node>,
    /// A change of the cluster's size concerns all nodes.
    queue: WorkQueue<Key>,
    step: Mutex<usize>,
}

/// The step of a cluster of this size that was at another step.
fn step(mut at: usize, nodes: usize) -> usize {
    while nodes > STEPS[at].1 {
        at += 1;
    }
    while nodes < STEPS[at].0 {
        at -= 1;
    }
    at
}

impl Reconciler for NodeTtl {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let nodes = &self.nodes;
        let (seconds, changed) = {
            let mut current = self.step.lock();
            let next = step(*current, nodes.len());
            let changed = std::mem::replace(&mut *current, next) != next;
            (STEPS[next].2, changed)
        };
        if changed {
            nodes.list().iter().for_each(|node| self.queue.add(node.metadata.key()));
        }
        let Some(node) = nodes.get(key) else { return Ok(Action::Done) };
        let current = node.metadata.annotation(ANNOTATION).and_then(|text| text.parse().ok());
        if current != Some(seconds) {
            let patch = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}}));
            match self.client.patch::<Node>("", &key.name, &patch).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        for (at, nodes, expected) in
            [(0, 100, 0), (0, 101, 1), (1, 95, 1), (1, 89, 0), (0, 5000, 4), (4, 1, 0), (1, 500, 1)]
        {
            assert_eq!(step(at, nodes), expected, "{nodes} nodes, from {at}");
        }
    }
}
