//! NodeAffinity: node selectors and node affinity, of the pod and of the profile.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::normalize::scale_to_max;
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterOutcome,
    PreFilterResult, PreScore, Rejection, Resource, Score, Verdict,
};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;
use rules::selectors::{NodeFacts, NodeSelector, PreferredNodeTerm};

/// Rejects nodes outside the required affinity; ranks by the preferred one.
#[derive(Default)]
pub struct NodeAffinity {
    added_required: Option<NodeSelector>,
    added_preferred: Vec<PreferredNodeTerm>,
}

impl NodeAffinity {
    /// With affinity that the profile adds to every pod.
    pub fn new(added: Option<&core::NodeAffinity>) -> Self {
        let required = added.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = added.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        Self {
            added_required: required.map(NodeSelector::parse),
            added_preferred: PreferredNodeTerm::parse_all(preferred),
        }
    }

    fn matches(&self, pod: &PodInfo, node: &impl NodeFacts) -> bool {
        pod.required_node.as_ref().is_none_or(|r| r.matches(node))
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        super::NODE_AFFINITY
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter, pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::Node, Action::ADD | Action::NODE_LABEL)]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let (old, Some(new)) = event.nodes() else { return Hint::Queue };
        let enforced = self.added_required.as_ref().is_none_or(|s| s.matches(&**new));
        if enforced && self.matches(pod, &**new) && old.is_none_or(|old| !self.matches(pod, &**old)) {
            Hint::Queue
        } else {
            Hint::Skip
        }
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster) -> PreFilterResult {
        let Some(required) = &pod.required_node else {
            return Ok(if self.added_required.is_some() { PreFilterOutcome::Proceed } else { PreFilterOutcome::Skip });
        };
        // Terms are alternatives: only when all of them name nodes do the names bound the search.
        let mut names: Vec<String> = Vec::new();
        let terms = required.affinity().map_or(&[][..], NodeSelector::terms);
        for term in terms {
            let Some(of_term) = term.node_names() else { return Ok(PreFilterOutcome::Proceed) };
            names.extend(of_term.into_iter().map(str::to_owned));
        }
        if terms.is_empty() {
            return Ok(PreFilterOutcome::Proceed);
        }
        if names.is_empty() {
            return Err(Rejection::unresolvable("pod affinity terms conflict"));
        }
        names.sort_unstable();
        names.dedup();
        Ok(PreFilterOutcome::Only(names))
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        if self.added_required.as_ref().is_some_and(|s| !s.matches(node)) {
            return Verdict::unresolvable("node(s) didn't match scheduler-enforced node affinity");
        }
        if !self.matches(pod, node) {
            return Verdict::unresolvable("node(s) didn't match Pod's node affinity/selector");
        }
        Verdict::Pass
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster, _: NodeList<'_>) -> bool {
        !pod.preferred_nodes.is_empty() || !self.added_preferred.is_empty()
    }
}

impl Score for NodeAffinity {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let terms = self.added_preferred.iter().chain(&pod.preferred_nodes);
        terms.filter(|t| t.term.matches(node)).map(|t| t.weight).sum()
    }

    fn normalize(&self, _: &CycleState, scores: &mut [i64]) {
        scale_to_max(scores, false);
    }

    fn is_local(&self) -> bool {
        true
    }
}
