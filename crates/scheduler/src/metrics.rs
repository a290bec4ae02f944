//! What is measured, by upstream's names, in the Prometheus text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::queue::{Pending, QueuedPod};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the result it is named for")]
pub enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// A histogram with exponential buckets.
#[derive(Debug, Clone)]
struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(start: f64, factor: f64, buckets: usize) -> Self {
        let bounds: Vec<_> = (0..buckets).map(|i| start * factor.powi(i as i32)).collect();
        Self { counts: vec![0; bounds.len()], bounds, sum: 0.0, count: 0 }
    }

    fn observe(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        if let Some(bucket) = self.bounds.iter().position(|b| value <= *b) {
            self.counts[bucket] += 1;
        }
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let separator = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count;
            let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"+Inf\"}} {}", self.count);
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braces} {}", self.count);
    }
}

#[derive(Debug)]
struct Inner {
    attempts: BTreeMap<(String, Attempt), Histogram>,
    sli: BTreeMap<String, Histogram>,
    algorithm: Histogram,
    attempts_per_pod: Histogram,
    victims: Histogram,
    preemption_attempts: u64,
    pending: Pending,
}

/// The scheduler's metrics.
#[derive(Debug)]
pub struct Metrics(Mutex<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            attempts: BTreeMap::new(),
            sli: BTreeMap::new(),
            algorithm: Histogram::new(0.001, 2.0, 15),
            attempts_per_pod: Histogram::new(1.0, 2.0, 5),
            victims: Histogram::new(1.0, 2.0, 7),
            preemption_attempts: 0,
            pending: Pending::default(),
        }))
    }
}

impl Metrics {
    /// An attempt ended.
    pub fn attempt(&self, profile: &str, result: Attempt, seconds: f64) {
        let mut inner = self.0.lock();
        match inner.attempts.iter_mut().find(|((p, r), _)| p == profile && *r == result) {
            Some((_, histogram)) => histogram.observe(seconds),
            None => {
                let mut histogram = Histogram::new(0.001, 2.0, 15);
                histogram.observe(seconds);
                inner.attempts.insert((profile.to_owned(), result), histogram);
            }
        }
    }

    /// A cycle took so long to find a node, or none.
    pub fn algorithm(&self, seconds: f64) {
        self.0.lock().algorithm.observe(seconds);
    }

    /// A pod was scheduled, after so many attempts.
    pub fn scheduled(&self, pod: &QueuedPod, now: Timestamp) {
        let mut inner = self.0.lock();
        inner.attempts_per_pod.observe(f64::from(pod.attempts));
        if let Some(first) = pod.first_active {
            let label = if pod.attempts >= 15 { "15+".to_owned() } else { pod.attempts.to_string() };
            let histogram = inner.sli.entry(label).or_insert_with(|| Histogram::new(0.01, 2.0, 20));
            histogram.observe(now.duration_since(first).as_secs_f64());
        }
    }

    /// Pods are evicted for another.
    pub fn preemption(&self, victims: usize) {
        let mut inner = self.0.lock();
        inner.preemption_attempts += 1;
        inner.victims.observe(victims as f64);
    }

    /// How many pods wait where.
    pub fn pending(&self, pending: Pending) {
        self.0.lock().pending = pending;
    }

    /// All of it, as text.
    pub fn render(&self) -> String {
        let inner = self.0.lock();
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str| {
            let _ = writeln!(out, "# TYPE {name} {kind}");
        };
        head(&mut out, "scheduler_schedule_attempts_total", "counter");
        for ((profile, result), histogram) in &inner.attempts {
            let label = result.label();
            let _ = writeln!(
                out,
                "scheduler_schedule_attempts_total{{profile=\"{profile}\",result=\"{label}\"}} {}",
                histogram.count
            );
        }
        head(&mut out, "scheduler_scheduling_attempt_duration_seconds", "histogram");
        for ((profile, result), histogram) in &inner.attempts {
            let labels = format!("profile=\"{profile}\",result=\"{}\"", result.label());
            histogram.write(&mut out, "scheduler_scheduling_attempt_duration_seconds", &labels);
        }
        head(&mut out, "scheduler_scheduling_algorithm_duration_seconds", "histogram");
        inner.algorithm.write(&mut out, "scheduler_scheduling_algorithm_duration_seconds", "");
        head(&mut out, "scheduler_pod_scheduling_sli_duration_seconds", "histogram");
        for (attempts, histogram) in &inner.sli {
            histogram.write(
                &mut out,
                "scheduler_pod_scheduling_sli_duration_seconds",
                &format!("attempts=\"{attempts}\""),
            );
        }
        head(&mut out, "scheduler_pod_scheduling_attempts", "histogram");
        inner.attempts_per_pod.write(&mut out, "scheduler_pod_scheduling_attempts", "");
        head(&mut out, "scheduler_preemption_attempts_total", "counter");
        let _ = writeln!(out, "scheduler_preemption_attempts_total {}", inner.preemption_attempts);
        head(&mut out, "scheduler_preemption_victims", "histogram");
        inner.victims.write(&mut out, "scheduler_preemption_victims", "");
        head(&mut out, "scheduler_pending_pods", "gauge");
        let Pending { active, backoff, unschedulable, gated } = inner.pending;
        for (queue, count) in
            [("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("gated", gated)]
        {
            let _ = writeln!(out, "scheduler_pending_pods{{queue=\"{queue}\"}} {count}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_result_and_bucketed() {
        let metrics = Metrics::default();
        metrics.attempt("default-scheduler", Attempt::Scheduled, 0.003);
        metrics.pending(Pending { active: 3, ..Pending::default() });
        let text = metrics.render();
        for line in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.002\"} 0",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.004\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nnot in\n{text}");
        }
    }
}
