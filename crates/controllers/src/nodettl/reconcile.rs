//! Observes, applies what `plan` decides, and reports.

use client::Patch;
use informer::{Action, Informer, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use super::plan::{ANNOTATION, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::inputs::changed;

const WORKERS: usize = 2;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = NodeTtl {
        tools: context.tools.clone(),
        nodes: inputs.watch(changed),
        queue: inputs.queue.clone(),
        step: Mutex::new(0),
    };
    inputs.run(controller, WORKERS).await;
}

struct NodeTtl {
    tools: Tools,
    nodes: Informer<Node>,
    /// A change of the cluster's size concerns all nodes.
    queue: WorkQueue<Key>,
    step: Mutex<usize>,
}

impl Reconciler for NodeTtl {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let plan = {
            let mut step = self.step.lock();
            let plan = plan(*step, self.nodes.len(), self.nodes.get(key).as_deref());
            *step = plan.step;
            plan
        };
        if plan.all {
            self.nodes.list().iter().for_each(|node| self.queue.add(node.metadata.key()));
        }
        if let Some(seconds) = plan.annotate {
            let patch = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}}));
            match self.tools.client.patch::<Node>("", &key.name, &patch).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}
