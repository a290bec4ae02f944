//! Scoring by allocation: how full a node would be, resource by resource, and what that is worth.

use smallvec::SmallVec;

use crate::framework::MAX_SCORE;
use crate::model::cluster::NodeList;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;
use crate::model::resources::is_scalar;

/// What is worth most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    Least,
    Most,
    /// What a broken line says: (utilization, score) points, both out of 100.
    Ratio(Vec<(i64, i64)>),
    /// Resources used in equal parts, and the pod making them more so.
    Balanced,
}

/// A resource and its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoredResource {
    pub name: String,
    /// Share in the score.
    pub weight: i64,
}

/// Scores nodes by the allocation of some resources.
#[derive(Debug, Clone)]
pub struct ResourceScorer {
    strategy: Strategy,
    resources: Vec<ScoredResource>,
}

impl Default for ResourceScorer {
    fn default() -> Self {
        Self::new(Strategy::Least, default_resources())
    }
}

/// CPU and memory, equally.
pub fn default_resources() -> Vec<ScoredResource> {
    ["cpu", "memory"].map(|name| ScoredResource { name: name.into(), weight: 1 }).into()
}

impl ResourceScorer {
    /// Scores these resources by this strategy.
    pub fn new(strategy: Strategy, resources: Vec<ScoredResource>) -> Self {
        Self { strategy, resources }
    }

    fn uses_exact_requests(&self) -> bool {
        self.strategy == Strategy::Balanced
    }

    /// The pod's request of each scored resource.
    pub fn requests(&self, pod: &PodInfo, requests: &mut Vec<i64>) {
        requests.clear();
        let (cpu, memory) = pod.scoring_requests();
        requests.extend(self.resources.iter().map(|r| match r.name.as_str() {
            "cpu" if !self.uses_exact_requests() => cpu,
            "memory" if !self.uses_exact_requests() => memory,
            name => pod.requests().get(name),
        }));
    }

    /// (requested with the pod, requested without it, allocatable) of a resource; `None` when it does not count.
    fn shares(&self, index: usize, request: i64, node: &NodeInfo) -> Option<(i64, i64, i64)> {
        let name = self.resources[index].name.as_str();
        let (cpu, memory) = node.non_zero_requested();
        let (room, taken) = match name {
            "cpu" => (
                node.allocatable().milli_cpu,
                if self.uses_exact_requests() { node.requested().milli_cpu } else { cpu },
            ),
            "memory" => {
                (node.allocatable().memory, if self.uses_exact_requests() { node.requested().memory } else { memory })
            }
            _ if request == 0 && is_scalar(name) => return None,
            _ => (node.allocatable().get(name), node.requested().get(name)),
        };
        (room != 0).then_some((taken + request, taken, room))
    }

    /// The scores of many nodes.
    pub fn score_all(&self, requests: &[i64], nodes: NodeList<'_>, scores: &mut [i64]) {
        for (score, node) in scores.iter_mut().zip(nodes.iter()) {
            *score = self.score(requests, node);
        }
    }

    /// The score of a node.
    pub fn score(&self, requests: &[i64], node: &NodeInfo) -> i64 {
        match &self.strategy {
            Strategy::Least => {
                self.weighted(
                    requests,
                    node,
                    |requested, room| {
                        if requested > room { 0 } else { (room - requested) * MAX_SCORE / room }
                    },
                )
            }
            Strategy::Most => self.weighted(requests, node, |requested, room| requested.min(room) * MAX_SCORE / room),
            Strategy::Ratio(shape) => self.ratio(requests, node, shape),
            Strategy::Balanced => {
                let (mut with, mut without) = (Balance::default(), Balance::default());
                for (index, request) in requests.iter().enumerate() {
                    if let Some((requested, taken, room)) = self.shares(index, *request, node) {
                        with.add(requested, room);
                        without.add(taken, room);
                    }
                }
                MAX_SCORE / 2 + (MAX_SCORE / 2 + with.score() - without.score()) / 2
            }
        }
    }

    fn weighted(&self, requests: &[i64], node: &NodeInfo, worth: impl Fn(i64, i64) -> i64) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (index, request) in requests.iter().enumerate() {
            if let Some((requested, _, room)) = self.shares(index, *request, node) {
                sum += worth(requested, room) * self.resources[index].weight;
                weights += self.resources[index].weight;
            }
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    fn ratio(&self, requests: &[i64], node: &NodeInfo, shape: &[(i64, i64)]) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (index, request) in requests.iter().enumerate() {
            let Some((requested, _, room)) = self.shares(index, *request, node) else { continue };
            let utilization = if requested > room { 100 } else { requested * 100 / room };
            let score = broken_line(shape, utilization);
            if score > 0 {
                sum += score * self.resources[index].weight;
                weights += self.resources[index].weight;
            }
        }
        if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
    }
}

/// The value at `x` of the line through the points, level beyond its ends.
pub fn broken_line(shape: &[(i64, i64)], x: i64) -> i64 {
    let Some(&(_, last)) = shape.last() else { return 0 };
    for (index, &(at, value)) in shape.iter().enumerate() {
        if x <= at {
            let Some(&(before, from)) = index.checked_sub(1).and_then(|i| shape.get(i)) else { return value };
            return from + (value - from) * (x - before) / (at - before);
        }
    }
    last
}

/// The used fractions of a node's resources.
#[derive(Default)]
struct Balance(SmallVec<[f64; 4]>);

impl Balance {
    fn add(&mut self, requested: i64, room: i64) {
        self.0.push((requested as f64 / room as f64).min(1.0));
    }

    fn score(&self) -> i64 {
        let deviation = match self.0.as_slice() {
            [] | [_] => 0.0,
            [a, b] => ((a - b) / 2.0).abs(),
            fractions => {
                let count = fractions.len() as f64;
                let mean = fractions.iter().sum::<f64>() / count;
                (fractions.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / count).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}
