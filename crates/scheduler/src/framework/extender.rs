//! Extenders: other processes that take part in filtering, scoring, preemption and binding.
//!
//! The trait is what a cycle needs; how the other process is reached is the business of its implementation. A cycle
//! waits for an extender, so configure timeouts with care.

use std::sync::Arc;

use crate::framework::api::ApiFailure;
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// The highest score an extender may give.
pub const MAX_EXTENDER_PRIORITY: i64 = 10;

/// What an extender made of the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extended {
    /// Names of the nodes that remain.
    pub nodes: Vec<String>,
    /// Nodes that fail, with a reason; evictions may help.
    pub failed: Vec<(String, String)>,
    /// Nodes that fail, with a reason; evictions do not help.
    pub unresolvable: Vec<(String, String)>,
}

/// Victims per node, as proposed to an extender that takes part in preemption.
pub type VictimsByNode = Vec<(String, Vec<Arc<PodInfo>>, i64)>;

/// Another process that takes part in scheduling.
pub trait Extender: Send + Sync {
    fn name(&self) -> &str;
    /// Whether the pod concerns it.
    fn is_interested(&self, pod: &PodInfo) -> bool;
    /// Whether scheduling goes on without it when it fails.
    fn is_ignorable(&self) -> bool;
    fn filters(&self) -> bool;
    fn prioritizes(&self) -> bool;
    /// Whether it takes part in preemption.
    fn preempts(&self) -> bool;
    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Extended, ApiFailure>;
    /// Scores nodes, each out of [`MAX_EXTENDER_PRIORITY`], and tells the weight of the scores.
    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<(Vec<(String, i64)>, i64), ApiFailure>;
    fn preempt(&self, pod: &PodInfo, victims: VictimsByNode) -> Result<VictimsByNode, ApiFailure>;
    /// The work of binding, when it binds pods itself.
    fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Option<crate::framework::Work>;
}
