//! What nodes and pods use at the moment, as `metrics.k8s.io/v1beta1` has it: `kubectl top` and autoscalers ask.
//!
//! ```text
//! kubelets' /metrics/resource ─► text ─► Batch ─► points (the last two of everything) ─► objects ─► NodeMetrics, PodMetrics
//!                    ▲
//!                collect: every 15 s while somebody asks, never otherwise
//! ```
//! Rates are over real windows: the time between the two moments at which a kubelet measured. What was not measured twice is not there,
//! and a pod of which a container is missing is not there either, as with upstream's metrics-server: a sum that leaves something
//! out would make an autoscaler act.
//!
//! [`recommend`] says what containers should ask for, from readings that somebody kept.

pub mod collect;
pub mod documents;
pub mod objects;
pub mod points;
pub mod recommend;
pub mod text;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "v1beta1";

/// What was measured of a container or a node at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Since when CPU time is counted. Nodes do not say.
    pub start: Option<Timestamp>,
    pub time: Timestamp,
    /// All the CPU time used since the start, in nanoseconds.
    pub cpu: u64,
    /// The working set, in bytes.
    pub memory: u64,
}

/// Namespace and name.
pub type PodKey = (String, String);

/// The containers of a pod by name.
pub type Containers = BTreeMap<String, Point>;

/// What all kubelets said in one round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub nodes: HashMap<String, Point>,
    pub pods: HashMap<PodKey, Containers>,
}
