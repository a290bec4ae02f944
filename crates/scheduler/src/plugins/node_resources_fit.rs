//! NodeResourcesFit: the node must have room; how full it should be is a matter of strategy.

use std::sync::Arc;

use rules::names::is_extended;
use smallvec::SmallVec;

use super::resource_score::ResourceScorer;
use crate::framework::{
    Action, ClusterEvent, Code, CycleState, Filter, Hint, Interest, Plugin, Points, PreScore, Reason, Rejection,
    Resource, Score, Verdict,
};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::pod::PodInfo;
use crate::model::resources::Resources;

/// Rejects nodes without room for the pod's requests; ranks by how much room is left.
pub struct NodeResourcesFit {
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    scorer: ResourceScorer,
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new(), ResourceScorer::default())
    }
}

impl NodeResourcesFit {
    /// With extended resources (or whole groups of them) that others look after, and a scoring strategy.
    pub fn new(ignored: Vec<String>, ignored_groups: Vec<String>, scorer: ResourceScorer) -> Self {
        Self { ignored, ignored_groups, scorer }
    }

    fn is_ignored(&self, name: &str) -> bool {
        (self.ignored.iter().any(|i| i == name)
            || name.split_once('/').is_some_and(|(group, _)| self.ignored_groups.iter().any(|g| g == group)))
            && is_extended(name)
    }

    fn judge(&self, requests: &Resources, node: &NodeInfo) -> Verdict {
        let (room, taken) = (node.allocatable(), node.requested());
        let too_many = node.pods().len() as i64 + 1 > node.allowed_pods();
        let fits = |request: i64, room: i64, taken: i64| request <= 0 || request <= room - taken;
        let all_fit = fits(requests.milli_cpu, room.milli_cpu, taken.milli_cpu)
            && fits(requests.memory, room.memory, taken.memory)
            && fits(requests.ephemeral_storage, room.ephemeral_storage, taken.ephemeral_storage)
            && requests.scalars().is_empty();
        if !too_many && all_fit {
            return Verdict::Pass;
        }
        let mut reasons = SmallVec::new();
        let mut code = Code::Unschedulable;
        if too_many {
            reasons.push(Reason::Static("Too many pods"));
        }
        for (reason, request, room, taken) in [
            ("Insufficient cpu", requests.milli_cpu, room.milli_cpu, taken.milli_cpu),
            ("Insufficient memory", requests.memory, room.memory, taken.memory),
            (
                "Insufficient ephemeral-storage",
                requests.ephemeral_storage,
                room.ephemeral_storage,
                taken.ephemeral_storage,
            ),
        ] {
            if !fits(request, room, taken) {
                reasons.push(Reason::Static(reason));
                code = code.max(finality(request, room));
            }
        }
        for (name, request) in requests.scalars() {
            let room = room.scalar(name);
            if !fits(*request, room, taken.scalar(name)) && !self.is_ignored(name) {
                reasons.push(Reason::Insufficient(name.clone()));
                code = code.max(finality(*request, room));
            }
        }
        if reasons.is_empty() { Verdict::Pass } else { Verdict::Reject(Rejection { code, reasons, plugin: None }) }
    }
}

/// More than the empty node has cannot be freed by evictions.
fn finality(request: i64, room: i64) -> Code {
    if request > room { Code::Unresolvable } else { Code::Unschedulable }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        super::NODE_RESOURCES_FIT
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: filter, pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, Action::DELETE | Action::POD_SCALE_DOWN),
            Interest::new(Resource::Node, Action::ADD | Action::NODE_ALLOCATABLE),
            Interest::new(Resource::TargetPod, Action::POD_SCALE_DOWN),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (event.resource, event.nodes(), event.pods()) {
            (Resource::Node, (old, Some(new)), _) => {
                let empty = |node: &Arc<k8s_openapi::api::core::v1::Node>| {
                    let mut info = NodeInfo::unknown(NodeIdx(0), "".into());
                    info.set_node(Some(node.clone()), 0);
                    info
                };
                let after = empty(new);
                self.judge(pod.requests(), &after).is_pass()
                    && old.is_none_or(|old| has_grown(pod.requests(), &empty(old), &after))
            }
            (Resource::AssignedPod, _, (Some(old), None)) => old.node_name().or(old.nominated_node()).is_some(),
            (Resource::AssignedPod, _, (Some(old), Some(new))) => {
                new.node_name().is_some() && has_freed(pod.requests(), old.requests(), new.requests())
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

fn has_grown(requests: &Resources, before: &NodeInfo, after: &NodeInfo) -> bool {
    let (old, new) = (before.allocatable(), after.allocatable());
    after.allowed_pods() > before.allowed_pods() || has_freed(requests, new, old)
}

/// Whether `from` exceeds `to` in any resource that is requested.
fn has_freed(requests: &Resources, from: &Resources, to: &Resources) -> bool {
    (requests.milli_cpu > 0 && from.milli_cpu > to.milli_cpu)
        || (requests.memory > 0 && from.memory > to.memory)
        || (requests.ephemeral_storage > 0 && from.ephemeral_storage > to.ephemeral_storage)
        || requests.scalars().iter().any(|(name, amount)| *amount != 0 && from.scalar(name) > to.scalar(name))
}

impl Filter for NodeResourcesFit {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        self.judge(pod.requests(), node)
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// The pod's share of each scored resource.
#[derive(Clone, Default)]
struct Requests(Vec<i64>);

impl PreScore for NodeResourcesFit {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _: &Cluster, _: NodeList<'_>) -> bool {
        self.scorer.requests(pod, &mut state.get_or_default::<Requests>().0);
        true
    }
}

impl Score for NodeResourcesFit {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        self.scorer.score(&state.expect::<Requests>().0, node)
    }

    fn score_all(&self, state: &CycleState, _: &PodInfo, nodes: NodeList<'_>, scores: &mut [i64]) {
        self.scorer.score_all(&state.expect::<Requests>().0, nodes, scores);
    }

    fn is_local(&self) -> bool {
        true
    }
}
