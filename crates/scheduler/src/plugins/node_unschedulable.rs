//! NodeUnschedulable: cordoned nodes take no pods, except those that tolerate it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use crate::framework::{Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, Resource, Verdict};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;
use rules::names::UNSCHEDULABLE;
use rules::tolerations::any_tolerates;

/// Rejects nodes with `spec.unschedulable`.
pub struct NodeUnschedulable {
    taint: Taint,
}

impl Default for NodeUnschedulable {
    fn default() -> Self {
        let taint = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Default::default() };
        Self { taint }
    }
}

impl NodeUnschedulable {
    fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        any_tolerates(tolerations, &self.taint)
    }
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        super::NODE_UNSCHEDULABLE
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::Node, Action::ADD | Action::NODE_TAINT),
            Interest::new(Resource::TargetPod, Action::POD_TOLERATION),
        ]
    }

    fn hint(&self, _: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let cordoned = |node: &Arc<Node>| node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
        let helps = match (event.nodes(), event.pods()) {
            ((old, Some(new)), _) => old.is_none_or(cordoned) && !cordoned(new),
            (_, (_, Some(pod))) => self.is_tolerated(pod.tolerations()),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        if !node.is_unschedulable() || self.is_tolerated(pod.tolerations()) {
            return Verdict::Pass;
        }
        Verdict::unresolvable("node(s) were unschedulable")
    }

    fn is_local(&self) -> bool {
        true
    }
}
