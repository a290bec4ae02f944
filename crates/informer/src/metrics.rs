//! Figures of queues and elections, under the names that upstream's dashboards use, and of what informers cannot read or get past.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use figures::{Buckets, Counter, Distribution, Family, Gauge, Samples};
use parking_lot::Mutex;

use crate::Clock;

/// From 10 ns to 10 s.
const BUCKETS: Buckets = Buckets::Exponential { start: 1e-8, factor: 10.0, count: 10 };

/// Whether this process holds a lease that it asked for.
pub(crate) static LEADING: Gauge = Gauge::new(
    "leader_election_master_status",
    "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
    &["name"],
);

/// Renewals that had to look first.
pub(crate) static SLOW_RENEWALS: Counter = Counter::new(
    "leader_election_slowpath_total",
    "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
    &["name"],
);

/// Objects that informers cannot read.
pub(crate) static SET_ASIDE: Gauge = Gauge::new(
    "trireme_informer_undecodable_objects",
    "[ALPHA] Objects that cannot be decoded now and are left out, by resource. The last version that could be decoded is used meanwhile.",
    &["resource"],
);

/// How often an object was met that cannot be read.
pub(crate) static SET_ASIDE_TOTAL: Counter = Counter::new(
    "trireme_informer_undecodable_objects_total",
    "[ALPHA] Versions of objects that could not be decoded, by resource.",
    &["resource"],
);

/// Watches that did not get past a revision.
pub(crate) static STUCK: Counter = Counter::new(
    "trireme_informer_relists_total",
    "[ALPHA] How often everything was read again because a watch could not get past a revision, by resource.",
    &["resource"],
);

/// Mistakes in our own code that one key or one object brought to light.
pub(crate) static PANICS: Counter = Counter::new(
    "trireme_panics_total",
    "[ALPHA] Panics that were caught, by what panicked. Only the key or object in hand was affected; it is tried again.",
    &["in"],
);

const ALWAYS: &[&dyn Family] = &[&LEADING, &SLOW_RENEWALS, &SET_ASIDE, &SET_ASIDE_TOTAL, &STUCK, &PANICS];

/// The figures of one work queue.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    pub(crate) name: String,
    clock: Arc<dyn Clock>,
    pub(crate) depth: AtomicU64,
    pub(crate) adds: AtomicU64,
    pub(crate) retries: AtomicU64,
    waited: Mutex<Distribution>,
    worked: Mutex<Distribution>,
    /// When the work that is being done began.
    running: Mutex<Vec<Duration>>,
}

impl QueueMetrics {
    /// Figures that [`write()`] shows as long as somebody holds them.
    pub(crate) fn register(name: &str, clock: Arc<dyn Clock>) -> Arc<Self> {
        let metrics = Arc::new(Self {
            name: name.to_owned(),
            clock,
            depth: AtomicU64::new(0),
            adds: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            waited: Mutex::new(Distribution::new(BUCKETS)),
            worked: Mutex::new(Distribution::new(BUCKETS)),
            running: Mutex::default(),
        });
        let mut all = registry().lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&metrics));
        metrics
    }

    /// A worker takes an item that waited for so long.
    pub(crate) fn begun(&self, at: Duration, waited: Duration) {
        self.waited.lock().observe(waited.as_secs_f64());
        self.running.lock().push(at);
    }

    /// A worker is done with what it began then.
    pub(crate) fn ended(&self, begun: Duration) {
        self.worked.lock().observe(self.clock.monotonic().saturating_sub(begun).as_secs_f64());
        let mut running = self.running.lock();
        if let Some(at) = running.iter().position(|known| *known == begun) {
            running.swap_remove(at);
        }
    }
}

fn registry() -> &'static Mutex<Vec<Weak<QueueMetrics>>> {
    static REGISTRY: OnceLock<Mutex<Vec<Weak<QueueMetrics>>>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default)
}

/// All queues of one name: scrapers refuse a series that comes twice.
struct Total {
    depth: u64,
    adds: u64,
    retries: u64,
    waited: Distribution,
    worked: Distribution,
    unfinished: f64,
    longest: f64,
}

impl Total {
    fn new() -> Self {
        let none = Distribution::new(BUCKETS);
        Self { depth: 0, adds: 0, retries: 0, waited: none.clone(), worked: none, unfinished: 0.0, longest: 0.0 }
    }

    fn add(&mut self, queue: &QueueMetrics) {
        self.depth += queue.depth.load(Relaxed);
        self.adds += queue.adds.load(Relaxed);
        self.retries += queue.retries.load(Relaxed);
        self.waited.merge(&queue.waited.lock());
        self.worked.merge(&queue.worked.lock());
        let now = queue.clock.monotonic();
        for begun in queue.running.lock().iter() {
            let since = now.saturating_sub(*begun).as_secs_f64();
            self.unfinished += since;
            self.longest = self.longest.max(since);
        }
    }
}

/// What a queue's total adds to a family.
type Read = for<'a, 'b> fn(&'a mut Samples<'b>, &[(&str, &str)], &Total) -> &'a mut Samples<'b>;

const FAMILIES: [(&str, &str, &str, Read); 7] = [
    (
        "workqueue_adds_total",
        "counter",
        "[BETA] Total number of adds handled by workqueue",
        |samples, labels, total| samples.add(labels, total.adds as f64),
    ),
    ("workqueue_depth", "gauge", "[BETA] Current depth of workqueue", |samples, labels, total| {
        samples.add(labels, total.depth as f64)
    }),
    (
        "workqueue_longest_running_processor_seconds",
        "gauge",
        "[BETA] How many seconds has the longest running processor for workqueue been running.",
        |samples, labels, total| samples.add(labels, total.longest),
    ),
    (
        "workqueue_queue_duration_seconds",
        "histogram",
        "[BETA] How long in seconds an item stays in workqueue before being requested.",
        |samples, labels, total| samples.distribution(labels, &total.waited),
    ),
    (
        "workqueue_retries_total",
        "counter",
        "[BETA] Total number of retries handled by workqueue",
        |samples, labels, total| samples.add(labels, total.retries as f64),
    ),
    (
        "workqueue_unfinished_work_seconds",
        "gauge",
        "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
        |samples, labels, total| samples.add(labels, total.unfinished),
    ),
    (
        "workqueue_work_duration_seconds",
        "histogram",
        "[BETA] How long in seconds processing an item from workqueue takes.",
        |samples, labels, total| samples.distribution(labels, &total.worked),
    ),
];

/// Counts a panic that somebody caught, and says so with a log line that names the key.
pub fn panicked(part: &str, key: &dyn std::fmt::Display) {
    PANICS.increment(&[part]);
    tracing::error!(part, %key, "panicked; this key alone is affected");
}

/// The same for a loop that is begun again.
pub(crate) fn panicked_loop(part: &str, wait: Duration) {
    PANICS.increment(&[part]);
    tracing::error!(part, ?wait, "panicked; it begins again");
}

/// Appends the figures of every election, informer and queue of this process.
pub fn write(text: &mut String) {
    figures::write(ALWAYS, text);
    let queues: Vec<Arc<QueueMetrics>> = registry().lock().iter().filter_map(Weak::upgrade).collect();
    let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
    for queue in &queues {
        totals.entry(&queue.name).or_insert_with(Total::new).add(queue);
    }
    if totals.is_empty() {
        return;
    }
    for (name, kind, help, read) in FAMILIES {
        let mut samples = figures::samples(text, name, kind, help);
        for (queue, total) in &totals {
            read(&mut samples, &[("name", queue)], total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Fake;

    #[test]
    fn figures_of_queues_of_one_name_are_added_up_as_long_as_the_queues_live() {
        let clock = Fake::at(jiff::Timestamp::UNIX_EPOCH);
        let one = QueueMetrics::register("metrics-test", clock.clone());
        let two = QueueMetrics::register("metrics-test", clock.clone());
        one.adds.fetch_add(3, Relaxed);
        two.adds.fetch_add(1, Relaxed);
        one.begun(Duration::ZERO, Duration::ZERO);
        two.begun(Duration::ZERO, Duration::ZERO);
        clock.advance(Duration::from_millis(2));
        two.ended(Duration::ZERO);
        clock.advance(Duration::from_secs(1));
        let mut text = String::new();
        write(&mut text);
        for line in [
            "workqueue_adds_total{name=\"metrics-test\"} 4\n",
            "workqueue_work_duration_seconds_bucket{name=\"metrics-test\",le=\"0.001\"} 0\n",
            "workqueue_work_duration_seconds_bucket{name=\"metrics-test\",le=\"0.01\"} 1\n",
            "workqueue_queue_duration_seconds_count{name=\"metrics-test\"} 2\n",
            "workqueue_longest_running_processor_seconds{name=\"metrics-test\"} 1.002\n",
            "workqueue_unfinished_work_seconds{name=\"metrics-test\"} 1.002\n",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
        }
        drop((one, two));
        text.clear();
        write(&mut text);
        assert!(!text.contains("metrics-test"));
    }
}
