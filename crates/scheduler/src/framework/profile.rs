//! A profile: the plugins of one scheduler name, per extension point, and how they are run together.

use std::sync::Arc;

use super::{
    Bind, ClusterEvent, Code, CycleState, Diagnosis, Filter, Hint, Interest, Permit, Plugin, PluginId, PluginSet,
    PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreFilterExtensions, PreFilterOutcome, PreFilterResult,
    PreScore, QueueSort, Rejection, Reserve, Score, Verdict,
};
use crate::metrics::{Cycle, Point, Status};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// A plugin at one extension point.
pub struct At<T: ?Sized> {
    pub id: PluginId,
    pub name: &'static str,
    /// What it does here.
    pub plugin: Arc<T>,
}

/// A scoring plugin and its weight.
pub struct Weighted {
    pub id: PluginId,
    pub name: &'static str,
    /// Factor of its normalized score.
    pub weight: i64,
    pub plugin: Arc<dyn Score>,
}

/// Why a profile cannot be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProfileError {
    /// No queue sort plugin, or more than one.
    #[error("profile {0:?}: exactly one queue sort plugin is required")]
    QueueSort(String),
    #[error("profile {0:?}: at least one bind plugin is needed")]
    NoBind(String),
    /// A plugin that does not exist.
    #[error("profile {profile:?}: plugin {plugin:?} does not exist")]
    UnknownPlugin {
        profile: String,
        /// What was asked for.
        plugin: String,
    },
    /// More plugins than a set can hold.
    #[error("profile {0:?}: too many plugins")]
    TooManyPlugins(String),
}

/// The plugins of one scheduler name.
pub struct Profile {
    pub name: String,
    /// Overrides the scheduler-wide setting.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The order of the queue.
    pub queue_sort: Arc<dyn QueueSort>,
    /// Every plugin of the profile once, with the events that it is registered for.
    pub(crate) interests: Vec<(PluginId, Vec<Interest>, Arc<dyn Plugin>)>,
    pub(crate) pre_enqueue: Vec<At<dyn PreEnqueue>>,
    pub(crate) pre_filter: Vec<At<dyn PreFilter>>,
    pub(crate) filter: Vec<At<dyn Filter>>,
    pub(crate) post_filter: Vec<At<dyn PostFilter>>,
    pub(crate) pre_score: Vec<At<dyn PreScore>>,
    pub(crate) score: Vec<Weighted>,
    pub(crate) reserve: Vec<At<dyn Reserve>>,
    pub(crate) permit: Vec<At<dyn Permit>>,
    pub(crate) pre_bind: Vec<At<dyn PreBind>>,
    pub(crate) bind: Vec<At<dyn Bind>>,
    pub(crate) post_bind: Vec<At<dyn PostBind>>,
}

/// What PreFilter left to filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFiltered {
    All,
    /// The named ones, as these plugins want.
    Only(Vec<String>, Vec<&'static str>),
}

impl Profile {
    /// Runs PreFilter. On rejection the diagnosis says why; an error is returned.
    pub fn run_pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        cluster: &Cluster,
        diagnosis: &mut Diagnosis,
        cycle: &mut Cycle,
    ) -> Result<Option<PreFiltered>, Rejection> {
        let mut names: Option<Vec<String>> = None;
        let mut narrowing: Vec<(&'static str, PluginId)> = Vec::new();
        let mut rejected: Option<Rejection> = None;
        for at in &self.pre_filter {
            let status = |outcome: &PreFilterResult| match outcome {
                Ok(PreFilterOutcome::Skip) => Status::Skip,
                Ok(_) => Status::Success,
                Err(rejection) => Status::Rejected(rejection.code),
            };
            let run = || at.plugin.pre_filter(state, pod, cluster);
            let outcome = cycle.plugin(at.name, Point::PreFilter, run, status);
            if outcome != Ok(PreFilterOutcome::Skip) {
                cycle.evaluated(at.name, Point::PreFilter, 1);
            }
            match outcome {
                Ok(PreFilterOutcome::Proceed) => {}
                Ok(PreFilterOutcome::Skip) => state.skip_filters.insert(at.id),
                Ok(PreFilterOutcome::Only(mut only)) => {
                    narrowing.push((at.name, at.id));
                    if let Some(kept) = names.take() {
                        only.retain(|n| kept.contains(n));
                    }
                    if only.is_empty() {
                        diagnosis.reject_all(Rejection::unresolvable(nothing_left(&narrowing)));
                        narrowing.iter().for_each(|(_, id)| diagnosis.rejectors.insert(*id));
                        return Ok(None);
                    }
                    names = Some(only);
                }
                Err(rejection) => match rejection.code {
                    // Preemption cannot help, so there is no use in preparing for it.
                    Code::Unresolvable => {
                        diagnosis.reject_all(rejection.by(at.id));
                        return Ok(None);
                    }
                    Code::Unschedulable | Code::Pending => rejected = Some(rejection.by(at.id)),
                    Code::Error => {
                        let text = format!("running PreFilter plugin {:?}: {}", at.name, rejection.message());
                        return Err(Rejection::error(text).by(at.id));
                    }
                },
            }
        }
        if let Some(rejection) = rejected {
            diagnosis.reject_all(rejection);
            return Ok(None);
        }
        narrowing.iter().for_each(|(_, id)| diagnosis.rejectors.insert(*id));
        Ok(Some(match names {
            None => PreFiltered::All,
            Some(names) => {
                let mut plugins: Vec<_> = narrowing.into_iter().map(|(name, _)| name).collect();
                plugins.sort_unstable();
                PreFiltered::Only(names, plugins)
            }
        }))
    }

    /// Runs every filter that has something to do until one rejects.
    pub fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Verdict {
        self.run_some_filters(0..self.filter.len(), state, pod, node, cluster)
    }

    /// How many filters come before the first one that has something to do and is not local.
    pub fn split_filters(&self, state: &CycleState) -> usize {
        let is_shared = |at: &At<dyn Filter>| state.skip_filters.contains(at.id) || at.plugin.is_local();
        self.filter.iter().position(|at| !is_shared(at)).unwrap_or(self.filter.len())
    }

    /// Whether every filter that has something to do looks at nothing but the pod's own spec and the node.
    pub fn is_local(&self, state: &CycleState) -> bool {
        self.split_filters(state) == self.filter.len() && !self.follows_pods(state)
    }

    /// Runs a part of the filters until one rejects.
    pub fn run_some_filters(
        &self,
        part: std::ops::Range<usize>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        cluster: &Cluster,
    ) -> Verdict {
        for at in self.filter[part].iter().filter(|at| !state.skip_filters.contains(at.id)) {
            match at.plugin.filter(state, pod, node, cluster) {
                Verdict::Pass => {}
                Verdict::Reject(rejection) if rejection.is_rejection() => return Verdict::Reject(rejection.by(at.id)),
                Verdict::Reject(error) => {
                    let text = format!("running {:?} filter plugin: {}", at.name, error.message());
                    return Verdict::Reject(Rejection::error(text).by(at.id));
                }
            }
        }
        Verdict::Pass
    }

    /// How far a node came through a part of the filters.
    pub fn reached(&self, part: std::ops::Range<usize>, verdict: &Verdict) -> usize {
        let Verdict::Reject(Rejection { plugin: Some(plugin), .. }) = verdict else { return part.end };
        self.filter[part.clone()].iter().position(|at| at.id == *plugin).map_or(part.end, |at| part.start + at + 1)
    }

    /// As [`Profile::run_some_filters`], timing each of them.
    pub fn run_some_filters_timed(
        &self,
        part: std::ops::Range<usize>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        cluster: &Cluster,
        cycle: &mut Cycle,
    ) -> Verdict {
        let status = |verdict: &Verdict| match verdict {
            Verdict::Pass => Status::Success,
            Verdict::Reject(rejection) => Status::Rejected(rejection.code),
        };
        for index in part {
            let run = || self.run_some_filters(index..index + 1, state, pod, node, cluster);
            let verdict = if state.skip_filters.contains(self.filter[index].id) {
                Verdict::Pass
            } else {
                cycle.plugin(self.filter[index].name, Point::Filter, run, status)
            };
            if !verdict.is_pass() {
                return verdict;
            }
        }
        Verdict::Pass
    }

    /// Whether any PreFilter state follows the comings and goings of pods.
    pub fn follows_pods(&self, state: &CycleState) -> bool {
        self.pre_filter.iter().any(|at| !state.skip_filters.contains(at.id) && at.plugin.extensions().is_some())
    }

    fn extend(&self, state: &mut CycleState, update: impl Fn(&dyn PreFilterExtensions, &mut CycleState)) {
        for at in &self.pre_filter {
            if let Some(extensions) = at.plugin.extensions().filter(|_| !state.skip_filters.contains(at.id)) {
                update(extensions, state);
            }
        }
    }

    /// Tells PreFilter states that a pod appears on a copy of a node.
    pub fn pod_added(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        added: &PodInfo,
        node: &NodeInfo,
        cluster: &Cluster,
    ) {
        self.extend(state, |plugin, state| plugin.add_pod(state, pod, added, node, cluster));
    }

    /// Tells PreFilter states that a pod vanishes from a copy of a node.
    pub fn pod_removed(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
        cluster: &Cluster,
    ) {
        self.extend(state, |plugin, state| plugin.remove_pod(state, pod, removed, node, cluster));
    }

    /// Runs PreScore; plugins that see no difference between the nodes are skipped in scoring.
    pub fn run_pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        cluster: &Cluster,
        nodes: NodeList<'_>,
        cycle: &mut Cycle,
    ) {
        for at in &self.pre_score {
            let run = || at.plugin.pre_score(state, pod, cluster, nodes);
            let status = |differ: &bool| if *differ { Status::Success } else { Status::Skip };
            if cycle.plugin(at.name, Point::PreScore, run, status) {
                cycle.evaluated(at.name, Point::PreScore, 1);
            } else {
                state.skip_scores.insert(at.id);
            }
        }
        cycle.point(Point::PreScore, Status::Success);
    }

    /// Whether an event may make a pod schedulable that these plugins rejected, and whether one of them had it pending.
    pub fn hint(
        &self,
        rejectors: PluginSet,
        pending: PluginSet,
        event: &ClusterEvent,
        ask: impl Fn(&dyn Plugin) -> Hint,
    ) -> Option<bool> {
        let mut queue = None;
        for (id, interests, plugin) in &self.interests {
            if !rejectors.contains(*id) || !interests.iter().any(|i| i.covers(event)) {
                continue;
            }
            if ask(&**plugin) == Hint::Skip {
                continue;
            }
            if pending.contains(*id) {
                return Some(true);
            }
            if pending.is_empty() {
                return Some(false);
            }
            queue = Some(false);
        }
        queue
    }
}

fn nothing_left(narrowing: &[(&'static str, PluginId)]) -> String {
    match narrowing {
        [(name, _)] => format!("node(s) didn't satisfy plugin {name}"),
        _ => {
            let mut names: Vec<_> = narrowing.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", names.join(" "))
        }
    }
}
