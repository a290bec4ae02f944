//! How long a node may believe what it has read.

use k8s_openapi::api::core::v1::Node;

use crate::common::meta::MetaExt;

pub(super) const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Sizes of a cluster: from, to, and the seconds for it. They overlap, so that a node that comes and goes does not change every other one.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// What follows from the size of the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) step: usize,
    /// Whether every node has to be looked at again.
    pub(super) all: bool,
    /// The seconds that this node should have and has not.
    pub(super) annotate: Option<u32>,
}

/// From the step the cluster was at, the number of its nodes, and the node in question, if it is there still.
pub(super) fn plan(at: usize, nodes: usize, node: Option<&Node>) -> Plan {
    let step = step(at, nodes);
    let seconds = STEPS[step].2;
    let current = |node: &Node| node.metadata.annotation(ANNOTATION).and_then(|text| text.parse().ok());
    let annotate = node.is_some_and(|node| current(node) != Some(seconds)).then_some(seconds);
    Plan { step, all: step != at, annotate }
}

/// The step of a cluster of this size that was at another step.
fn step(mut at: usize, nodes: usize) -> usize {
    while nodes > STEPS[at].1 {
        at += 1;
    }
    while nodes < STEPS[at].0 {
        at -= 1;
    }
    at
}
