//! The scheduler as a state machine: observations and results go in, effects come out.
//!
//! [`Scheduler::observe`] takes what the informers saw, [`Scheduler::schedule_one`] runs one cycle, and whatever must
//! happen to the API is returned by [`Scheduler::take_effects`] for others to do; how that went comes back through
//! [`Scheduler::bound`], [`Scheduler::bind_failed`] and [`Scheduler::preempted`]. The machine itself performs no I/O,
//! reads an injected clock and draws from a seeded generator, so any run can be replayed.

mod bind;
pub mod cycle;
mod equivalence;
mod observe;
pub mod preemption;
mod refusals;
pub mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use informer::Clock;
use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::Configuration;
use crate::config::registry::{Registry, RegistryError};
use crate::framework::api::PodEvent;
use crate::framework::extender::Extender;
use crate::framework::{ClusterEvent, Hint, Interest, Plugin, PluginId, PluginSet, Points, Profile, Rejection, Work};
use crate::metrics::{Attempt as AttemptResult, CacheSize, Metrics, Point};
use crate::model::cluster::Cluster;
use crate::model::node::NodeIdx;
use crate::model::pod::PodInfo;
use crate::queue::{Gate, Judge, Nomination, Pending, Queue, QueueConfig, QueuedPod};
use crate::scheduling::cycle::{Algorithm, Failure, World};
use crate::scheduling::preemption::Preempting;
use crate::scheduling::status::Condition;

/// Something to do to the API.
pub enum Effect {
    /// Bind a pod; report with [`Scheduler::bound`] or [`Scheduler::bind_failed`].
    Bind(BindJob),
    /// Evict pods for another; report with [`Scheduler::preempted`].
    Preempt(PreemptJob),
    /// Patch the status of a pod.
    PatchStatus {
        pod: Arc<PodInfo>,
        /// A strategic merge patch.
        patch: serde_json::Value,
    },
    Record(PodEvent),
}

/// The work of binding one pod, in order.
pub struct BindJob {
    pub pod: Arc<PodInfo>,
    pub node: Arc<str>,
    /// PreBind work and the binding itself, each with the plugin that wants it.
    pub works: Vec<(Point, &'static str, Work)>,
}

/// Evictions for one pod.
#[derive(Debug, Clone)]
pub struct PreemptJob {
    /// The pod that needs the room.
    pub preemptor: Arc<PodInfo>,
    pub node: String,
    /// Whom to evict; the last one only after the others.
    pub victims: Vec<Arc<PodInfo>>,
    /// Pods of lower priority whose nomination to the node is void.
    pub displaced: Vec<Arc<PodInfo>>,
}

/// A pod on its way to a node.
struct Under {
    pod: QueuedPod,
    profile: Arc<Profile>,
    node: NodeIdx,
    /// Kept apart: the node may go before the binding comes back.
    node_name: Arc<str>,
    /// The newest version that the API showed; `None` once the pod is gone or bound by someone else.
    latest: Option<Arc<PodInfo>>,
    /// Plugins that Permit waits for, each until a time.
    waits: Vec<(PluginId, Timestamp)>,
    /// Whether it had to wait for any.
    waited: bool,
    job: Option<BindJob>,
    began: Timestamp,
}

pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    profiles: Vec<Arc<Profile>>,
    algorithm: Algorithm,
    extenders: Vec<Arc<dyn Extender>>,
    extender_id: PluginId,
    under_way: FxHashMap<Arc<str>, Under>,
    preempting: Arc<Preempting>,
    /// The last victim of each pod whose evictions are under way.
    last_victims: FxHashMap<Arc<str>, Arc<str>>,
    /// Last victims that have been evicted but are not yet seen to go, each with the pods that have been waiting for it.
    awaited: FxHashMap<Arc<str>, Vec<Arc<PodInfo>>>,
    preemption_id: PluginId,
    effects: Vec<Effect>,
    clock: Arc<dyn Clock>,
    /// When monotonic time began, as the wall clock had it then: time in the queue never goes back.
    epoch: Timestamp,
    metrics: Arc<Metrics>,
    hints: std::cell::Cell<u32>,
    registry: Registry,
}

/// Answers the queue's questions.
struct Profiles<'a> {
    profiles: &'a [Arc<Profile>],
    cluster: &'a Cluster,
    metrics: &'a Metrics,
    clock: &'a dyn Clock,
    /// Counts the hints, of which one in some is timed.
    hints: &'a std::cell::Cell<u32>,
}

/// Of so many hints one is timed: timing all of them would cost more than they do.
const TIMED_HINTS: u32 = 10;

impl Profiles<'_> {
    fn of(&self, pod: &PodInfo) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|p| p.name == pod.scheduler_name())
    }
}

impl Judge for Profiles<'_> {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Gate> {
        let Some(profile) = self.of(pod) else { return Ok(()) };
        let mut plugins = profile.pre_enqueue.iter();
        match plugins.find(|at| at.plugin.pre_enqueue(pod).is_err()) {
            None => Ok(()),
            Some(at) => Err(Gate { plugin: at.id, opens_by_itself: at.plugin.opens_by_itself() }),
        }
    }

    fn interested(&self, event: &ClusterEvent) -> PluginSet {
        let mut set = PluginSet::default();
        for (id, interests, _) in self.profiles.iter().flat_map(|p| &p.interests) {
            if interests.iter().any(|i| i.covers(event)) {
                set.insert(*id);
            }
        }
        set
    }

    fn hint(&self, pod: &PodInfo, rejectors: PluginSet, pending: PluginSet, event: &ClusterEvent) -> Option<bool> {
        let Some(profile) = self.of(pod) else { return Some(false) };
        profile.hint(rejectors, pending, event, |plugin| {
            let number = self.hints.get().wrapping_add(1);
            self.hints.set(number);
            if !number.is_multiple_of(TIMED_HINTS) {
                return plugin.hint(pod, event, self.cluster);
            }
            let began = self.clock.monotonic();
            let hint = plugin.hint(pod, event, self.cluster);
            let took = self.clock.monotonic().saturating_sub(began).as_secs_f64();
            self.metrics.hint(plugin.name(), event.label(), hint == Hint::Queue, took);
            hint
        })
    }
}

/// Stands for the extenders among the plugins. What helps a pod that they rejected nobody knows, so every event does.
struct AnyExtender;

impl Plugin for AnyExtender {
    fn name(&self) -> &'static str {
        "Extender"
    }

    fn points(self: Arc<Self>) -> Points {
        Points::default()
    }
}

/// The judge of a scheduler's queue, borrowing no more than it needs.
macro_rules! judge {
    ($scheduler:ident) => {
        &Profiles {
            profiles: &$scheduler.profiles,
            cluster: &$scheduler.cluster,
            metrics: &$scheduler.metrics,
            clock: &*$scheduler.clock,
            hints: &$scheduler.hints,
        }
    };
}
use judge;

impl Scheduler {
    /// A scheduler of this configuration. The registry may know plugins from outside.
    pub fn new(
        configuration: &Configuration,
        mut registry: Registry,
        extenders: Vec<Arc<dyn Extender>>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Self, RegistryError> {
        let mut profiles = registry.profiles(configuration)?;
        if !extenders.is_empty() {
            let id = registry.extender_id();
            for profile in profiles.iter_mut().filter_map(Arc::get_mut) {
                profile.interests.push((id, vec![Interest::ANY], Arc::new(AnyExtender)));
            }
        }
        let queue_config = QueueConfig {
            initial_backoff: Duration::from_secs(configuration.pod_initial_backoff_seconds),
            max_backoff: Duration::from_secs(configuration.pod_max_backoff_seconds),
            ..QueueConfig::default()
        };
        let sort = profiles[0].queue_sort.clone();
        let metrics = Arc::new(Metrics::default());
        let mut cluster = Cluster::new();
        for key in profiles.iter().flat_map(|p| &p.interests).flat_map(|(_, _, plugin)| plugin.topology_keys()) {
            cluster.track(&key);
        }
        Ok(Self {
            cluster,
            extender_id: registry.extender_id(),
            preemption_id: registry.id(crate::plugins::DEFAULT_PREEMPTION).unwrap_or(PluginId(63)),
            queue: Queue::new(queue_config, sort, metrics.clone(), registry.names().to_vec()),
            algorithm: Algorithm::new(configuration.percentage_of_nodes_to_score, seed, clock.clone()),
            preempting: registry.shared.preempting.clone(),
            last_victims: FxHashMap::default(),
            awaited: FxHashMap::default(),
            profiles,
            extenders,
            under_way: FxHashMap::default(),
            effects: Vec::new(),
            epoch: clock.now().saturating_sub(clock.monotonic()).unwrap_or(Timestamp::UNIX_EPOCH),
            clock,
            metrics,
            hints: Default::default(),
            registry,
        })
    }

    /// The time by which the queue goes.
    pub fn now(&self) -> Timestamp {
        self.epoch.saturating_add(self.clock.monotonic()).unwrap_or(Timestamp::MAX)
    }

    /// The model of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// How many pods wait where.
    pub fn pending(&self) -> Pending {
        self.queue.pending()
    }

    /// Tells the metrics how much there is of everything.
    pub fn measure(&self) {
        let cache = CacheSize {
            nodes: self.cluster.order().len(),
            pods: self.cluster.pod_count(),
            assumed_pods: self.cluster.assumed_count(),
        };
        self.metrics.sizes(self.queue.pending(), self.queue.in_flight_events(), cache);
    }

    /// The name of a plugin.
    pub fn plugin_name(&self, id: PluginId) -> &'static str {
        self.registry.name(id)
    }

    /// What must be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When something must be done though nothing happens; `None` when never.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let waits = self.under_way.values().flat_map(|u| u.waits.iter().map(|(_, until)| *until));
        waits.chain(self.queue.next_deadline()).min()
    }

    /// Does what time alone asks for.
    pub fn tick(&mut self) {
        let now = self.now();
        self.queue.end_backoffs(now);
        self.queue.flush_forgotten(judge!(self), now);
        let expired: Vec<_> = self
            .under_way
            .iter()
            .filter_map(|(uid, under)| {
                under.waits.iter().find(|(_, until)| *until <= now).map(|(id, _)| (uid.clone(), *id))
            })
            .collect();
        for (uid, plugin) in expired {
            let text = format!("rejected due to timeout after waiting at plugin {}", self.registry.name(plugin));
            self.reject(&uid, plugin, text);
        }
    }

    /// Whether a cycle could run now.
    pub fn has_work(&self) -> bool {
        !self.queue.is_idle()
    }

    /// Tries the next pod; `false` when there is none.
    pub fn schedule_one(&mut self) -> bool {
        let now = self.now();
        let Some(queued) = self.queue.pop(now) else { return false };
        let info = queued.info.clone();
        let Some(profile) = self.profiles.iter().find(|p| p.name == info.scheduler_name()).cloned() else {
            self.queue.done(info.uid());
            return true;
        };
        if info.is_terminating() {
            let note = format!("skip schedule deleting pod: {}/{}", info.namespace(), info.name());
            self.record(&info, None, true, "FailedScheduling", "Scheduling", note);
            self.queue.done(info.uid());
            return true;
        }
        if self.cluster.placed(info.uid()).is_some() {
            self.queue.done(info.uid());
            return true;
        }
        for node in self.queue.nominator.take_changed() {
            self.cluster.touch(&node);
        }
        self.cluster.prepare(&info);
        let world = World {
            cluster: &self.cluster,
            profile: &profile,
            nominator: &self.queue.nominator,
            extenders: &self.extenders,
            extender_id: self.extender_id,
            now,
        };
        let waited = Duration::try_from(now.duration_since(queued.timestamp)).unwrap_or_default();
        hops::stage(hops::Stage::Queue, "schedule").since(waited).end(info.uid(), "", 0);
        let timer = hops::stage(hops::Stage::Schedule, "schedule");
        let algorithm = &mut self.algorithm;
        let outcome = guarded(&info, || algorithm.schedule(world, &info))
            .unwrap_or_else(|| Err(Failure::Error(Rejection::error(PANICKED))));
        let looked_at = self.algorithm.looked_at();
        timer.amount(looked_at as u64).note(refusals::note(&profile, &self.algorithm.diagnosis, &outcome)).end(
            info.uid(),
            "",
            0,
        );
        let took = seconds(now, self.now());
        match outcome {
            Ok(placement) => self.commit(queued, profile.clone(), placement.node, now),
            Err(failure) => self.no_node(queued, profile.clone(), failure, now),
        }
        self.metrics.cycle(&profile.name, took, &self.algorithm.cycle);
        true
    }

    /// No node was found: perhaps room can be made.
    fn no_node(&mut self, mut queued: QueuedPod, profile: Arc<Profile>, failure: Failure, now: Timestamp) {
        let info = queued.info.clone();
        let clear = Nomination::Set(String::new());
        (queued.rejectors, queued.pending) = (PluginSet::default(), PluginSet::default());
        let (rejection, nomination) = match failure {
            Failure::NoNodes => {
                // Whatever makes a node fit for one of the filters is news; until then nothing is tried. Upstream's tries again
                // and again, and tells so each time.
                profile.filter.iter().for_each(|filter| queued.rejectors.insert(filter.id));
                (Rejection::unresolvable("no nodes available to schedule pods"), clear)
            }
            Failure::Error(rejection) => (rejection, clear),
            Failure::Unschedulable => {
                let world = World {
                    cluster: &self.cluster,
                    profile: &profile,
                    nominator: &self.queue.nominator,
                    extenders: &self.extenders,
                    extender_id: self.extender_id,
                    now,
                };
                let began = self.now();
                let algorithm = &mut self.algorithm;
                let outcome = guarded(&info, || algorithm.post_filter(world, &info)).flatten();
                if let Some(outcome) = &outcome {
                    self.metrics.preemption_attempt();
                    self.metrics.evaluation(outcome.success, seconds(began, self.now()));
                }
                let diagnosis = &self.algorithm.diagnosis;
                (queued.rejectors, queued.pending) = (diagnosis.rejectors, diagnosis.pending);
                let message = diagnosis.message(self.cluster.order().len());
                let nomination = match outcome {
                    None => clear,
                    Some(outcome) => match outcome.result {
                        None => Nomination::Keep,
                        Some(result) => {
                            if result.budget_violations > 0 {
                                self.metrics.budget_violations(result.budget_violations);
                            }
                            self.preempt(&info, &result.nominate, result.victims);
                            Nomination::Set(result.nominate)
                        }
                    },
                };
                (Rejection::unschedulable(message), nomination)
            }
        };
        self.fail(queued, &profile, rejection, nomination, now);
    }

    /// Reports a failed attempt and puts the pod back into the queue.
    fn fail(
        &mut self,
        queued: QueuedPod,
        profile: &Profile,
        rejection: Rejection,
        nomination: Nomination,
        now: Timestamp,
    ) {
        let info = queued.info.clone();
        let (reason, result) = if rejection.is_rejection() {
            ("Unschedulable", AttemptResult::Unschedulable)
        } else {
            ("SchedulerError", AttemptResult::Error)
        };
        self.metrics.attempt(&profile.name, result, seconds(now, self.now()));
        let message = rejection.message();
        self.queue.failed(queued, judge!(self), now);
        self.queue.nominator.set(&info, &nomination);
        self.record(&info, None, true, "FailedScheduling", "Scheduling", status::note(&message));
        let condition = Condition { kind: "PodScheduled", status: "False", reason, message: &message };
        if let Some(patch) = status::patch(&info, Some(condition), &nomination, self.clock.now()) {
            self.effects.push(Effect::PatchStatus { pod: info.clone(), patch });
        }
    }

    fn record(
        &mut self,
        pod: &Arc<PodInfo>,
        related: Option<Arc<PodInfo>>,
        warning: bool,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.effects.push(Effect::Record(PodEvent { pod: pod.clone(), related, warning, reason, action, note }));
    }

    /// The nominated pods, each with its node.
    #[cfg(test)]
    pub(crate) fn nominated(&self) -> Vec<(Arc<PodInfo>, String)> {
        self.queue.nominator.all()
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut seen = FxHashSet::default();
        for queued in self.queue.iter() {
            let uid = queued.info.uid();
            if !seen.insert(uid.clone()) {
                return Err(format!("pod {uid} is queued twice"));
            }
            if self.cluster.placed(uid).is_some() {
                return Err(format!("pod {uid} is queued and placed"));
            }
        }
        Ok(())
    }
}

/// The message for a pod on which a plugin panicked.
const PANICKED: &str = "a plugin panicked while looking at this pod";

/// Plugins only look at the cluster, and what a cycle finds out is cleared by the next. So one that panics harms nothing but the
/// cycle of its pod, which is tried again later, as after any other error.
fn guarded<T>(pod: &PodInfo, cycle: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(cycle))
        .map_err(|_| {
            informer::metrics::panicked("scheduler", &format_args!("{}/{}", pod.namespace(), pod.name()));
        })
        .ok()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}
