//! TaintToleration: taints keep pods off, or merely discourage them, unless tolerated.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::normalize::scale_to_max;
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, Resource, Score, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;
use rules::tolerations::{any_tolerates, is_repelled};

/// Rejects nodes with untolerated `NoSchedule` and `NoExecute` taints; ranks by untolerated `PreferNoSchedule` ones.
pub struct TaintToleration;

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        super::TAINT_TOLERATION
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: filter, score)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::Node, Action::ADD | Action::NODE_TAINT),
            Interest::new(Resource::TargetPod, Action::POD_TOLERATION),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        match event.nodes() {
            (old, Some(new)) => {
                let was_repelled = old.is_none_or(|n| is_repelled(taints(n), pod.tolerations()));
                if was_repelled && !is_repelled(taints(new), pod.tolerations()) { Hint::Queue } else { Hint::Skip }
            }
            _ => Hint::Queue,
        }
    }
}

impl Filter for TaintToleration {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        if node.has_repelling_taints() && is_repelled(node.taints(), pod.tolerations()) {
            return Verdict::unresolvable("node(s) had untolerated taint(s)");
        }
        Verdict::Pass
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl Score for TaintToleration {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        if !node.has_discouraging_taints() {
            return 0;
        }
        let discouraging = node.taints().iter().filter(|t| t.effect == "PreferNoSchedule");
        discouraging.filter(|t| !any_tolerates(pod.tolerations(), t)).count() as i64
    }

    fn normalize(&self, _: &CycleState, scores: &mut [i64]) {
        scale_to_max(scores, true);
    }

    fn is_local(&self) -> bool {
        true
    }
}
