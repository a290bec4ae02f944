//! What evictions from a node would come to, remembered for pods with the same needs.
//!
//! Preemptors come in groups: replicas of one workload, each looking at the same nodes. The victims on a node depend on the
//! pod's needs and priority, on the node, on the pods promised to it and on the disruption budgets, provided that every
//! filter that has something to say looks at nothing else. Then the outcome for one replica holds for the next; otherwise
//! nothing is remembered. This is exact.

use std::sync::Arc;

use super::{Budgets, Victims};
use crate::framework::Rejection;
use crate::node::NodeIdx;
use crate::pod::PodInfo;
use crate::schedule::{Attempt, World};

/// Kinds of pods remembered.
const KINDS: usize = 4;

/// What evictions from a node come to.
#[derive(Clone)]
pub(super) enum Outcome {
    /// The pod would fit.
    Helps(Arc<Victims>),
    /// It would not.
    Rejected(Rejection),
}

/// What an outcome depends on.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Version {
    node: u64,
    promised: u64,
}

struct Kind {
    like: Arc<PodInfo>,
    filters: usize,
    last_used: u64,
    rows: Vec<Option<(Version, Outcome)>>,
}

/// What is remembered.
#[derive(Default)]
pub(super) struct Memory {
    kinds: Vec<Kind>,
    budgets: Budgets,
    budgets_generation: u64,
    now: u64,
}

/// What is remembered for one attempt.
pub(super) struct Remembered<'a> {
    world: World<'a>,
    rows: Option<&'a mut Vec<Option<(Version, Outcome)>>>,
    budgets: &'a Budgets,
    /// Where the pod itself is promised room, which does not count for it.
    own: Option<NodeIdx>,
}

impl Memory {
    /// The memory for pods like the one of this attempt, emptied of what no longer holds.
    pub(super) fn of<'a>(&'a mut self, attempt: &Attempt<'a>) -> Remembered<'a> {
        let (world, pod) = (attempt.world, attempt.pod);
        let objects = &world.cluster.objects;
        if self.budgets_generation != objects.budgets_generation {
            self.budgets_generation = objects.budgets_generation;
            self.budgets = Budgets::of(world.cluster);
            self.kinds.clear();
        }
        let filters = world.profile.split_filters(attempt.state);
        let is_local = filters == world.profile.filter.len() && !world.profile.follows_pods(attempt.state);
        let rows = is_local.then(|| rows(&mut self.kinds, &mut self.now, pod, filters, world.cluster.rows()));
        let own = world.nominator.node_of(pod.uid()).and_then(|name| world.cluster.node_named(name));
        Remembered { world, rows, budgets: &self.budgets, own: own.map(|node| node.idx()) }
    }
}

fn rows<'a>(
    kinds: &'a mut Vec<Kind>,
    now: &mut u64,
    pod: &Arc<PodInfo>,
    filters: usize,
    count: usize,
) -> &'a mut Vec<Option<(Version, Outcome)>> {
    *now += 1;
    let is_like = |k: &Kind| k.filters == filters && k.like.priority == pod.priority && k.like.has_same_needs(pod);
    let position = kinds.iter().position(is_like).unwrap_or_else(|| {
        let fresh = Kind { like: pod.clone(), filters, last_used: 0, rows: Vec::new() };
        if kinds.len() < KINDS {
            kinds.push(fresh);
            return kinds.len() - 1;
        }
        let oldest = kinds.iter().enumerate().min_by_key(|(_, k)| k.last_used).map_or(0, |(i, _)| i);
        kinds[oldest] = fresh;
        oldest
    });
    let kind = &mut kinds[position];
    kind.last_used = *now;
    kind.rows.resize(count, None);
    &mut kind.rows
}

impl Remembered<'_> {
    /// What evictions from a node come to: remembered, or found out now.
    pub(super) fn outcome(
        &mut self,
        node: NodeIdx,
        find_out: impl FnOnce(&Budgets) -> Result<Victims, Rejection>,
    ) -> Outcome {
        let (cluster, nominator) = (self.world.cluster, self.world.nominator);
        let promised = if nominator.is_empty() { 0 } else { nominator.version(cluster.node(node).name()) };
        let version = Version { node: cluster.generations()[node.row()], promised };
        let row = match &mut self.rows {
            Some(rows) if self.own != Some(node) => rows.get_mut(node.row()),
            _ => None,
        };
        if let Some(Some((known, outcome))) = &row
            && *known == version
        {
            return outcome.clone();
        }
        let outcome = match find_out(self.budgets) {
            Ok(victims) => Outcome::Helps(Arc::new(victims)),
            Err(rejection) => Outcome::Rejected(rejection),
        };
        if let Some(row) = row {
            *row = Some((version, outcome.clone()));
        }
        outcome
    }
}
