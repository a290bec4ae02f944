//! Which pods nobody else will remove.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use rules::pods::is_node_ready;

use crate::common::meta::MetaExt;
use crate::common::pods;

/// More ended pods than this are too many.
pub(super) const MOST_ENDED: usize = 12_500;

/// Why a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its node no longer exists.
    Orphaned,
    /// Its node is out of service and it is being deleted.
    OutOfService,
    /// It is being deleted and never got a node.
    Unscheduled,
    /// There are too many ended ones.
    TooMany,
}

impl Reason {
    /// As metrics say it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Orphaned => "orphaned",
            Self::OutOfService => "out-of-service",
            Self::Unscheduled => "unscheduled",
            Self::TooMany => "terminated",
        }
    }

    /// What its condition says, where the pod is disrupted.
    pub(super) fn disruption(self) -> Option<&'static str> {
        (self == Self::Orphaned).then_some("PodGC: node no longer exists")
    }
}

/// Nodes that pods name and that are missing, with since when.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<String, Duration>);

impl Absences {
    /// The nodes that are missing for long enough, and when to look again for the others.
    pub(super) fn gone(
        &mut self,
        named: &[String],
        nodes: &[Arc<Node>],
        now: Duration,
        quarantine: Duration,
    ) -> (Vec<String>, Option<Duration>) {
        let there: BTreeSet<&str> = nodes.iter().map(|node| node.metadata.name()).collect();
        let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
        let missing: BTreeSet<&str> = named.difference(&there).copied().collect();
        self.0.retain(|node, _| missing.contains(node.as_str()));
        for node in missing {
            self.0.entry(node.to_owned()).or_insert(now);
        }
        let left = |since: Duration| (since + quarantine).saturating_sub(now);
        let gone = self.0.iter().filter(|(_, since)| left(**since).is_zero()).map(|(node, _)| node.clone());
        let wait = self.0.values().map(|since| left(*since)).filter(|left| !left.is_zero()).min();
        (gone.collect(), wait)
    }
}

pub(super) fn is_out_of_service(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == pods::OUT_OF_SERVICE)
}

/// The nodes that are out of service and not ready, whose pods that are being deleted go at once.
pub(super) fn out_of_service(nodes: &[Arc<Node>]) -> impl Iterator<Item = &str> {
    nodes.iter().filter(|node| is_out_of_service(node) && !is_node_ready(node)).map(|node| node.metadata.name())
}

/// Whether a change of this pod could give the controller anything to do, whatever there is of others.
pub(super) fn may_matter(pod: &Pod, node: impl Fn(&str) -> Option<Arc<Node>>) -> bool {
    match pods::node_name(pod) {
        None => pod.metadata.is_deleting(),
        Some(name) => node(name).is_none_or(|node| pod.metadata.is_deleting() && is_out_of_service(&node)),
    }
}

/// The pods to remove, of these.
pub(super) fn plan(all: &[Arc<Pod>], nodes: &[Arc<Node>], gone: &[String]) -> Vec<(Arc<Pod>, Reason)> {
    let mut condemned = Vec::new();
    let out: Vec<&str> = out_of_service(nodes).collect();
    let mut ended: Vec<&Arc<Pod>> = Vec::new();
    for pod in all {
        match pods::node_name(pod) {
            Some(name) if gone.iter().any(|node| node == name) => condemned.push((pod.clone(), Reason::Orphaned)),
            Some(name) if pod.metadata.is_deleting() && out.contains(&name) => {
                condemned.push((pod.clone(), Reason::OutOfService));
            }
            None if pod.metadata.is_deleting() => condemned.push((pod.clone(), Reason::Unscheduled)),
            _ if pods::is_terminal(pod) => ended.push(pod),
            _ => {}
        }
    }
    if ended.len() > MOST_ENDED {
        ended.sort_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name().to_owned()));
        let surplus = ended.len() - MOST_ENDED;
        condemned.extend(ended.into_iter().take(surplus).map(|pod| (pod.clone(), Reason::TooMany)));
    }
    condemned
}
