//! The scheduler as a state machine: observations and results go in, effects come out.
//!
//! [`Scheduler::observe`] takes what the informers saw, [`Scheduler::schedule_one`] runs one cycle, and whatever must
//! happen to the API is returned by [`Scheduler::take_effects`] for others to do; how that went comes back through
//! [`Scheduler::bound`], [`Scheduler::bind_failed`] and [`Scheduler::preempted`]. The machine itself performs no I/O,
//! reads an injected clock and draws from a seeded generator, so any run can be replayed.

use std::sync::Arc;
use std::time::Duration;

use informer::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::api::{ApiFailure, PodEvent};
use crate::cluster::Cluster;
use crate::config::Configuration;
use crate::extender::Extender;
use crate::framework::{
    Action, ClusterEvent, PermitOutcome, PluginId, PluginSet, Profile, Rejection, Resource, Work, node_changes,
    pod_changes,
};
use crate::metrics::{Attempt as AttemptResult, Metrics};
use crate::node::NodeIdx;
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::preemption::Preempting;
use crate::queue::{Judge, Nomination, Pending, Queue, QueueConfig, QueuedPod, object_event};
use crate::registry::{Registry, RegistryError};
use crate::schedule::{Algorithm, Failure, World};
use crate::status::{self, Condition};

/// Something to do to the API.
pub enum Effect {
    /// Bind a pod; report with [`Scheduler::bound`] or [`Scheduler::bind_failed`].
    Bind(BindJob),
    /// Evict pods for another; report with [`Scheduler::preempted`].
    Preempt(PreemptJob),
    /// Patch the status of a pod.
    PatchStatus {
        /// The pod.
        pod: Arc<Pod>,
        /// A strategic merge patch.
        patch: serde_json::Value,
    },
    /// Record an event.
    Record(PodEvent),
}

/// The work of binding one pod, in order.
pub struct BindJob {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Its node.
    pub node: Arc<str>,
    /// PreBind work and the binding itself.
    pub works: Vec<Work>,
}

/// Evictions for one pod.
#[derive(Debug, Clone)]
pub struct PreemptJob {
    /// The pod that needs the room.
    pub preemptor: Arc<PodInfo>,
    /// Where.
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
    /// The newest version that the API showed; `None` once the pod is gone or bound by someone else.
    latest: Option<Arc<Pod>>,
    /// Plugins that Permit waits for, each until a time.
    waits: Vec<(PluginId, Timestamp)>,
    job: Option<BindJob>,
    began: Timestamp,
}

/// The scheduler.
pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    profiles: Vec<Arc<Profile>>,
    algorithm: Algorithm,
    extenders: Vec<Arc<dyn Extender>>,
    extender_id: PluginId,
    under_way: FxHashMap<Arc<str>, Under>,
    preempting: Arc<Preempting>,
    preemption_id: PluginId,
    effects: Vec<Effect>,
    clock: Arc<dyn Clock>,
    /// When monotonic time began, as the wall clock had it then: time in the queue never goes back.
    epoch: Timestamp,
    metrics: Arc<Metrics>,
    registry: Registry,
}

/// Answers the queue's questions.
struct Profiles<'a> {
    profiles: &'a [Arc<Profile>],
    cluster: &'a Cluster,
}

impl Profiles<'_> {
    fn of(&self, pod: &PodInfo) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|p| p.name == pod.scheduler_name())
    }
}

impl Judge for Profiles<'_> {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), PluginId> {
        let Some(profile) = self.of(pod) else { return Ok(()) };
        let mut plugins = profile.pre_enqueue.iter();
        plugins.find(|at| at.plugin.pre_enqueue(pod).is_err()).map_or(Ok(()), |at| Err(at.id))
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
        match self.of(pod) {
            Some(profile) => profile.hint(pod, rejectors, pending, event, self.cluster),
            None => Some(false),
        }
    }
}

macro_rules! judge {
    ($scheduler:ident) => {
        &Profiles { profiles: &$scheduler.profiles, cluster: &$scheduler.cluster }
    };
}

impl Scheduler {
    /// A scheduler of this configuration. The registry may know plugins from outside.
    pub fn new(
        configuration: &Configuration,
        mut registry: Registry,
        extenders: Vec<Arc<dyn Extender>>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Self, RegistryError> {
        let profiles = registry.profiles(configuration)?;
        let queue_config = QueueConfig {
            initial_backoff: Duration::from_secs(configuration.pod_initial_backoff_seconds),
            max_backoff: Duration::from_secs(configuration.pod_max_backoff_seconds),
            ..QueueConfig::default()
        };
        let sort = profiles[0].queue_sort.clone();
        let mut cluster = Cluster::new();
        for key in profiles.iter().flat_map(|p| &p.interests).flat_map(|(_, _, plugin)| plugin.topology_keys()) {
            cluster.track(&key);
        }
        Ok(Self {
            cluster,
            queue: Queue::new(queue_config, sort),
            algorithm: Algorithm::new(configuration.percentage_of_nodes_to_score, seed),
            extender_id: registry.extender_id(),
            preemption_id: registry.id(crate::plugins::DEFAULT_PREEMPTION).unwrap_or(PluginId(63)),
            preempting: registry.shared.preempting.clone(),
            profiles,
            extenders,
            under_way: FxHashMap::default(),
            effects: Vec::new(),
            epoch: clock.now().saturating_sub(clock.monotonic()).unwrap_or(Timestamp::UNIX_EPOCH),
            clock,
            metrics: Arc::default(),
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

    /// What is measured.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// How many pods wait where.
    pub fn pending(&self) -> Pending {
        self.queue.pending()
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

    /// Takes in what an informer saw.
    pub fn observe(&mut self, old: Option<Object>, new: Option<Object>) {
        match (old, new) {
            (None, Some(Object::Pod(new))) => self.pod_added(new),
            (Some(Object::Pod(old)), Some(Object::Pod(new))) => self.pod_updated(&old, new),
            (Some(Object::Pod(old)), None) => self.pod_deleted(old),
            (old, Some(Object::Node(new))) => self.node_set(old, new),
            (Some(Object::Node(old)), None) => {
                let event = ClusterEvent::new(Resource::Node, Action::DELETE, Some(Object::Node(old.clone())), None);
                self.dispatch(&event);
                self.cluster.remove_node(old.metadata.name.as_deref().unwrap_or_default());
            }
            (old, new) => self.object_changed(old, new),
        }
    }

    fn object_changed(&mut self, old: Option<Object>, new: Option<Object>) {
        let Some(object) = new.as_ref().or(old.as_ref()) else { return };
        let resource = match object {
            Object::PersistentVolume(_) => Some(Resource::PersistentVolume),
            Object::PersistentVolumeClaim(_) => Some(Resource::PersistentVolumeClaim),
            Object::StorageClass(_) => Some(Resource::StorageClass),
            Object::CsiNode(_) => Some(Resource::CsiNode),
            Object::CsiDriver(_) => Some(Resource::CsiDriver),
            Object::CsiStorageCapacity(_) => Some(Resource::CsiStorageCapacity),
            Object::VolumeAttachment(_) => Some(Resource::VolumeAttachment),
            _ => None,
        };
        self.cluster.objects.apply(object, new.is_some());
        if let Some(resource) = resource {
            self.dispatch(&object_event(resource, old, new));
        }
    }

    fn node_set(&mut self, old: Option<Object>, new: Arc<k8s_openapi::api::core::v1::Node>) {
        self.cluster.set_node(new.clone());
        let actions = match &old {
            Some(Object::Node(old)) => node_changes(old, &new),
            _ => vec![Action::ADD],
        };
        for action in actions {
            self.dispatch(&ClusterEvent::new(Resource::Node, action, old.clone(), Some(Object::Node(new.clone()))));
        }
    }

    fn dispatch(&mut self, event: &ClusterEvent) {
        let now = self.now();
        self.queue.on_event(event, judge!(self), now, |_| true);
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or_default();
        self.profiles.iter().any(|p| p.name == name)
    }

    fn pod_added(&mut self, pod: Arc<Pod>) {
        if Cluster::is_assigned(&pod) {
            self.assigned(None, pod);
        } else if self.is_ours(&pod) && !is_finished(&pod) {
            let now = self.now();
            self.queue.add(Arc::new(PodInfo::new(pod)), judge!(self), now);
        }
    }

    fn pod_updated(&mut self, old: &Arc<Pod>, new: Arc<Pod>) {
        if old.metadata.uid != new.metadata.uid {
            // The deletion was missed: two pods of one name.
            self.pod_deleted(old.clone());
            return self.pod_added(new);
        }
        if Cluster::is_assigned(&new) {
            return self.assigned(Some(old), new);
        }
        if !self.is_ours(&new) || old.metadata.resource_version == new.metadata.resource_version {
            return;
        }
        let uid = new.metadata.uid.clone().unwrap_or_default();
        if is_finished(&new) {
            return self.pod_deleted(new);
        }
        if let Some(under) = self.under_way.get_mut(&*uid) {
            let deleting = under.latest.as_ref().is_some_and(|p| p.metadata.deletion_timestamp.is_none())
                && new.metadata.deletion_timestamp.is_some();
            under.latest = Some(new);
            if deleting {
                self.abandon(&uid);
            }
            return;
        }
        let now = self.now();
        let info = Arc::new(PodInfo::new(new));
        self.queue.update(old, info.clone(), judge!(self), now);
        let before = old.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).unwrap_or_default();
        if !before.is_empty() && info.nominated_node() != Some(before) {
            self.nomination_freed(old.clone(), info.priority);
        }
    }

    fn pod_deleted(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.queue.delete(&uid);
        if let Some(under) = self.under_way.get_mut(&*uid) {
            under.latest = None;
            self.abandon(&uid);
            return;
        }
        if self.cluster.placed(&uid).is_some() {
            self.cluster.remove_pod(&uid);
            self.dispatch(&ClusterEvent::assigned_pod_delete(pod));
        } else if pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).is_some_and(|n| !n.is_empty()) {
            let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
            self.nomination_freed(pod, priority);
        }
    }

    /// Room promised to a pod is free again: for pods of no higher priority that is as good as a deletion.
    fn nomination_freed(&mut self, pod: Arc<Pod>, priority: i32) {
        let event = ClusterEvent::assigned_pod_delete(pod);
        let now = self.now();
        self.queue.on_event(&event, judge!(self), now, |waiting| waiting.priority <= priority);
    }

    /// The API says that the pod is on a node.
    fn assigned(&mut self, old: Option<&Arc<Pod>>, new: Arc<Pod>) {
        let uid = new.metadata.uid.clone().unwrap_or_default();
        if is_finished(&new) {
            // A finished pod takes no room.
            return self.pod_deleted(new);
        }
        let was_assigned = old.is_some_and(|o| Cluster::is_assigned(o));
        self.cluster.set_pod(Arc::new(PodInfo::new(new.clone())));
        if let Some(under) = self.under_way.get_mut(&*uid) {
            under.latest = None;
        }
        let before = old.map(|o| Object::Pod(o.clone()));
        if was_assigned {
            for action in old.map(|old| pod_changes(old, &new)).unwrap_or_default() {
                self.dispatch(&ClusterEvent::new(
                    Resource::AssignedPod,
                    action,
                    before.clone(),
                    Some(Object::Pod(new.clone())),
                ));
            }
        } else {
            self.queue.delete(&uid);
            self.dispatch(&ClusterEvent::new(Resource::AssignedPod, Action::ADD, None, Some(Object::Pod(new))));
        }
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
            self.record(&info.pod, None, true, "FailedScheduling", "Scheduling", note);
            self.queue.done(info.uid());
            return true;
        }
        if self.cluster.placed(info.uid()).is_some() {
            self.queue.done(info.uid());
            return true;
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
        match self.algorithm.schedule(world, &info) {
            Ok(placement) => self.commit(queued, profile, placement.node, now),
            Err(failure) => self.no_node(queued, profile, failure, now),
        }
        true
    }

    /// Assumes the pod on its node and sets the binding in motion.
    fn commit(&mut self, queued: QueuedPod, profile: Arc<Profile>, idx: NodeIdx, now: Timestamp) {
        let info = queued.info.clone();
        if let Err(error) = self.cluster.assume(info.clone(), idx) {
            return self.fail(
                queued,
                &profile,
                Rejection::error(error.to_string()),
                Nomination::Set(String::new()),
                now,
            );
        }
        self.queue.nominator.remove(info.uid());
        let under = Under {
            latest: Some(info.pod.clone()),
            pod: queued,
            profile: profile.clone(),
            node: idx,
            waits: Vec::new(),
            job: None,
            began: now,
        };
        if let Err(rejection) = self.reserve_and_permit(under, now) {
            self.unreserve(&info, &profile);
            self.cluster.forget(info.uid());
            let Some(under) = self.under_way.remove(info.uid()) else { return };
            self.fail_late(under, rejection, now);
        }
    }

    fn reserve_and_permit(&mut self, mut under: Under, now: Timestamp) -> Result<(), Rejection> {
        let (info, profile) = (under.pod.info.clone(), under.profile.clone());
        let node = self.cluster.node(under.node);
        let state = &mut self.algorithm.state;
        let mut reserve = || {
            for at in &profile.reserve {
                at.plugin.reserve(state, &info, node, &self.cluster).map_err(|r| r.by(at.id))?;
            }
            for at in &profile.permit {
                match at.plugin.permit(state, &info, node) {
                    PermitOutcome::Allow => {}
                    PermitOutcome::Wait(limit) => {
                        under.waits.push((at.id, now.saturating_add(limit).unwrap_or(Timestamp::MAX)))
                    }
                    PermitOutcome::Reject(rejection) => return Err(rejection.by(at.id)),
                }
            }
            Ok(())
        };
        if let Err(rejection) = reserve() {
            self.under_way.insert(info.uid().clone(), under);
            return Err(rejection);
        }
        let state = &self.algorithm.state;
        let mut works: Vec<Work> = Vec::new();
        for at in &profile.pre_bind {
            works.extend(at.plugin.pre_bind(state, &info, node, &self.cluster));
        }
        let name = node.shared_name().clone();
        // What takes its time is announced, so that others keep the room free.
        if !works.is_empty() || !under.waits.is_empty() {
            let nomination = Nomination::Set(name.to_string());
            if let Some(patch) = status::patch(&info.pod, None, &nomination, self.clock.now()) {
                self.effects.push(Effect::PatchStatus { pod: info.pod.clone(), patch });
            }
        }
        let by_extender = self.extenders.iter().filter(|e| e.is_interested(&info)).find_map(|e| e.bind(&info, &name));
        let bind = by_extender.or_else(|| profile.bind.iter().find_map(|at| at.plugin.bind(&info, &name)));
        works.extend(bind);
        under.job = Some(BindJob { pod: info.clone(), node: name, works });
        self.under_way.insert(info.uid().clone(), under);
        self.start_if_permitted(info.uid());
        Ok(())
    }

    fn start_if_permitted(&mut self, uid: &str) {
        let Some(under) = self.under_way.get_mut(uid) else { return };
        if under.waits.is_empty()
            && let Some(job) = under.job.take()
        {
            self.queue.done(uid);
            self.effects.push(Effect::Bind(job));
        }
    }

    /// A Permit plugin lets a waiting pod go.
    pub fn allow(&mut self, uid: &str, plugin: PluginId) {
        if let Some(under) = self.under_way.get_mut(uid) {
            under.waits.retain(|(id, _)| *id != plugin);
        }
        self.start_if_permitted(uid);
    }

    /// A Permit plugin refuses a waiting pod.
    pub fn reject(&mut self, uid: &str, plugin: PluginId, reason: String) {
        if self.under_way.get(uid).is_none_or(|u| u.job.is_none()) {
            return;
        }
        self.give_up(uid, Rejection::unschedulable(reason).by(plugin));
    }

    /// The pod is bound.
    pub fn bound(&mut self, uid: &str) {
        let Some(under) = self.under_way.remove(uid) else { return };
        let (info, now) = (under.pod.info.clone(), self.now());
        let node = self.cluster.node(under.node).name().to_owned();
        let note = format!("Successfully assigned {}/{} to {node}", info.namespace(), info.name());
        self.record(&info.pod, None, false, "Scheduled", "Binding", note);
        for at in &under.profile.post_bind {
            at.plugin.post_bind(&info, &node);
        }
        self.metrics.attempt(&under.profile.name, AttemptResult::Scheduled, seconds(under.began, now));
        self.metrics.scheduled(&under.pod, now);
    }

    /// The pod could not be bound.
    pub fn bind_failed(&mut self, uid: &str, failure: &ApiFailure) {
        self.give_up(uid, Rejection::error(failure.to_string()));
    }

    /// The pod under way is being deleted or is gone: its room is free at once.
    fn abandon(&mut self, uid: &str) {
        let waiting = self.under_way.get(uid).is_some_and(|u| u.job.is_some());
        if waiting {
            return self.give_up(uid, Rejection::unschedulable("removed"));
        }
        if let Some((info, idx)) = self.cluster.placed(uid).filter(|_| self.cluster.is_assumed(uid)) {
            let pod = on_node(info, self.cluster.node(idx).name());
            self.cluster.forget(uid);
            self.dispatch(&ClusterEvent::assigned_pod_delete(pod));
        }
    }

    fn give_up(&mut self, uid: &str, rejection: Rejection) {
        let Some(under) = self.under_way.remove(uid) else { return };
        let (info, now) = (under.pod.info.clone(), self.now());
        self.unreserve(&info, &under.profile);
        let pod = on_node(&info, self.cluster.node(under.node).name());
        if self.cluster.forget(uid) {
            let event = ClusterEvent::assigned_pod_delete(pod);
            self.queue.on_event(&event, judge!(self), now, |other| other.uid() != info.uid());
        }
        self.fail_late(under, rejection, now);
    }

    fn unreserve(&self, info: &PodInfo, profile: &Profile) {
        for at in profile.reserve.iter().rev() {
            at.plugin.unreserve(info);
        }
    }

    /// A failure after a node was found: the newest version of the pod is tried again, if there is one.
    fn fail_late(&mut self, under: Under, rejection: Rejection, now: Timestamp) {
        let Under { mut pod, profile, latest, .. } = under;
        let Some(latest) = latest else {
            self.queue.done(pod.info.uid());
            return;
        };
        if !Arc::ptr_eq(&latest, &pod.info.pod) {
            pod.info = Arc::new(PodInfo::new(latest));
        }
        let rejection = match rejection.is_rejection() {
            true => {
                let mut diagnosis = crate::framework::Diagnosis::default();
                diagnosis.reject_node(under.node, &rejection);
                (pod.rejectors, pod.pending) = (diagnosis.rejectors, diagnosis.pending);
                Rejection { reasons: smallvec::smallvec![diagnosis.message(1).into()], ..rejection }
            }
            false => {
                (pod.rejectors, pod.pending) = (PluginSet::default(), PluginSet::default());
                rejection
            }
        };
        self.fail(pod, &profile, rejection, Nomination::Set(String::new()), now);
    }

    /// No node was found: perhaps room can be made.
    fn no_node(&mut self, mut queued: QueuedPod, profile: Arc<Profile>, failure: Failure, now: Timestamp) {
        let info = queued.info.clone();
        let clear = Nomination::Set(String::new());
        (queued.rejectors, queued.pending) = (PluginSet::default(), PluginSet::default());
        let (rejection, nomination) = match failure {
            Failure::NoNodes => (Rejection::unresolvable("no nodes available to schedule pods"), clear),
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
                let outcome = self.algorithm.post_filter(world, &info);
                let diagnosis = &self.algorithm.diagnosis;
                (queued.rejectors, queued.pending) = (diagnosis.rejectors, diagnosis.pending);
                let message = diagnosis.message(self.cluster.order().len());
                let nomination = match outcome {
                    None => clear,
                    Some(outcome) => match outcome.result {
                        None => Nomination::Keep,
                        Some(result) => {
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

    fn preempt(&mut self, preemptor: &Arc<PodInfo>, node: &str, victims: Vec<Arc<PodInfo>>) {
        let victims: Vec<_> = victims.into_iter().filter(|v| !v.is_terminating()).collect();
        if victims.is_empty() {
            return;
        }
        self.metrics.preemption(victims.len());
        // Victims that are not bound yet are turned back in memory; nothing of them is in the API.
        let (assumed, placed): (Vec<_>, Vec<_>) =
            victims.into_iter().partition(|v| self.under_way.get(v.uid()).is_some_and(|u| u.job.is_some()));
        for victim in assumed {
            let note = format!("Preempted by pod {} on node {node} (in kube-scheduler memory).", preemptor.uid());
            self.record(&victim.pod, Some(preemptor.pod.clone()), false, "Preempted", "Preempting", note);
            self.give_up(victim.uid(), Rejection::unschedulable("preempted").by(self.preemption_id));
        }
        let lower = self.queue.nominator.on(node).iter().filter(|p| p.priority < preemptor.priority);
        let displaced: Vec<_> = lower.cloned().collect();
        if placed.is_empty() {
            return;
        }
        self.preempting.begin(preemptor.uid());
        self.effects.push(Effect::Preempt(PreemptJob {
            preemptor: preemptor.clone(),
            node: node.to_owned(),
            victims: placed,
            displaced,
        }));
    }

    /// The evictions for a pod are done, or failed.
    pub fn preempted(&mut self, preemptor: &Arc<PodInfo>, failed: bool) {
        self.preempting.end(preemptor.uid());
        // An event that came during the evictions was held back by the gate; a failure leaves nothing to wait for.
        if failed || self.queue.gated_by(preemptor.uid()) == Some(self.preemption_id) {
            let now = self.now();
            self.queue.activate(preemptor, judge!(self), now);
        }
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
        self.metrics.attempt(&profile.name, result, 0.0);
        let message = rejection.message();
        self.queue.failed(queued, judge!(self), now);
        self.queue.nominator.set(&info, &nomination);
        self.record(&info.pod, None, true, "FailedScheduling", "Scheduling", status::note(&message));
        let condition = Condition { kind: "PodScheduled", status: "False", reason, message: &message };
        if let Some(patch) = status::patch(&info.pod, Some(condition), &nomination, self.clock.now()) {
            self.effects.push(Effect::PatchStatus { pod: info.pod.clone(), patch });
        }
    }

    fn record(
        &mut self,
        pod: &Arc<Pod>,
        related: Option<Arc<Pod>>,
        warning: bool,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.effects.push(Effect::Record(PodEvent { pod: pod.clone(), related, warning, reason, action, note }));
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

/// The pod as it would be on its node: an assumed pod's own object does not know it yet.
fn on_node(info: &PodInfo, node: &str) -> Arc<Pod> {
    let mut pod = (*info.pod).clone();
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    Arc::new(pod)
}

fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests;
