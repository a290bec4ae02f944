//! NodeName: a pod that names its node runs there or nowhere.

use std::sync::Arc;

use crate::framework::{
    Action, CycleState, Filter, Interest, Plugin, Points, PreFilter, PreFilterOutcome, PreFilterResult, Resource,
    Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// Rejects every node except the one named by the pod.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        super::NODE_NAME
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::Node, Action::ADD)]
    }
}

impl PreFilter for NodeName {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster) -> PreFilterResult {
        Ok(match pod.node_name() {
            Some(name) => PreFilterOutcome::Only(vec![name.to_owned()]),
            None => PreFilterOutcome::Skip,
        })
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        match pod.node_name() {
            Some(name) if name != node.name() => Verdict::unresolvable("node(s) didn't match the requested node name"),
            _ => Verdict::Pass,
        }
    }

    fn is_local(&self) -> bool {
        true
    }
}
