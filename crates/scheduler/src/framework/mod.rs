//! The scheduling framework: what a plugin is, what it is asked, and what it may answer.
//!
//! A plugin implements [`Plugin`] and, in [`Plugin::points`], offers itself for the extension points it takes part in.
//! Filters and scores are synchronous and pure: they see the frozen model of the cluster and the state that the plugin's
//! own PreFilter or PreScore computed. What needs the API (PreBind, Bind) is handed out as work and done elsewhere.

pub mod api;
mod event;
pub mod extender;
mod profile;
mod state;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use event::{Action, ClusterEvent, EventLabel, Interest, Resource, node_changes, pod_changes};
pub use profile::{At, PreFiltered, Profile, ProfileError, Weighted};
pub use state::{CycleState, StateData};
pub use verdict::{Code, Diagnosis, Reason, Rejection, Verdict};

use crate::framework::api::{Api, ApiFailure};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;
use crate::queue::QueuedPod;

/// The highest score a plugin may give a node after normalization.
pub const MAX_SCORE: i64 = 100;

/// Number of a plugin, the same in all profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId(pub u8);

/// A set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginSet(u64);

impl PluginSet {
    pub fn insert(&mut self, plugin: PluginId) {
        self.0 |= 1 << plugin.0;
    }

    /// Whether the plugin is in the set.
    pub fn contains(self, plugin: PluginId) -> bool {
        self.0 & (1 << plugin.0) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The plugins of the set.
    pub fn iter(self) -> impl Iterator<Item = PluginId> {
        (0..64).map(PluginId).filter(move |id| self.contains(*id))
    }
}

pub trait Plugin: Send + Sync + 'static {
    /// Its name in configurations, messages and metrics.
    fn name(&self) -> &'static str;

    /// The extension points it takes part in.
    fn points(self: Arc<Self>) -> Points;

    /// The events after which a pod that it rejected may become schedulable: any, unless the plugin knows better.
    fn interests(&self) -> Vec<Interest> {
        vec![Interest::ANY]
    }

    /// Topology keys that it asks about beside those in pods.
    fn topology_keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether this event, one of its interests, may make the pod schedulable.
    fn hint(&self, _pod: &PodInfo, _event: &ClusterEvent, _cluster: &Cluster) -> Hint {
        Hint::Queue
    }
}

/// What a plugin offers.
#[derive(Default)]
pub struct Points {
    pub pre_enqueue: Option<Arc<dyn PreEnqueue>>,
    pub queue_sort: Option<Arc<dyn QueueSort>>,
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    pub filter: Option<Arc<dyn Filter>>,
    pub post_filter: Option<Arc<dyn PostFilter>>,
    pub pre_score: Option<Arc<dyn PreScore>>,
    pub score: Option<Arc<dyn Score>>,
    pub reserve: Option<Arc<dyn Reserve>>,
    pub permit: Option<Arc<dyn Permit>>,
    pub pre_bind: Option<Arc<dyn PreBind>>,
    pub bind: Option<Arc<dyn Bind>>,
    pub post_bind: Option<Arc<dyn PostBind>>,
}

/// Whether an event may make a pod schedulable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// It may: try the pod again.
    Queue,
    Skip,
}

/// Keeps pods out of the active queue.
pub trait PreEnqueue: Send + Sync {
    /// Whether the pod may be tried.
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection>;

    /// Whether the plugin itself says when the gate opens: then no event is tried on the pods it holds.
    fn opens_by_itself(&self) -> bool {
        false
    }
}

/// Orders the active queue. All profiles use the same.
pub trait QueueSort: Send + Sync {
    /// Whether `a` is tried before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFilterOutcome {
    /// Any node may do.
    Proceed,
    /// Any node will do: the plugin's filter need not run.
    Skip,
    /// Only the named nodes may do.
    Only(Vec<String>),
}

/// What is to be filtered, or why the pod is rejected outright.
pub type PreFilterResult = Result<PreFilterOutcome, Rejection>;

/// Prepares filtering, once per cycle.
pub trait PreFilter: Send + Sync {
    /// Computes the plugin's state, or rejects the pod outright.
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult;

    /// What-if updates of that state, for plugins whose state depends on other pods.
    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        None
    }
}

/// Keeps a PreFilter state true while pods are added to and taken from a copy of a node.
pub trait PreFilterExtensions: Send + Sync {
    /// A pod appears on the node.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, cluster: &Cluster);
    /// A pod vanishes from the node.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, cluster: &Cluster);
}

pub trait Filter: Send + Sync {
    /// Whether the pod can run on the node. The cluster is for objects that belong to the node, such as its volumes.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Verdict;

    /// Whether the verdict depends on nothing but the pod's own spec and the node: then identical pods share it. The parts
    /// of the spec that count are those of [`PodInfo::has_same_needs`].
    fn is_local(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone)]
pub struct PostFilterResult {
    /// The node to nominate the pod to; empty to clear the nomination.
    pub nominate: String,
    /// Pods to evict for it.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many disruption budgets that breaks.
    pub budget_violations: u64,
}

/// Makes room when no node was found.
pub trait PostFilter: Send + Sync {
    /// Looks for a way to make the pod schedulable. Users get the message in both cases.
    fn post_filter(&self, attempt: &mut crate::scheduling::cycle::Attempt<'_>) -> PostFilterOutcome;
}

/// The answer of PostFilter.
#[derive(Debug, Clone)]
pub struct PostFilterOutcome {
    /// Whether room will be made, or at least whether a nomination changes.
    pub result: Option<PostFilterResult>,
    /// Whether a way was found.
    pub success: bool,
    /// The message for users.
    pub message: String,
}

/// Prepares scoring, once per cycle.
pub trait PreScore: Send + Sync {
    /// Computes the plugin's state; `false` when every node would get the same score.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster, nodes: NodeList<'_>) -> bool;
}

/// Ranks a node among those that passed.
pub trait Score: Send + Sync {
    /// How good the node is; higher is better unless [`Score::normalize`] turns it round.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64;

    /// Scores many nodes: one dynamic call instead of one per node.
    fn score_all(&self, state: &CycleState, pod: &PodInfo, nodes: NodeList<'_>, scores: &mut [i64]) {
        for (score, node) in scores.iter_mut().zip(nodes.iter()) {
            *score = self.score(state, pod, node);
        }
    }

    /// Brings the scores of all nodes into 0..=100.
    fn normalize(&self, _state: &CycleState, _scores: &mut [i64]) {}

    /// Whether the raw score depends on nothing but the pod's own spec, the node, and which nodes have which images: then
    /// identical pods share it. Raw scores must fit into 32 bits.
    fn is_local(&self) -> bool {
        false
    }
}

/// Claims what the pod needs beside room on a node.
pub trait Reserve: Send + Sync {
    fn reserve(
        &self,
        state: &mut CycleState,
        pod: &Arc<PodInfo>,
        node: &NodeInfo,
        cluster: &Cluster,
    ) -> Result<(), Rejection>;
    /// Gives back; must bear being called without a claim.
    fn unreserve(&self, pod: &PodInfo);
}

/// The answer of Permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitOutcome {
    Allow,
    /// Wait for [`crate::Scheduler::allow`], at most so long.
    Wait(Duration),
    Reject(Rejection),
}

pub trait Permit: Send + Sync {
    /// Whether the pod may be bound now.
    fn permit(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &NodeInfo) -> PermitOutcome;
}

/// Work against the API, handed out by a cycle and done outside it.
pub type Work = Box<dyn FnOnce(Arc<dyn Api>) -> BoxFuture<'static, Result<(), ApiFailure>> + Send>;

/// Prepares the node or the volumes before a pod is bound.
pub trait PreBind: Send + Sync {
    /// The work to do; `None` when there is none for this pod.
    fn pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &NodeInfo, cluster: &Cluster) -> Option<Work>;
}

/// Binds a pod to a node.
pub trait Bind: Send + Sync {
    /// The work to do; `None` leaves the pod to the next Bind plugin.
    fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Option<Work>;
}

/// Told of every pod bound.
pub trait PostBind: Send + Sync {
    /// The pod is bound.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
