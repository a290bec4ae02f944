//! Room that is promised to other pods: those that others made room for and that are not there yet.

use std::sync::Arc;

use super::World;
use crate::framework::{CycleState, Verdict};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// What the promises to other pods mean for a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promises {
    None,
    /// What they come to on a node depends on that node alone, and is remembered.
    Remembered,
    /// What they come to must be looked at each time.
    Looked,
}

impl Promises {
    pub(super) fn to(world: World<'_>, state: &CycleState, pod: &PodInfo) -> Self {
        let nominator = world.nominator;
        if nominator.is_empty() || (nominator.len() == 1 && nominator.node_of(pod.uid()).is_some()) {
            Self::None
        } else if world.profile.is_local(state) {
            Self::Remembered
        } else {
            Self::Looked
        }
    }
}

/// Filters a node as it is and as it would be with the pods that are promised to it.
pub fn filter_with_nominated(world: World<'_>, state: &CycleState, pod: &Arc<PodInfo>, node: &NodeInfo) -> Verdict {
    let verdict = world.profile.run_filters(state, pod, node, world.cluster);
    if !verdict.is_pass() || world.nominator.is_empty() {
        return verdict;
    }
    filter_with_promised(world, state, pod, node)
}

/// Filters a node as it would be with the pods of no lower priority that are promised to it.
pub(super) fn filter_with_promised(
    world: World<'_>,
    state: &CycleState,
    pod: &Arc<PodInfo>,
    node: &NodeInfo,
) -> Verdict {
    let promised = world.nominator.on(node.name()).iter();
    let mut counted = promised.filter(|p| p.priority >= pod.priority && p.uid() != pod.uid()).peekable();
    if counted.peek().is_none() {
        return Verdict::Pass;
    }
    let mut node = node.clone();
    let follows = world.profile.follows_pods(state);
    let mut followed = follows.then(|| state.clone());
    for promised in counted {
        let generation = node.generation();
        node.add_pod(promised.clone(), generation);
        if let Some(state) = &mut followed {
            world.profile.pod_added(state, pod, promised, &node, world.cluster);
        }
    }
    world.profile.run_filters(followed.as_ref().unwrap_or(state), pod, &node, world.cluster)
}
