//! NodeResourcesBalancedAllocation: nodes whose CPU and memory are used in equal parts stay useful longer.

use std::sync::Arc;

use super::resource_score::{ResourceScorer, ScoredResource, Strategy, default_resources};
use crate::framework::{CycleState, Interest, Plugin, Points, PreScore, Score};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// Ranks nodes by how evenly their resources would be used.
pub struct BalancedAllocation {
    scorer: ResourceScorer,
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        Self::new(default_resources())
    }
}

impl BalancedAllocation {
    pub fn new(resources: Vec<ScoredResource>) -> Self {
        Self { scorer: ResourceScorer::new(Strategy::Balanced, resources) }
    }
}

/// The pod's share of each scored resource.
#[derive(Clone, Default)]
struct Requests(Vec<i64>);

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        super::BALANCED_ALLOCATION
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        // It rejects no pod.
        Vec::new()
    }
}

impl PreScore for BalancedAllocation {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _: &Cluster, _: NodeList<'_>) -> bool {
        let requests = &mut state.get_or_default::<Requests>().0;
        self.scorer.requests(pod, requests);
        requests.iter().any(|r| *r != 0)
    }
}

impl Score for BalancedAllocation {
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
