//! NodePorts: a host port is taken once.

use std::sync::Arc;

use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterOutcome,
    PreFilterResult, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::pod::{HostPort, PodInfo};

/// Rejects nodes where a host port of the pod is taken.
pub struct NodePorts;

fn conflict(wanted: &[HostPort], taken: &[HostPort]) -> bool {
    wanted.iter().any(|w| taken.iter().any(|t| w.conflicts(t)))
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        super::NODE_PORTS
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::AssignedPod, Action::DELETE), Interest::new(Resource::Node, Action::ADD)]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let (Some(deleted), None) = event.pods() else { return Hint::Queue };
        let held = deleted.node_name().or(deleted.nominated_node()).is_some();
        if held && conflict(&pod.host_ports, &deleted.host_ports) { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster) -> PreFilterResult {
        Ok(if pod.host_ports.is_empty() { PreFilterOutcome::Skip } else { PreFilterOutcome::Proceed })
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        if conflict(&pod.host_ports, node.ports()) {
            return Verdict::unschedulable("node(s) didn't have free ports for the requested pod ports");
        }
        Verdict::Pass
    }

    fn is_local(&self) -> bool {
        true
    }
}
