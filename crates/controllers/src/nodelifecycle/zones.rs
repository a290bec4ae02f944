//! How fast nodes may be evicted: ten seconds apart in a healthy zone, hardly or not at all in a zone where most nodes fail.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use informer::Informer;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use super::plan::is_ready;
use crate::common::meta::MetaExt;
use crate::metrics::Collect;

/// Between two evictions in a healthy zone.
const NORMAL: Duration = Duration::from_secs(10);
/// Between two evictions in a large zone where most nodes fail.
const SLOW: Duration = Duration::from_secs(100);
/// The share of failing nodes that makes a zone disrupted.
const THRESHOLD: f64 = 0.55;
/// A zone of so many nodes or fewer is small.
const LARGE: usize = 50;
/// How often a zone that evicts nothing is looked at again; changes of its nodes are seen at once anyway.
const STOPPED: Duration = Duration::from_secs(60);

/// How a zone fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    Partial,
    Full,
}

/// When the next eviction of each zone may be.
#[derive(Debug, Default)]
pub(super) struct Zones {
    next: Mutex<HashMap<String, Duration>>,
}

impl Zones {
    /// Takes a turn in the zone: `None` if it may evict now, else how long to wait.
    pub(super) fn turn(&self, zone: &str, nodes: &[Arc<Node>], now: Duration) -> Option<Duration> {
        let members: Vec<&Arc<Node>> = nodes.iter().filter(|node| zone_of(node) == zone).collect();
        let interval = match state(&members) {
            State::Normal | State::Full => NORMAL,
            State::Partial if members.len() > LARGE => SLOW,
            State::Partial => return Some(STOPPED),
        };
        let mut next = self.next.lock();
        let due = next.entry(zone.to_owned()).or_insert(now);
        if *due > now {
            return Some(*due - now);
        }
        *due = now + interval;
        None
    }
}

/// Region and zone, as one name.
pub(super) fn zone_of(node: &Node) -> String {
    let label = |key: &str| node.metadata.label(key).unwrap_or_default();
    format!("{}:\u{0}:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

pub(super) fn state(members: &[&Arc<Node>]) -> State {
    let failing = members.iter().filter(|node| !is_ready(node)).count();
    if failing > 0 && failing == members.len() {
        State::Full
    } else if failing > 2 && failing as f64 / members.len() as f64 >= THRESHOLD {
        State::Partial
    } else {
        State::Normal
    }
}

/// Not one node of the cluster is ready: the fault is here, and nothing is evicted.
pub(super) fn all_disrupted(nodes: &[Arc<Node>]) -> bool {
    nodes.iter().all(|node| !is_ready(node))
}

/// Counts the nodes of every zone when somebody looks.
pub(super) struct Collector(pub(super) Informer<Node>);

impl Collect for Collector {
    fn collect(&self, text: &mut String) {
        let mut zones: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for node in self.0.list() {
            let (all, failing) = zones.entry(zone_of(&node)).or_default();
            *all += 1.0;
            *failing += f64::from(u8::from(!is_ready(&node)));
        }
        if zones.is_empty() {
            return;
        }
        type Read = fn(f64, f64) -> f64;
        let families: [(&str, &str, Read); 3] = [
            (
                "node_collector_unhealthy_nodes_in_zone",
                "[ALPHA] Gauge measuring number of not Ready Nodes per zones.",
                |_, failing| failing,
            ),
            (
                "node_collector_zone_health",
                "[ALPHA] Gauge measuring percentage of healthy nodes per zone.",
                |all, failing| (100.0 * (all - failing) / all).floor(),
            ),
            ("node_collector_zone_size", "[ALPHA] Gauge measuring number of registered Nodes per zones.", |all, _| all),
        ];
        for (name, help, read) in families {
            let mut samples = figures::samples(text, name, "gauge", help);
            for (zone, (all, failing)) in &zones {
                samples.add(&[("zone", zone)], read(*all, *failing));
            }
        }
    }
}
