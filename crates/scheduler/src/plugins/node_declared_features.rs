//! NodeDeclaredFeatures: a pod that relies on a feature of the kubelet runs where the kubelet declares it.

use std::sync::Arc;

use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterOutcome,
    PreFilterResult, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// Rejects nodes that do not declare the features that the pod relies on.
pub struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        super::NODE_DECLARED_FEATURES
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::Node, Action::ADD | Action::NODE_DECLARED_FEATURE),
            Interest::new(Resource::TargetPod, Action::UPDATE),
        ]
    }

    fn hint(&self, _: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (event.nodes(), event.pods()) {
            ((Some(old), Some(new)), _) => {
                let declared = |node: &k8s_openapi::api::core::v1::Node| {
                    node.status.as_ref().and_then(|s| s.declared_features.clone()).unwrap_or_default()
                };
                declared(old) != declared(new)
            }
            (_, (Some(old), Some(new))) => old.features != new.features,
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for NodeDeclaredFeatures {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster) -> PreFilterResult {
        Ok(if pod.features.is_empty() { PreFilterOutcome::Skip } else { PreFilterOutcome::Proceed })
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        let declared = node.node().and_then(|n| n.status.as_ref()?.declared_features.as_deref()).unwrap_or_default();
        if pod.features.iter().all(|wanted| declared.iter().any(|feature| feature == *wanted)) {
            return Verdict::Pass;
        }
        Verdict::unresolvable("node(s) didn't match Pod's required features")
    }

    fn is_local(&self) -> bool {
        true
    }
}
