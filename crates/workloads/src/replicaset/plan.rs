//! How many pods to create, or which to delete.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::common::pods;

/// No more pods are created or deleted in one turn.
const BURST: usize = 500;

/// What to do; at most one of the two is not empty.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many to create.
    pub(super) create: usize,
    /// Which to delete, the least useful first.
    pub(super) delete: Vec<Arc<Pod>>,
}

impl Plan {
    /// Says what is decided, for the turn's span.
    pub(super) fn say(&self, active: usize) {
        if self.create > 0 {
            hops::decided(format_args!("has {active} pods, created {} more", self.create));
        }
        if !self.delete.is_empty() {
            hops::decided(format_args!("has {active} pods, deleted {}", self.delete.len()));
        }
    }
}

/// Brings `active` to `replicas` pods. The related pods are only asked for when some of the active ones have to go.
pub(super) fn plan(
    replicas: i32,
    active: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Plan {
    let wanted = usize::try_from(replicas).unwrap_or_default();
    let surplus = active.len().saturating_sub(wanted);
    if surplus == 0 {
        return Plan { create: (wanted - active.len()).min(BURST), delete: Vec::new() };
    }
    let mut delete = active.to_vec();
    if wanted > 0 {
        let mut on_node: HashMap<Option<String>, usize> = HashMap::new();
        for pod in related().iter().filter(|pod| pods::is_active(pod)) {
            *on_node.entry(pods::node_name(pod).map(str::to_owned)).or_default() += 1;
        }
        let rank = |pod: &Pod| on_node.get(&pods::node_name(pod).map(str::to_owned)).copied().unwrap_or_default();
        delete.sort_by(|a, b| pods::deletion_order((a, rank(a)), (b, rank(b)), now));
    }
    delete.truncate(surplus.min(BURST));
    Plan { create: 0, delete }
}
