//! What evictions from a node would come to, remembered for pods with the same needs.
//!
//! Preemptors come in groups: replicas of one workload, each looking at the same nodes. The victims on a node depend on the
//! pod's needs and priority, on the node, on the pods promised to it and on the disruption budgets, provided that every
//! filter that has something to say looks at nothing else. Then the outcome for one replica holds for the next, as long as
//! the node keeps its generation; otherwise nothing is remembered. This is exact.

use std::sync::Arc;

use super::{Budgets, Harm, Victims};
use crate::framework::Rejection;
use crate::model::node::NodeIdx;
use crate::model::pod::PodInfo;
use crate::scheduling::cycle::{Attempt, World};

/// Kinds of pods remembered.
const KINDS: usize = 4;

/// What evictions from a node come to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The pod would fit. The harm once more, so that comparing nodes follows no pointer.
    Helps(Harm, Arc<Victims>),
    /// It would not, for the reason of this number.
    Rejected(usize),
}

struct Row {
    /// The node's generation when it was tried.
    generation: u64,
    outcome: Outcome,
}

/// What is remembered for one kind of pods.
struct Kind {
    like: Arc<PodInfo>,
    filters: usize,
    last_used: u64,
    rows: Vec<Option<Row>>,
    rejections: Vec<Rejection>,
}

#[derive(Default)]
pub(super) struct Memory {
    kinds: Vec<Kind>,
    /// Stands in for a kind where nothing may be remembered.
    rejections: Vec<Rejection>,
    budgets: Budgets,
    budgets_generation: u64,
    now: u64,
}

/// What is remembered for one attempt.
pub(super) struct Remembered<'a> {
    world: World<'a>,
    rows: Option<&'a mut [Option<Row>]>,
    rejections: &'a mut Vec<Rejection>,
    budgets: &'a Budgets,
    /// Where the pod itself is promised room, which does not count for it.
    own: Option<NodeIdx>,
    /// What is not remembered.
    passing: Option<Row>,
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
        let own = world.nominator.node_of(pod.uid()).and_then(|name| world.cluster.node_named(name));
        let own = own.map(|node| node.idx());
        if !world.profile.is_local(attempt.state) {
            self.rejections.clear();
            let (rejections, budgets) = (&mut self.rejections, &self.budgets);
            return Remembered { world, rows: None, rejections, budgets, own, passing: None };
        }
        let kind = kind(&mut self.kinds, &mut self.now, pod, world.profile.split_filters(attempt.state));
        kind.rows.resize_with(world.cluster.rows(), || None);
        let (rows, rejections) = (Some(kind.rows.as_mut_slice()), &mut kind.rejections);
        Remembered { world, rows, rejections, budgets: &self.budgets, own, passing: None }
    }
}

fn kind<'a>(kinds: &'a mut Vec<Kind>, now: &mut u64, pod: &Arc<PodInfo>, filters: usize) -> &'a mut Kind {
    *now += 1;
    let is_like = |k: &Kind| k.filters == filters && k.like.priority == pod.priority && k.like.has_same_needs(pod);
    let position = kinds.iter().position(is_like).unwrap_or_else(|| {
        let fresh = Kind { like: pod.clone(), filters, last_used: 0, rows: Vec::new(), rejections: Vec::new() };
        if kinds.len() < KINDS {
            kinds.push(fresh);
            return kinds.len() - 1;
        }
        let oldest = kinds.iter().enumerate().min_by_key(|(_, k)| k.last_used).map_or(0, |(i, _)| i);
        kinds[oldest] = fresh;
        oldest
    });
    kinds[position].last_used = *now;
    &mut kinds[position]
}

impl Remembered<'_> {
    /// What evictions from a node come to: remembered, or found out now.
    pub(super) fn outcome(
        &mut self,
        node: NodeIdx,
        find_out: impl FnOnce(&Budgets) -> Result<Victims, Rejection>,
    ) -> &Outcome {
        let generation = self.world.cluster.generations()[node.row()];
        let row = match &mut self.rows {
            Some(rows) if self.own != Some(node) => &mut rows[node.row()],
            _ => {
                self.passing = None;
                &mut self.passing
            }
        };
        if row.as_ref().is_some_and(|known| known.generation != generation) {
            *row = None;
        }
        let (budgets, rejections) = (self.budgets, &mut self.rejections);
        let fresh = || {
            let outcome = match find_out(budgets) {
                Ok(victims) => Outcome::Helps(victims.harm, Arc::new(victims)),
                Err(rejection) => {
                    let known = rejections.iter().position(|r| *r == rejection);
                    Outcome::Rejected(known.unwrap_or_else(|| {
                        rejections.push(rejection);
                        rejections.len() - 1
                    }))
                }
            };
            Row { generation, outcome }
        };
        &row.get_or_insert_with(fresh).outcome
    }

    /// A reason by its number.
    pub(super) fn rejection(&self, number: usize) -> &Rejection {
        &self.rejections[number]
    }
}
