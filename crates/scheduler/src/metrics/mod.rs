//! What is measured, by upstream's names, in the Prometheus text format.
//!
//! The scheduling thread tells of whole cycles ([`Cycle`]), those who bind and evict tell of single calls; a reader renders
//! all of it when it is asked. Schedulers register themselves, so that whoever serves `/metrics` finds them.

mod cycle;
mod render;
pub mod resources;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use figures::{Buckets, Distribution};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::framework::{Code, EventLabel};
use crate::queue::{Pending, QueuedPod};
pub use cycle::Cycle;

/// Whole attempts, waits: one millisecond to 16 seconds.
const ATTEMPT: Buckets = doubling(0.001, 15);
/// Extension points and events: a tenth of a millisecond to 200 milliseconds.
const POINT: Buckets = doubling(0.0001, 12);
/// Single plugins: ten microseconds to 22 milliseconds, finely.
const PLUGIN: Buckets = Buckets::Exponential { start: 0.00001, factor: 1.5, count: 20 };
/// From the queue to a node: ten milliseconds to 88 minutes.
const SLI: Buckets = doubling(0.01, 20);
/// Finding whom to evict, and evicting them: a millisecond to 33 seconds.
const EVICTION: Buckets = doubling(0.001, 16);

const fn doubling(start: f64, count: usize) -> Buckets {
    Buckets::Exponential { start, factor: 2.0, count }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

/// An extension point, as metrics label it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    ScoreExtensionNormalize,
    Reserve,
    Unreserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

/// How a plugin or an extension point ended, as metrics label it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Success,
    Skip,
    Wait,
    Rejected(Code),
}

impl Status {
    /// Of something that may have failed.
    pub fn of<T, E>(outcome: &Result<T, E>) -> Self {
        if outcome.is_ok() { Self::Success } else { Self::Rejected(Code::Error) }
    }
}

/// A queue, as metrics label it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Active,
    Backoff,
    Unschedulable,
}

/// The figures of one profile.
#[derive(Debug, Default)]
struct OfProfile {
    name: String,
    attempts: BTreeMap<Attempt, Distribution>,
    points: BTreeMap<(Point, Status), Distribution>,
    evaluations: BTreeMap<(&'static str, Point), u64>,
    unschedulable: BTreeMap<&'static str, i64>,
}

#[derive(Debug)]
struct Inner {
    profiles: Vec<OfProfile>,
    plugins: BTreeMap<(&'static str, Point, Status), Distribution>,
    hints: BTreeMap<(&'static str, EventLabel, bool), Distribution>,
    events: BTreeMap<EventLabel, Distribution>,
    incoming: BTreeMap<(Place, EventLabel), u64>,
    sli: BTreeMap<u32, Distribution>,
    algorithm: Distribution,
    attempts_per_pod: Distribution,
    victims: Distribution,
    permit_waits: BTreeMap<Status, Distribution>,
    evictions: BTreeMap<bool, Distribution>,
    executions: BTreeMap<bool, Distribution>,
    evaluations: BTreeMap<bool, Distribution>,
    budget_violations: u64,
    preemption_attempts: u64,
    scheduled_after_flush: u64,
    pending: Pending,
    in_flight_events: usize,
    cache: CacheSize,
    bindings: i64,
}

/// How much is in the cluster model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSize {
    pub nodes: usize,
    pub pods: usize,
    pub assumed_pods: usize,
}

#[derive(Debug)]
pub struct Metrics(Mutex<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            profiles: Vec::new(),
            plugins: BTreeMap::new(),
            hints: BTreeMap::new(),
            events: BTreeMap::new(),
            incoming: BTreeMap::new(),
            sli: BTreeMap::new(),
            algorithm: Distribution::new(ATTEMPT),
            attempts_per_pod: Distribution::new(doubling(1.0, 5)),
            victims: Distribution::new(doubling(1.0, 7)),
            permit_waits: BTreeMap::new(),
            evictions: BTreeMap::new(),
            executions: BTreeMap::new(),
            evaluations: BTreeMap::new(),
            budget_violations: 0,
            preemption_attempts: 0,
            scheduled_after_flush: 0,
            pending: Pending::default(),
            in_flight_events: 0,
            cache: CacheSize::default(),
            bindings: 0,
        }))
    }
}

fn registry() -> &'static Mutex<Vec<Weak<Metrics>>> {
    static REGISTRY: OnceLock<Mutex<Vec<Weak<Metrics>>>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default)
}

/// Appends the figures of the scheduler that runs in this process, if one does.
pub fn write(out: &mut String) {
    let latest = registry().lock().iter().rev().find_map(Weak::upgrade);
    if let Some(metrics) = latest {
        out.push_str(&metrics.render());
    }
}

impl Inner {
    fn profile(&mut self, name: &str) -> &mut OfProfile {
        let position = self.profiles.iter().position(|p| p.name == name).unwrap_or_else(|| {
            self.profiles.push(OfProfile { name: name.to_owned(), ..Default::default() });
            self.profiles.len() - 1
        });
        &mut self.profiles[position]
    }
}

fn observe<K: Ord>(distributions: &mut BTreeMap<K, Distribution>, key: K, buckets: Buckets, value: f64) {
    distributions.entry(key).or_insert_with(|| Distribution::new(buckets)).observe(value);
}

impl Metrics {
    /// Makes [`write()`] show these metrics as long as somebody holds them.
    pub fn register(self: &Arc<Self>) {
        let mut all = registry().lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(self));
    }

    pub fn attempt(&self, profile: &str, result: Attempt, seconds: f64) {
        observe(&mut self.0.lock().profile(profile).attempts, result, ATTEMPT, seconds);
    }

    /// A cycle took so long to find a node, or none, and measured this.
    pub fn cycle(&self, profile: &str, seconds: f64, cycle: &Cycle) {
        let mut inner = self.0.lock();
        inner.algorithm.observe(seconds);
        for (plugin, point, status, seconds) in &cycle.plugins {
            observe(&mut inner.plugins, (*plugin, *point, *status), PLUGIN, *seconds);
        }
        let of_profile = inner.profile(profile);
        for (point, status, seconds) in &cycle.points {
            observe(&mut of_profile.points, (*point, *status), POINT, *seconds);
        }
        for (plugin, point, times) in &cycle.evaluations {
            *of_profile.evaluations.entry((*plugin, *point)).or_default() += times;
        }
    }

    /// An extension point outside of cycles is done.
    pub fn point(&self, profile: &str, point: Point, status: Status, seconds: f64) {
        observe(&mut self.0.lock().profile(profile).points, (point, status), POINT, seconds);
    }

    /// A plugin ran outside of cycles.
    pub fn plugin(&self, plugin: &'static str, point: Point, status: Status, seconds: f64) {
        observe(&mut self.0.lock().plugins, (plugin, point, status), PLUGIN, seconds);
    }

    /// A plugin said whether an event may help a pod.
    pub fn hint(&self, plugin: &'static str, event: EventLabel, queue: bool, seconds: f64) {
        observe(&mut self.0.lock().hints, (plugin, event, queue), PLUGIN, seconds);
    }

    /// An event was taken in.
    pub fn event(&self, event: EventLabel, seconds: f64) {
        observe(&mut self.0.lock().events, event, POINT, seconds);
    }

    /// A pod came into a queue because of an event.
    pub fn incoming(&self, place: Place, event: EventLabel) {
        *self.0.lock().incoming.entry((place, event)).or_default() += 1;
    }

    /// A pod waits for something that a plugin judges, or no longer does.
    pub fn unschedulable(&self, profile: &str, plugin: &'static str, step: i64) {
        *self.0.lock().profile(profile).unschedulable.entry(plugin).or_default() += step;
    }

    /// A pod was scheduled, after so many attempts.
    pub fn scheduled(&self, pod: &QueuedPod, now: Timestamp) {
        let mut inner = self.0.lock();
        inner.attempts_per_pod.observe(f64::from(pod.attempts));
        inner.scheduled_after_flush += u64::from(pod.was_flushed());
        if let Some(first) = pod.first_active {
            let waited = now.duration_since(first).as_secs_f64();
            observe(&mut inner.sli, pod.attempts.min(15), SLI, waited);
        }
    }

    pub fn preemption_attempt(&self) {
        self.0.lock().preemption_attempts += 1;
    }

    /// Pods are evicted for another.
    pub fn preemption(&self, victims: usize) {
        self.0.lock().victims.observe(victims as f64);
    }

    /// It took so long to find out whom to evict, or that there is nobody.
    pub fn evaluation(&self, found: bool, seconds: f64) {
        observe(&mut self.0.lock().evaluations, found, EVICTION, seconds);
    }

    pub fn budget_violations(&self, count: u64) {
        self.0.lock().budget_violations += count;
    }

    /// Evictions for a pod took so long.
    pub fn evictions(&self, succeeded: bool, seconds: f64) {
        let mut inner = self.0.lock();
        observe(&mut inner.evictions, succeeded, SLI, seconds);
        observe(&mut inner.executions, succeeded, EVICTION, seconds);
    }

    /// A pod waited for permission.
    pub fn permit_wait(&self, status: Status, seconds: f64) {
        observe(&mut self.0.lock().permit_waits, status, ATTEMPT, seconds);
    }

    /// A binding begins (+1) or ends (-1).
    pub fn binding(&self, step: i64) {
        self.0.lock().bindings += step;
    }

    /// How much there is of everything.
    pub fn sizes(&self, pending: Pending, in_flight_events: usize, cache: CacheSize) {
        let mut inner = self.0.lock();
        (inner.pending, inner.in_flight_events, inner.cache) = (pending, in_flight_events, cache);
    }
}
