//! One scheduling cycle: from a pod and a frozen cluster to a node, or to the reasons why there is none.
//!
//! Synchronous, deterministic for a seed, and free of allocation for pods without special requirements: all buffers outlive
//! the cycle. Filtering starts where the last cycle stopped and ends as soon as enough nodes are found, so that in a large
//! cluster the cost per pod is bounded and all nodes get their turn.

mod filter;
mod promised;

use std::sync::Arc;

use informer::Clock;
use jiff::Timestamp;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::framework::extender::{Extender, MAX_EXTENDER_PRIORITY};
use crate::framework::{
    Code, CycleState, Diagnosis, MAX_SCORE, PluginId, PostFilterOutcome, PreFiltered, Profile, Rejection, Verdict,
};
use crate::metrics::{Cycle, Point, Status};
use crate::model::cluster::Cluster;
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::pod::PodInfo;
use crate::queue::Nominator;
use crate::scheduling::equivalence::{Equivalence, MAX_SCORES, Sorted};
use filter::Filtering;
use promised::Promises;
pub use promised::filter_with_nominated;

/// Fewer nodes than this are always all considered.
const MIN_FEASIBLE_NODES: usize = 100;
/// However large the cluster, at least so many percent are considered.
const MIN_FEASIBLE_PERCENTAGE: i64 = 5;

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub node: NodeIdx,
    /// How many nodes were looked at.
    pub evaluated: usize,
    /// How many would have done.
    pub feasible: usize,
}

/// Why a pod goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// There are no nodes at all.
    NoNodes,
    /// No node will do; the diagnosis says why.
    Unschedulable,
    Error(Rejection),
}

/// What a cycle looks at.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The cluster, prepared for the pod.
    pub cluster: &'a Cluster,
    pub profile: &'a Profile,
    pub nominator: &'a Nominator,
    /// Other processes that take part.
    pub extenders: &'a [Arc<dyn Extender>],
    /// The plugin number of extenders, for diagnoses.
    pub extender_id: PluginId,
    /// When the cycle began.
    pub now: Timestamp,
}

/// The nodes to filter.
#[derive(Clone, Copy)]
struct Among<'a> {
    nodes: &'a [NodeIdx],
    /// So many feasible ones are enough.
    wanted: usize,
    /// Where in the list to begin.
    start: usize,
}

/// An attempt that found no node, as PostFilter plugins see it.
pub struct Attempt<'a> {
    /// What the cycle looks at.
    pub world: World<'a>,
    /// The states of the plugins.
    pub state: &'a mut CycleState,
    pub pod: &'a Arc<PodInfo>,
    /// Why there is no node.
    pub diagnosis: &'a Diagnosis,
    /// For choices among equals.
    pub rng: &'a mut SmallRng,
}

/// The algorithm, with the buffers and the memory that cycles share.
pub struct Algorithm {
    percentage_of_nodes_to_score: i32,
    next_start: usize,
    rng: SmallRng,
    /// States of the last cycle's plugins.
    pub state: CycleState,
    /// Why the last cycle found no node.
    pub diagnosis: Diagnosis,
    equivalence: Equivalence,
    feasible: Vec<NodeIdx>,
    totals: Vec<i64>,
    scratch: Vec<i64>,
    raw: Vec<[i32; MAX_SCORES]>,
    /// How often each known rejection was met in this cycle.
    alike: Vec<usize>,
    /// How many nodes came how far through the filters, the shared ones and the others.
    reached: [Vec<u64>; 2],
    /// What the cycle measures.
    pub cycle: Cycle,
}

impl Algorithm {
    /// With the scheduler-wide percentage (0 adapts to the cluster's size) and a seed for choices among equals.
    pub fn new(percentage_of_nodes_to_score: i32, seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            alike: Vec::new(),
            reached: Default::default(),
            cycle: Cycle::new(clock),
            percentage_of_nodes_to_score,
            next_start: 0,
            rng: SmallRng::seed_from_u64(seed),
            state: CycleState::default(),
            diagnosis: Diagnosis::default(),
            equivalence: Equivalence::default(),
            feasible: Vec::new(),
            totals: Vec::new(),
            scratch: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// Finds a node for a pod.
    pub fn schedule(&mut self, world: World<'_>, pod: &Arc<PodInfo>) -> Result<Placement, Failure> {
        self.state.reset();
        self.diagnosis.clear();
        self.cycle.begin();
        if world.cluster.order().is_empty() {
            return Err(Failure::NoNodes);
        }
        self.find_feasible(world, pod)?;
        let evaluated = self.looked_at();
        let node = match self.feasible.as_slice() {
            [] => return Err(Failure::Unschedulable),
            [only] => *only,
            _ => self.best(world, pod),
        };
        Ok(Placement { node, evaluated, feasible: self.feasible.len() })
    }

    /// How many nodes the last cycle looked at.
    pub fn looked_at(&self) -> usize {
        self.feasible.len() + self.diagnosis.nodes.len()
    }

    /// Asks the PostFilter plugins to make room, after [`Failure::Unschedulable`].
    pub fn post_filter(&mut self, world: World<'_>, pod: &Arc<PodInfo>) -> Option<PostFilterOutcome> {
        let mut outcome: Option<PostFilterOutcome> = None;
        self.cycle.restart();
        let status = |outcome: &PostFilterOutcome| match outcome.success {
            true => Status::Success,
            false => Status::Rejected(Code::Unschedulable),
        };
        for at in &world.profile.post_filter {
            let mut attempt =
                Attempt { world, state: &mut self.state, pod, diagnosis: &self.diagnosis, rng: &mut self.rng };
            let answer = self.cycle.plugin(at.name, Point::PostFilter, || at.plugin.post_filter(&mut attempt), status);
            if answer.success {
                outcome = Some(answer);
                break;
            }
            outcome = Some(match outcome {
                None => answer,
                Some(before) => PostFilterOutcome {
                    result: answer.result.or(before.result),
                    success: false,
                    message: format!("{}, {}", before.message, answer.message),
                },
            });
        }
        if let Some(outcome) = &outcome {
            self.cycle.point(Point::PostFilter, status(outcome));
        }
        self.diagnosis.post_filter = outcome.as_ref().map(|o| o.message.clone());
        outcome
    }

    fn find_feasible(&mut self, world: World<'_>, pod: &Arc<PodInfo>) -> Result<(), Failure> {
        self.feasible.clear();
        let cluster = world.cluster;
        let narrowed =
            world.profile.run_pre_filter(&mut self.state, pod, cluster, &mut self.diagnosis, &mut self.cycle);
        let status = match &narrowed {
            Ok(Some(_)) => Status::Success,
            Ok(None) => Status::Rejected(self.diagnosis.pre_filter_code().unwrap_or(Code::Unresolvable)),
            Err(error) => Status::Rejected(error.code),
        };
        self.cycle.point(Point::PreFilter, status);
        let Some(narrowed) = narrowed.map_err(Failure::Error)? else { return Ok(()) };

        // A nominated pod tries its node first: room was made there, and evicting more elsewhere would be a waste.
        if let Some(node) = pod.nominated_node().and_then(|name| cluster.node_named(name)) {
            let blamed = (self.diagnosis.rejectors, self.diagnosis.pending);
            self.filter_nodes(world, pod, Among { nodes: &[node.idx()], wanted: 1, start: 0 })?;
            if !self.feasible.is_empty() {
                return Ok(());
            }
            self.diagnosis.clear();
            (self.diagnosis.rejectors, self.diagnosis.pending) = blamed;
        }

        let all = cluster.order().len();
        match narrowed {
            PreFiltered::All => {
                let start = self.next_start % all;
                let among = Among { nodes: cluster.order(), wanted: self.wanted(world, all), start };
                let processed = self.filter_nodes(world, pod, among)?;
                self.next_start = (start + processed) % all;
            }
            PreFiltered::Only(names, plugins) => {
                let nodes: Vec<_> = names.iter().filter_map(|n| cluster.node_named(n)).map(NodeInfo::idx).collect();
                let text = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
                self.diagnosis.exclude_rest(Rejection::unresolvable(text));
                let among = Among { nodes: &nodes, wanted: self.wanted(world, nodes.len()), start: 0 };
                let processed = self.filter_nodes(world, pod, among)?;
                self.next_start = (self.next_start + processed) % all;
            }
        }
        Ok(())
    }

    /// How many feasible nodes are enough.
    fn wanted(&self, world: World<'_>, all: usize) -> usize {
        let scoring = !world.profile.score.is_empty() || world.extenders.iter().any(|e| e.prioritizes() || e.filters());
        let percentage = world.profile.percentage_of_nodes_to_score.unwrap_or(self.percentage_of_nodes_to_score);
        if scoring { feasible_nodes_to_find(percentage, all) } else { 1 }
    }

    /// Filters nodes until enough are feasible; the number of nodes looked at.
    fn filter_nodes(&mut self, world: World<'_>, pod: &Arc<PodInfo>, among: Among<'_>) -> Result<usize, Failure> {
        let outcome = self.filter_some(world, pod, among);
        let status = match &outcome {
            Ok(_) if self.feasible.is_empty() => Status::Rejected(Code::Unschedulable),
            Ok(_) => Status::Success,
            Err(_) => Status::Rejected(Code::Error),
        };
        self.cycle.point(Point::Filter, status);
        let processed = outcome?;
        self.ask_extenders(world, pod)?;
        Ok(processed)
    }

    fn filter_some(&mut self, world: World<'_>, pod: &Arc<PodInfo>, among: Among<'_>) -> Result<usize, Failure> {
        let (cluster, profile) = (world.cluster, world.profile);
        let Among { nodes, wanted, start } = among;
        let (front, back) = nodes.split_at(start);
        let (local, all) = (profile.split_filters(&self.state), profile.filter.len());
        let kind = self.equivalence.kind(pod, local, cluster);
        let promises = Promises::to(world, &self.state, pod);
        if promises == Promises::Remembered {
            kind.count_promised(pod.priority);
        }
        // Its own promise does not count for the pod, so what others found there is nothing for it.
        let own = world.nominator.node_of(pod.uid()).and_then(|name| cluster.node_named(name)).map(NodeInfo::idx);
        self.alike.clear();
        for reached in &mut self.reached {
            reached.clear();
            reached.resize(all + 1, 0);
        }
        let mut filtering = Filtering {
            world,
            pod,
            state: &self.state,
            kind,
            cycle: &mut self.cycle,
            reached: &mut self.reached,
            promises,
            own,
            local,
            all,
            untimed: false,
        };
        filtering.untimed = filtering.cycle.is_sampled();
        let mut failed = None;
        let mut processed = 0;
        let sorting = filtering.sorting(wanted);
        let mut rest = [back, front].into_iter();
        let mut list: &[NodeIdx] = &[];
        loop {
            let mut into =
                Sorted { feasible: &mut self.feasible, rejected: &mut self.diagnosis.nodes, alike: &mut self.alike };
            let known = filtering.kind.sort_known(list, cluster.generations(), sorting, &mut into);
            processed += known;
            list = &list[known..];
            if self.feasible.len() >= wanted {
                break;
            }
            let Some((idx, others)) = list.split_first() else {
                match rest.next() {
                    Some(next) => list = next,
                    None => break,
                }
                continue;
            };
            list = others;
            processed += 1;
            match filtering.judge(*idx) {
                Verdict::Pass => self.feasible.push(*idx),
                Verdict::Reject(rejection) if rejection.is_rejection() => self.diagnosis.reject_node(*idx, &rejection),
                Verdict::Reject(error) => {
                    failed = Some(Failure::Error(error));
                    break;
                }
            }
        }
        for (number, count) in self.alike.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.diagnosis.reject_alike(filtering.kind.rejection(number), *count);
        }
        filtering.count();
        failed.map_or(Ok(processed), Err)
    }

    fn ask_extenders(&mut self, world: World<'_>, pod: &PodInfo) -> Result<(), Failure> {
        for extender in world.extenders.iter().filter(|e| e.filters()) {
            if self.feasible.is_empty() {
                break;
            }
            if !extender.is_interested(pod) {
                continue;
            }
            let nodes: Vec<&NodeInfo> = world.cluster.list(&self.feasible).iter().collect();
            let answer = match extender.filter(pod, &nodes) {
                Ok(answer) => answer,
                Err(error) if extender.is_ignorable() => {
                    tracing::info!(extender = extender.name(), %error, "extender failed and is ignorable");
                    continue;
                }
                Err(error) => return Err(Failure::Error(Rejection::error(error.to_string()))),
            };
            let reject = |name: &str, rejection: Rejection, diagnosis: &mut Diagnosis| {
                if let Some(node) = world.cluster.node_named(name) {
                    diagnosis.reject_node(node.idx(), &rejection.by(world.extender_id));
                }
            };
            for (name, why) in &answer.unresolvable {
                reject(name, Rejection::unresolvable(why.clone()), &mut self.diagnosis);
            }
            for (name, why) in
                answer.failed.iter().filter(|(name, _)| answer.unresolvable.iter().all(|(u, _)| u != name))
            {
                reject(name, Rejection::unschedulable(why.clone()), &mut self.diagnosis);
            }
            let before = self.feasible.len();
            self.feasible.retain(|idx| answer.nodes.iter().any(|n| n == world.cluster.node(*idx).name()));
            if self.feasible.len() != before {
                self.diagnosis.rejectors.insert(world.extender_id);
            }
        }
        Ok(())
    }

    /// Adds up the weighted scores of the feasible nodes; local ones are remembered.
    fn score_nodes(&mut self, world: World<'_>, pod: &Arc<PodInfo>) {
        let (cluster, state) = (world.cluster, &self.state);
        let nodes = cluster.list(&self.feasible);
        self.totals.clear();
        self.totals.resize(nodes.len(), 0);
        let live = || world.profile.score.iter().filter(|at| !state.skip_scores.contains(at.id));
        let local = || live().filter(|at| at.plugin.is_local()).take(MAX_SCORES);
        let kind = self.equivalence.kind(pod, world.profile.split_filters(state), cluster);
        self.raw.clear();
        let mut fresh = 0;
        let mut untimed = self.cycle.is_sampled();
        for node in nodes.iter() {
            let generation = cluster.generations()[node.idx().row()];
            let known = kind.scores(node.idx(), generation).copied();
            self.raw.push(known.unwrap_or_else(|| {
                let mut scores = [0; MAX_SCORES];
                fresh += 1;
                let timed = std::mem::take(&mut untimed);
                for (score, at) in scores.iter_mut().zip(local()) {
                    let run = || at.plugin.score(state, pod, node) as i32;
                    *score =
                        if timed { self.cycle.plugin(at.name, Point::Score, run, |_| Status::Success) } else { run() };
                }
                kind.score(node.idx(), generation, scores);
                scores
            }));
        }
        let mut position = 0;
        for at in live() {
            self.scratch.clear();
            if at.plugin.is_local() && position < MAX_SCORES {
                self.scratch.extend(self.raw.iter().map(|scores| i64::from(scores[position])));
                position += 1;
                self.cycle.evaluated(at.name, Point::Score, fresh);
            } else {
                self.scratch.resize(nodes.len(), 0);
                let run = || at.plugin.score_all(state, pod, nodes, &mut self.scratch);
                self.cycle.plugin(at.name, Point::Score, run, |()| Status::Success);
                self.cycle.evaluated(at.name, Point::Score, nodes.len() as u64);
            }
            let run = || at.plugin.normalize(state, &mut self.scratch);
            self.cycle.plugin(at.name, Point::ScoreExtensionNormalize, run, |()| Status::Success);
            for (total, score) in self.totals.iter_mut().zip(&self.scratch) {
                *total += score * at.weight;
            }
        }
        self.cycle.point(Point::Score, Status::Success);
    }

    /// The best of several feasible nodes; one at random among equals.
    fn best(&mut self, world: World<'_>, pod: &Arc<PodInfo>) -> NodeIdx {
        let nodes = world.cluster.list(&self.feasible);
        world.profile.run_pre_score(&mut self.state, pod, world.cluster, nodes, &mut self.cycle);
        self.score_nodes(world, pod);
        let nodes = world.cluster.list(&self.feasible);
        for extender in world.extenders.iter().filter(|e| e.prioritizes() && e.is_interested(pod)) {
            let listed: Vec<&NodeInfo> = nodes.iter().collect();
            match extender.prioritize(pod, &listed) {
                Ok((scores, weight)) => {
                    for (name, score) in scores {
                        if let Some(position) = listed.iter().position(|n| n.name() == name) {
                            self.totals[position] += score * weight * (MAX_SCORE / MAX_EXTENDER_PRIORITY);
                        }
                    }
                }
                Err(error) => tracing::debug!(extender = extender.name(), %error, "extender gave no scores"),
            }
        }
        let mut best = 0;
        let mut equals = 1;
        for position in 1..self.feasible.len() {
            match self.totals[position].cmp(&self.totals[best]) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Greater => (best, equals) = (position, 1),
                std::cmp::Ordering::Equal => {
                    equals += 1;
                    if self.rng.random_range(0..equals) == 0 {
                        best = position;
                    }
                }
            }
        }
        self.feasible[best]
    }
}

/// Counts one more of this number.
pub(crate) fn count(counts: &mut Vec<usize>, number: usize) {
    if counts.len() <= number {
        counts.resize(number + 1, 0);
    }
    counts[number] += 1;
}

/// How many feasible nodes are enough in a cluster of this size.
pub fn feasible_nodes_to_find(percentage: i32, all: usize) -> usize {
    if all < MIN_FEASIBLE_NODES {
        return all;
    }
    let percentage = match i64::from(percentage) {
        0 => (50 - all as i64 / 125).max(MIN_FEASIBLE_PERCENTAGE),
        given => given,
    };
    ((all as i64 * percentage / 100) as usize).max(MIN_FEASIBLE_NODES)
}

#[cfg(test)]
mod tests;
