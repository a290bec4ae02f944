//! The scheduling queue: which pod is tried next, and when a pod that failed is tried again.
//!
//! A pod is in one of three places. *Active*: to be tried, by priority. *Backoff*: worth trying again, but not yet; when
//! nothing is active, pods that were rejected (not those whose attempt failed with an error) are taken from here early.
//! *Unschedulable*: waiting for an event that the plugins which rejected it deem helpful. Gated pods wait there too.
//!
//! Nothing here polls: [`Queue::next_deadline`] says when time alone will move a pod.

mod heap;
mod judge;
mod nominator;
mod order;
mod pod;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::framework::{ClusterEvent, EventLabel, PluginId, QueueSort, Resource, pod_changes};
use crate::metrics::{Metrics, Place};
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use heap::Heap;
pub use judge::{Gate, Judge, object_event};
use judge::{Requeue, worth};
pub use nominator::{Nomination, Nominator};
use order::{ByBackoff, ByQueueSort};
pub use pod::QueuedPod;
use pod::{WINDOW, forgotten_at, is_backing_off, later};

/// Events remembered for pods under way. Beyond that, such a pod is simply tried again.
const MAX_IN_FLIGHT_EVENTS: usize = 10_000;

/// Durations of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueConfig {
    /// Backoff after the first failure.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// After so long without a helpful event a pod is tried all the same.
    pub max_unschedulable: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_unschedulable: Duration::from_secs(300),
        }
    }
}

/// How many pods are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

pub struct Queue {
    config: QueueConfig,
    by_sort: ByQueueSort,
    by_backoff: ByBackoff,
    active: Heap,
    backoff: Heap,
    error_backoff: Heap,
    unschedulable: FxHashMap<Arc<str>, QueuedPod>,
    /// Those of the unschedulable pods whose gate opens by itself. An event helped them already.
    held: FxHashMap<Arc<str>, QueuedPod>,
    /// How many unschedulable pods each plugin rejected; the last element counts those that none did.
    rejected_by: [usize; 65],
    gated: usize,
    /// No unschedulable pod is forgotten before this; pods that left may have been the reason for it.
    none_forgotten_before: Option<Timestamp>,
    /// Pods under way, with the number of the first event they have not seen.
    in_flight: FxHashMap<Arc<str>, u64>,
    events: VecDeque<ClusterEvent>,
    first_event: u64,
    pub nominator: Nominator,
    metrics: Arc<Metrics>,
    /// The names of the plugins, by number.
    plugins: Vec<&'static str>,
}

impl Queue {
    /// An empty queue, which tells its metrics of the plugins of these names.
    pub fn new(
        config: QueueConfig,
        sort: Arc<dyn QueueSort>,
        metrics: Arc<Metrics>,
        plugins: Vec<&'static str>,
    ) -> Self {
        Self {
            config,
            by_sort: ByQueueSort(sort.clone()),
            by_backoff: ByBackoff(sort),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            unschedulable: FxHashMap::default(),
            held: FxHashMap::default(),
            rejected_by: [0; 65],
            gated: 0,
            none_forgotten_before: None,
            in_flight: FxHashMap::default(),
            events: VecDeque::new(),
            first_event: 0,
            nominator: Nominator::default(),
            metrics,
            plugins,
        }
    }

    /// Takes in a new pod.
    pub fn add(&mut self, info: Arc<PodInfo>, judge: &dyn Judge, now: Timestamp) {
        self.remove(info.uid());
        self.nominator.set(&info, &Nomination::Keep);
        self.make_active(QueuedPod::new(info, now), judge, now, EventLabel::POD_ADDED);
    }

    /// Takes in the new version of a pod.
    pub fn update(&mut self, old: &Arc<PodInfo>, new: Arc<PodInfo>, judge: &dyn Judge, now: Timestamp) {
        let uid = new.uid().clone();
        let changes = || {
            let event = |action| {
                ClusterEvent::new(
                    Resource::TargetPod,
                    action,
                    Some(Object::Pod(old.clone())),
                    Some(Object::Pod(new.clone())),
                )
            };
            pod_changes(old, &new).into_iter().map(event).collect::<Vec<_>>()
        };
        if self.in_flight.contains_key(&uid) {
            for event in changes() {
                self.record(event);
            }
            return;
        }
        for (heap, is_active) in
            [(&mut self.active, true), (&mut self.backoff, false), (&mut self.error_backoff, false)]
        {
            let removed =
                if is_active { heap.remove(&uid, &self.by_sort) } else { heap.remove(&uid, &self.by_backoff) };
            if let Some(mut pod) = removed {
                pod.info = new.clone();
                if is_active {
                    heap.push(pod, &self.by_sort);
                } else {
                    heap.push(pod, &self.by_backoff);
                }
                self.nominator.update(old, &new);
                return;
            }
        }
        let Some(mut pod) = self.take_unschedulable(&uid) else { return self.add(new, judge, now) };
        pod.info = new.clone();
        self.nominator.update(old, &new);
        for event in changes() {
            match worth(&pod, &event, judge) {
                Requeue::No => {}
                strategy => return self.requeue(pod, strategy, judge, now, event.label()),
            }
        }
        self.keep_unschedulable(pod, false);
    }

    /// Forgets a pod wherever it is, its nomination included.
    pub fn delete(&mut self, uid: &str) {
        self.nominator.remove(uid);
        self.remove(uid);
    }

    fn remove(&mut self, uid: &str) -> Option<QueuedPod> {
        self.active
            .remove(uid, &self.by_sort)
            .or_else(|| self.backoff.remove(uid, &self.by_backoff))
            .or_else(|| self.error_backoff.remove(uid, &self.by_backoff))
            .or_else(|| self.take_unschedulable(uid))
    }

    /// The next pod to try. It is under way until [`Queue::done`] or [`Queue::failed`].
    pub fn pop(&mut self, now: Timestamp) -> Option<QueuedPod> {
        self.end_backoffs(now);
        let mut pod = match self.active.pop(&self.by_sort) {
            Some(pod) => pod,
            // When there is nothing better to do, a pod need not sit out its backoff.
            None => {
                let pod = self.backoff.pop(&self.by_backoff)?;
                self.metrics.incoming(Place::Active, EventLabel::POP_FROM_BACKOFF);
                pod
            }
        };
        pod.attempts += 1;
        self.in_flight.insert(pod.info.uid().clone(), self.first_event + self.events.len() as u64);
        Some(pod)
    }

    /// The pod is no longer under way: events need not be kept for it.
    pub fn done(&mut self, uid: &str) {
        if self.in_flight.remove(uid).is_none() {
            return;
        }
        let first_needed = self.in_flight.values().min().copied().unwrap_or(u64::MAX);
        while self.first_event < first_needed && self.events.pop_front().is_some() {
            self.first_event += 1;
        }
    }

    /// Takes back a pod whose attempt failed. Its rejectors must be set, or none of them for an error.
    pub fn failed(&mut self, mut pod: QueuedPod, judge: &dyn Judge, now: Timestamp) {
        let uid = pod.info.uid().clone();
        let seen = self.in_flight.get(&uid).copied();
        if self.contains(&uid) {
            // An update brought it back meanwhile; that version is newer.
            self.done(&uid);
            return;
        }
        if pod.rejectors.union(pod.pending).is_empty() {
            pod.consecutive_errors += 1;
        } else {
            pod.unschedulable_count += 1;
            pod.consecutive_errors = 0;
        }
        pod.timestamp = now;
        pod.backoff_until = pod.backoff(&self.config);
        pod.flushed_at = None;
        let strategy = self.missed(&pod, seen, judge);
        self.done(&uid);
        self.requeue(pod, strategy, judge, now, EventLabel::ATTEMPT_FAILED);
    }

    /// What the events that came while the pod was under way mean for it.
    fn missed(&self, pod: &QueuedPod, seen: Option<u64>, judge: &dyn Judge) -> Requeue {
        if pod.rejectors.union(pod.pending).is_empty() {
            return Requeue::AfterBackoff;
        }
        let Some(offset) = seen.and_then(|seen| seen.checked_sub(self.first_event)) else {
            // Not under way, or the events are gone: assume that one of them helped.
            return Requeue::AfterBackoff;
        };
        let mut best = Requeue::No;
        for event in self.events.iter().skip(offset as usize) {
            match worth(pod, event, judge) {
                Requeue::No => {}
                Requeue::Immediately => return Requeue::Immediately,
                Requeue::AfterBackoff => {
                    best = Requeue::AfterBackoff;
                    if pod.pending.is_empty() {
                        break;
                    }
                }
            }
        }
        best
    }

    /// Moves the unschedulable pods that an event may help.
    pub fn on_event(
        &mut self,
        event: &ClusterEvent,
        judge: &dyn Judge,
        now: Timestamp,
        among: impl Fn(&PodInfo) -> bool,
    ) {
        let interested = judge.interested(event);
        if interested.is_empty() && !event.is_wildcard() {
            return;
        }
        if !self.in_flight.is_empty() {
            self.record(event.clone());
        }
        if !event.is_wildcard()
            && self.rejected_by[64] == 0
            && interested.iter().all(|id| self.rejected_by[id.0 as usize] == 0)
        {
            return;
        }
        let helped: Vec<_> = self
            .unschedulable
            .values()
            .filter(|pod| among(&pod.info))
            .filter(|pod| event.is_wildcard() || pod.gated_by.is_none_or(|plugin| interested.contains(plugin)))
            .map(|pod| (pod.info.uid().clone(), worth(pod, event, judge)))
            .filter(|(_, strategy)| *strategy != Requeue::No)
            .collect();
        for (uid, strategy) in helped {
            if let Some(pod) = self.take_unschedulable(&uid) {
                self.requeue(pod, strategy, judge, now, event.label());
            }
        }
    }

    /// Makes a pod active, whatever it waits for.
    pub fn activate(&mut self, info: &Arc<PodInfo>, judge: &dyn Judge, now: Timestamp) {
        let uid = info.uid();
        let waiting = self
            .take_unschedulable(uid)
            .or_else(|| self.backoff.remove(uid, &self.by_backoff))
            .or_else(|| self.error_backoff.remove(uid, &self.by_backoff));
        match waiting {
            Some(pod) => self.make_active(pod, judge, now, EventLabel::FORCE_ACTIVATE),
            None if self.in_flight.contains_key(uid) => self.record(ClusterEvent::force_activate(info.clone())),
            None => {}
        }
    }

    /// Tries again the pods that have waited too long for an event.
    pub fn flush_forgotten(&mut self, judge: &dyn Judge, now: Timestamp) {
        if self.none_forgotten_before.is_none_or(|bound| now <= bound) {
            return;
        }
        let due: Vec<_> = self
            .waiting()
            .filter(|pod| now > forgotten_at(pod, self.config.max_unschedulable))
            .map(|pod| pod.info.uid().clone())
            .collect();
        for uid in due {
            if let Some(mut pod) = self.take_unschedulable(&uid) {
                pod.flushed_at = Some(now);
                self.requeue(pod, Requeue::AfterBackoff, judge, now, EventLabel::TIMEOUT);
            }
        }
        let remaining = self.waiting().map(|pod| forgotten_at(pod, self.config.max_unschedulable));
        self.none_forgotten_before = remaining.min();
    }

    /// Moves pods whose backoff is over to the active queue. PreEnqueue let them into backoff already.
    pub fn end_backoffs(&mut self, now: Timestamp) {
        for heap in [&mut self.backoff, &mut self.error_backoff] {
            while heap.peek().is_some_and(|pod| !is_backing_off(pod, now)) {
                let Some(mut pod) = heap.pop(&self.by_backoff) else { break };
                pod.first_active.get_or_insert(now);
                self.active.push(pod, &self.by_sort);
                self.metrics.incoming(Place::Active, EventLabel::BACKOFF_COMPLETE);
            }
        }
    }

    /// When time alone will move a pod; `None` when it will not.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let backoffs = [&self.backoff, &self.error_backoff];
        let backoff = backoffs.iter().filter_map(|h| h.peek()?.backoff_until).map(|t| later(t, WINDOW)).min();
        // Strictly after the limit, hence the millisecond.
        let forgotten = self
            .none_forgotten_before
            .filter(|_| self.waiting().next().is_some())
            .map(|t| later(t, Duration::from_millis(1)));
        backoff.into_iter().chain(forgotten).min()
    }

    /// Whether a pod can be popped now.
    pub fn is_idle(&self) -> bool {
        self.active.len() == 0 && self.backoff.len() == 0
    }

    /// How many pods are where.
    pub fn pending(&self) -> Pending {
        Pending {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.unschedulable.len() + self.held.len() - self.gated,
            gated: self.gated,
        }
    }

    /// Whether the pod is in any of the queues; under way does not count.
    pub fn contains(&self, uid: &str) -> bool {
        self.active.contains(uid)
            || self.backoff.contains(uid)
            || self.error_backoff.contains(uid)
            || self.unschedulable.contains_key(uid)
            || self.held.contains_key(uid)
    }

    /// The plugin that keeps a pod gated.
    pub fn gated_by(&self, uid: &str) -> Option<PluginId> {
        self.unschedulable.get(uid).or_else(|| self.held.get(uid))?.gated_by
    }

    /// The pods that wait for an event or a gate.
    fn waiting(&self) -> impl Iterator<Item = &QueuedPod> {
        self.unschedulable.values().chain(self.held.values())
    }

    /// How many events are kept for pods under way.
    pub fn in_flight_events(&self) -> usize {
        self.events.len()
    }

    /// All pods in the queues.
    pub fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        let heaps = self.active.iter().chain(self.backoff.iter()).chain(self.error_backoff.iter());
        heaps.chain(self.waiting())
    }

    fn requeue(&mut self, pod: QueuedPod, strategy: Requeue, judge: &dyn Judge, now: Timestamp, event: EventLabel) {
        match strategy {
            Requeue::No => {
                self.metrics.incoming(Place::Unschedulable, event);
                self.keep_unschedulable(pod, false);
            }
            Requeue::AfterBackoff if is_backing_off(&pod, now) => self.back_off(pod, judge, event),
            Requeue::AfterBackoff | Requeue::Immediately => self.make_active(pod, judge, now, event),
        }
    }

    fn make_active(&mut self, mut pod: QueuedPod, judge: &dyn Judge, now: Timestamp, event: EventLabel) {
        match self.gate(&mut pod, judge) {
            None => {
                pod.first_active.get_or_insert(now);
                self.active.push(pod, &self.by_sort);
                self.metrics.incoming(Place::Active, event);
            }
            Some(gate) => self.keep_gated(pod, gate, event),
        }
    }

    fn back_off(&mut self, mut pod: QueuedPod, judge: &dyn Judge, event: EventLabel) {
        if let Some(gate) = self.gate(&mut pod, judge) {
            return self.keep_gated(pod, gate, event);
        }
        self.metrics.incoming(Place::Backoff, event);
        if pod.rejectors.union(pod.pending).is_empty() {
            self.error_backoff.push(pod, &self.by_backoff);
        } else {
            self.backoff.push(pod, &self.by_backoff);
        }
    }

    /// What keeps the pod from becoming active, noted in the pod.
    fn gate(&self, pod: &mut QueuedPod, judge: &dyn Judge) -> Option<Gate> {
        let gate = judge.pre_enqueue(&pod.info).err();
        if let Some(gate) = gate {
            pod.rejectors.insert(gate.plugin);
        }
        pod.gated_by = gate.map(|gate| gate.plugin);
        gate
    }

    fn keep_gated(&mut self, pod: QueuedPod, gate: Gate, event: EventLabel) {
        self.metrics.incoming(Place::Unschedulable, event);
        self.keep_unschedulable(pod, gate.opens_by_itself);
    }

    fn keep_unschedulable(&mut self, pod: QueuedPod, held: bool) {
        self.count_rejectors(&pod, true);
        let forgotten = forgotten_at(&pod, self.config.max_unschedulable);
        self.none_forgotten_before = Some(self.none_forgotten_before.map_or(forgotten, |bound| bound.min(forgotten)));
        let place = if held { &mut self.held } else { &mut self.unschedulable };
        place.insert(pod.info.uid().clone(), pod);
    }

    fn take_unschedulable(&mut self, uid: &str) -> Option<QueuedPod> {
        let pod = self.unschedulable.remove(uid).or_else(|| self.held.remove(uid))?;
        self.count_rejectors(&pod, false);
        Some(pod)
    }

    fn count_rejectors(&mut self, pod: &QueuedPod, up: bool) {
        let rejectors = pod.rejectors.union(pod.pending);
        let step = |count: &mut usize| if up { *count += 1 } else { *count -= 1 };
        if pod.gated_by.is_some() {
            step(&mut self.gated);
        }
        if rejectors.is_empty() {
            step(&mut self.rejected_by[64]);
        }
        for id in rejectors.iter() {
            step(&mut self.rejected_by[id.0 as usize]);
            if let Some(plugin) = self.plugins.get(id.0 as usize) {
                self.metrics.unschedulable(pod.info.scheduler_name(), plugin, if up { 1 } else { -1 });
            }
        }
    }

    fn record(&mut self, event: ClusterEvent) {
        if self.events.len() == MAX_IN_FLIGHT_EVENTS {
            self.events.pop_front();
            self.first_event += 1;
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests;
