//! Whether a node will do, from what is known of pods with the same needs, and otherwise from the filters.

use std::sync::Arc;

use super::World;
use super::promised::{Promises, filter_with_promised};
use crate::framework::{CycleState, Verdict};
use crate::metrics::{Cycle, Point};
use crate::model::node::NodeIdx;
use crate::model::pod::PodInfo;
use crate::scheduling::equivalence::{Kind, Sorting};

/// The filtering of nodes for one pod.
pub(super) struct Filtering<'a> {
    pub(super) world: World<'a>,
    pub(super) pod: &'a Arc<PodInfo>,
    pub(super) state: &'a CycleState,
    /// What was found out for pods with the same needs.
    pub(super) kind: &'a mut Kind,
    pub(super) cycle: &'a mut Cycle,
    pub(super) reached: &'a mut [Vec<u64>; 2],
    pub(super) promises: Promises,
    /// The node that is promised to the pod itself.
    pub(super) own: Option<NodeIdx>,
    /// How many filters look at nothing but the node, and how many there are.
    pub(super) local: usize,
    pub(super) all: usize,
    /// Whether the next node is to be measured filter by filter.
    pub(super) untimed: bool,
}

impl Filtering<'_> {
    /// What may be taken from what is known.
    pub(super) fn sorting(&self, wanted: usize) -> Sorting {
        Sorting {
            suffices: self.local == self.all && self.promises != Promises::Looked,
            promised: (self.promises == Promises::Remembered).then_some(self.own),
            wanted,
        }
    }

    pub(super) fn judge(&mut self, idx: NodeIdx) -> Verdict {
        let (cluster, profile) = (self.world.cluster, self.world.profile);
        let (state, pod, node) = (self.state, self.pod, cluster.node(idx));
        let generation = cluster.generations()[idx.row()];
        if !self.kind.passes(idx, generation) {
            let verdict = match std::mem::take(&mut self.untimed) {
                true => profile.run_some_filters_timed(0..self.local, state, pod, node, cluster, self.cycle),
                false => profile.run_some_filters(0..self.local, state, pod, node, cluster),
            };
            self.reached[0][profile.reached(0..self.local, &verdict)] += 1;
            match &verdict {
                Verdict::Reject(error) if !error.is_rejection() => return verdict,
                Verdict::Reject(rejection) => {
                    self.kind.judge(idx, generation, Some(rejection));
                    return verdict;
                }
                Verdict::Pass => self.kind.judge(idx, generation, None),
            }
        }
        let mut verdict = Verdict::Pass;
        if self.local < self.all {
            verdict = profile.run_some_filters(self.local..self.all, state, pod, node, cluster);
            self.reached[1][profile.reached(self.local..self.all, &verdict)] += 1;
        }
        let remembers = self.promises == Promises::Remembered && self.own != Some(idx);
        let is_settled =
            self.promises == Promises::None || (remembers && self.kind.passes_with_promised(idx, generation));
        if verdict.is_pass() && !is_settled {
            verdict = filter_with_promised(self.world, state, pod, node);
            match &verdict {
                Verdict::Pass if remembers => self.kind.judge_with_promised(idx, generation, None),
                Verdict::Reject(rejection) if remembers && rejection.is_rejection() => {
                    self.kind.judge_with_promised(idx, generation, Some(rejection));
                }
                _ => {}
            }
        }
        verdict
    }

    /// Says how many nodes each filter looked at.
    pub(super) fn count(&mut self) {
        for (position, at) in self.world.profile.filter.iter().enumerate() {
            if !self.state.skip_filters.contains(at.id) {
                let reached = &self.reached[usize::from(position >= self.local)];
                self.cycle.evaluated(at.name, Point::Filter, reached[position + 1..].iter().sum());
            }
        }
    }
}
