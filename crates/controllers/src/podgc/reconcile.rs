//! Observes, applies what `plan` decides, and reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{DeleteOptions, Patch};
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;

use super::plan::{self, Absences, Reason};
use crate::Error;
use crate::common::batch;
use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::context::{Context, Tools};
use crate::metrics;

/// How long a node must be gone before its pods go: it may only have been registered anew.
const QUARANTINE: Duration = Duration::from_secs(40);
/// The index of pods that may have to go wherever they are: there may be very many that need not be looked at.
const LOOSE_INDEX: &str = "loose";
const ENDED: &str = "ended";
/// Being deleted, and never got a node.
const UNBOUND: &str = "unbound";
/// There is one key: the whole cluster.
const ALL: &str = "cluster";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller =
        PodGc { tools: context.tools.clone(), nodes: inputs.read(), pods: inputs.read(), absences: Mutex::default() };
    controller.pods.add_index(pods::NODE_INDEX, pods::node_of);
    controller.pods.add_index(LOOSE_INDEX, |pod: &Pod| {
        let ended = pods::is_terminal(pod).then_some(ENDED);
        let unbound = (pods::node_name(pod).is_none() && pod.metadata.is_deleting()).then_some(UNBOUND);
        [ended, unbound].into_iter().flatten().map(str::to_owned).collect()
    });
    inputs.feed(&controller.nodes, |change| {
        let matters = change.after().is_none_or(|node| plan::is_out_of_service(node));
        matters.then(|| Key::cluster(ALL))
    });
    let (nodes, pods) = (controller.nodes.clone(), controller.pods.clone());
    inputs.feed(&controller.pods, move |change| {
        let pod = change.after()?;
        // A turn looks at every pod: one more that ended is a reason only when they have become too many.
        let too_many = || pods::is_terminal(pod) && pods.count(LOOSE_INDEX, ENDED) > plan::MOST_ENDED;
        (plan::may_matter(pod, |name| nodes.get(&Key::cluster(name))) || too_many()).then(|| Key::cluster(ALL))
    });
    inputs.queue.add(Key::cluster(ALL));
    inputs.run(controller, 1).await;
}

struct PodGc {
    tools: Tools,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Since when nodes that pods name are missing.
    absences: Mutex<Absences>,
}

impl Reconciler for PodGc {
    type Error = Error;

    async fn reconcile(&self, _: &Key) -> Result<Action, Error> {
        let (named, nodes) = (self.pods.index_values(pods::NODE_INDEX), self.nodes.list());
        let now = self.tools.clock.monotonic();
        let (gone, wait) = self.absences.lock().gone(&named, &nodes, now, QUARANTINE);
        let mut confirmed = Vec::new();
        for node in gone {
            match self.tools.client.get::<Node>("", &node).await {
                Err(error) if error.is_not_found() => confirmed.push(node),
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        batch::all(plan::plan(&self.in_question(&nodes, &confirmed), &nodes, &confirmed), |(pod, reason)| async move {
            let labels = [pod.metadata.namespace(), reason.label()];
            let answer = self.remove(&pod, reason).await;
            let family = if answer.is_ok() { &metrics::POD_GC } else { &metrics::POD_GC_ERRORS };
            family.increment(&labels);
            answer
        })
        .await?;
        Ok(Action::after(wait))
    }
}

impl PodGc {
    /// The pods among which those to remove are, each once.
    fn in_question(&self, nodes: &[Arc<Node>], gone: &[String]) -> Vec<Arc<Pod>> {
        let suspect = gone.iter().map(String::as_str).chain(plan::out_of_service(nodes));
        let mut all: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
        let of_nodes = suspect.flat_map(|node| self.pods.by_index(pods::NODE_INDEX, node));
        let loose = [ENDED, UNBOUND].into_iter().flat_map(|value| self.pods.by_index(LOOSE_INDEX, value));
        all.extend(of_nodes.chain(loose).map(|pod| (pod.metadata.key(), pod)));
        all.into_values().collect()
    }

    async fn remove(&self, pod: &Pod, reason: Reason) -> Result<(), Error> {
        let (namespace, name) = (pod.metadata.namespace(), pod.metadata.name());
        if !pods::is_terminal(pod) {
            let mut status = json!({"phase": "Failed"});
            if let Some(message) = reason.disruption() {
                status["conditions"] = json!([{
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": message,
                    "lastTransitionTime": machinery::time::format(self.tools.clock.now()),
                }]);
            }
            let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
            match self.tools.client.patch_status::<Pod>(namespace, name, &patch).await {
                Err(error) if error.is_not_found() => return Ok(()),
                answer => answer.map(drop)?,
            }
        }
        let options =
            DeleteOptions { grace_period_seconds: Some(0), uid: pod.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<Pod>(namespace, name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
