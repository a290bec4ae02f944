//! Pods with the same needs share what was found out about a node, for as long as the node stays the same.
//!
//! Replicas differ in name only. What filters and scores that are *local* (see [`Filter::is_local`] and
//! [`Score::is_local`]) said of a node for one replica holds for the next one, unless the node has changed; every change
//! gives a node a new generation, and so does every change of the pods that are promised to it. So the answers are kept per
//! node with its generation, for the few kinds of pods seen last. This is exact: nothing is reused that could have become
//! different.
//!
//! [`Filter::is_local`]: crate::framework::Filter::is_local
//! [`Score::is_local`]: crate::framework::Score::is_local

use std::sync::Arc;

use crate::framework::{Code, Rejection};
use crate::model::cluster::Cluster;
use crate::model::node::NodeIdx;
use crate::model::pod::PodInfo;

/// Kinds of pods remembered.
const KINDS: usize = 8;
/// Local scores remembered per node; profiles with more score without memory.
pub const MAX_SCORES: usize = 6;

/// What filters said of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Judged {
    /// The node's generation then; zero for never.
    generation: u64,
    /// Zero for passing, otherwise one more than the position among the kind's rejections.
    verdict: u32,
}

/// What scores said of a node.
#[derive(Clone, Copy, Default)]
struct Scored {
    /// The node's generation then; zero for never.
    generation: u64,
    scores: [i32; MAX_SCORES],
}

/// What is remembered for one kind of pods. Scans over all nodes look at verdicts only, so these lie apart.
pub struct Kind {
    like: Arc<PodInfo>,
    /// How many filters the verdicts cover.
    filters: usize,
    images_generation: u64,
    last_used: u64,
    rejections: Vec<Rejection>,
    /// How final each of them is.
    codes: Vec<Code>,
    judged: Vec<Judged>,
    scored: Vec<Scored>,
    /// The verdicts with the pods that are promised to a node, for pods of one priority.
    promised: Vec<Judged>,
    promised_for: i32,
}

/// How far what is known decides about nodes.
#[derive(Debug, Clone, Copy)]
pub struct Sorting {
    /// Whether a node that is known to pass has nothing else to pass.
    pub suffices: bool,
    /// Whether promised pods count: all but those on the node given here, of which nothing is known for this pod.
    pub promised: Option<Option<NodeIdx>>,
    /// So many feasible nodes are enough.
    pub wanted: usize,
}

/// Where nodes are sorted into.
pub struct Sorted<'a> {
    pub feasible: &'a mut Vec<NodeIdx>,
    /// Those that do not.
    pub rejected: &'a mut Vec<(NodeIdx, Code)>,
    /// How many of these for the reason of each number.
    pub alike: &'a mut Vec<usize>,
}

impl Kind {
    /// Whether a node of this generation is known to pass.
    pub fn passes(&self, node: NodeIdx, generation: u64) -> bool {
        self.judged.get(node.row()).is_some_and(|judged| *judged == Judged { generation, verdict: 0 })
    }

    /// Whether a node of this generation is known to pass with the pods that are promised to it.
    pub fn passes_with_promised(&self, node: NodeIdx, generation: u64) -> bool {
        self.promised.get(node.row()).is_some_and(|judged| *judged == Judged { generation, verdict: 0 })
    }

    /// Sorts the nodes at the beginning of a list of which everything is known; how many these are. In a cluster of many
    /// replicas that is nearly all of them, so this loop does nothing else.
    pub fn sort_known(&self, nodes: &[NodeIdx], generations: &[u64], known: Sorting, into: &mut Sorted<'_>) -> usize {
        into.alike.resize(self.rejections.len().max(into.alike.len()), 0);
        for (position, node) in nodes.iter().enumerate() {
            if into.feasible.len() >= known.wanted {
                return position;
            }
            let (row, generation) = (node.row(), generations[node.row()]);
            let judged = self.judged[row];
            if judged.generation != generation || (judged.verdict == 0 && !known.suffices) {
                return position;
            }
            let mut verdict = judged.verdict;
            if verdict == 0
                && let Some(own) = known.promised
            {
                let promised = self.promised[row];
                if promised.generation != generation || own == Some(*node) {
                    return position;
                }
                verdict = promised.verdict;
            }
            match (verdict as usize).checked_sub(1) {
                None => into.feasible.push(*node),
                Some(number) => {
                    into.rejected.push((*node, self.codes[number]));
                    into.alike[number] += 1;
                }
            }
        }
        nodes.len()
    }

    /// A rejection by its number.
    pub fn rejection(&self, number: usize) -> &Rejection {
        &self.rejections[number]
    }

    pub fn judge(&mut self, node: NodeIdx, generation: u64, rejection: Option<&Rejection>) {
        let verdict = self.number(rejection);
        if let Some(judged) = self.judged.get_mut(node.row()) {
            *judged = Judged { generation, verdict };
        }
    }

    /// Makes ready for verdicts that count promised pods of at least this priority.
    pub fn count_promised(&mut self, priority: i32) {
        if self.promised_for != priority {
            self.promised_for = priority;
            self.promised.clear();
        }
        self.promised.resize(self.judged.len(), Judged::default());
    }

    /// Remembers a verdict with the pods that are promised to a node.
    pub fn judge_with_promised(&mut self, node: NodeIdx, generation: u64, rejection: Option<&Rejection>) {
        let verdict = self.number(rejection);
        if let Some(judged) = self.promised.get_mut(node.row()) {
            *judged = Judged { generation, verdict };
        }
    }

    fn number(&mut self, rejection: Option<&Rejection>) -> u32 {
        let Some(rejection) = rejection else { return 0 };
        let known = self.rejections.iter().position(|r| r == rejection);
        let position = known.unwrap_or_else(|| {
            self.rejections.push(rejection.clone());
            self.codes.push(rejection.code);
            self.rejections.len() - 1
        });
        position as u32 + 1
    }

    /// The raw scores of a node of this generation.
    pub fn scores(&self, node: NodeIdx, generation: u64) -> Option<&[i32; MAX_SCORES]> {
        self.scored.get(node.row()).filter(|scored| scored.generation == generation).map(|scored| &scored.scores)
    }

    pub fn score(&mut self, node: NodeIdx, generation: u64, scores: [i32; MAX_SCORES]) {
        if let Some(scored) = self.scored.get_mut(node.row()) {
            *scored = Scored { generation, scores };
        }
    }
}

/// What is remembered for the kinds of pods seen last.
#[derive(Default)]
pub struct Equivalence {
    kinds: Vec<Kind>,
    now: u64,
}

impl Equivalence {
    /// The memory for pods like this one, judged by so many filters, emptied of what no longer holds.
    pub fn kind(&mut self, pod: &Arc<PodInfo>, filters: usize, cluster: &Cluster) -> &mut Kind {
        self.now += 1;
        let position =
            self.kinds.iter().position(|k| k.filters == filters && k.like.has_same_needs(pod)).unwrap_or_else(|| {
                let fresh = Kind {
                    like: pod.clone(),
                    filters,
                    images_generation: cluster.images_generation(),
                    last_used: 0,
                    rejections: Vec::new(),
                    codes: Vec::new(),
                    judged: Vec::new(),
                    scored: Vec::new(),
                    promised: Vec::new(),
                    promised_for: pod.priority,
                };
                if self.kinds.len() < KINDS {
                    self.kinds.push(fresh);
                    return self.kinds.len() - 1;
                }
                let oldest = self.kinds.iter().enumerate().min_by_key(|(_, k)| k.last_used).map_or(0, |(i, _)| i);
                self.kinds[oldest] = fresh;
                oldest
            });
        let kind = &mut self.kinds[position];
        kind.last_used = self.now;
        if kind.images_generation != cluster.images_generation() {
            kind.images_generation = cluster.images_generation();
            kind.judged.clear();
            kind.scored.clear();
            kind.promised.clear();
            kind.rejections.clear();
            kind.codes.clear();
        }
        kind.judged.resize(cluster.rows(), Judged::default());
        kind.scored.resize(cluster.rows(), Scored::default());
        kind
    }
}
