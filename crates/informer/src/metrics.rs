//! Figures of the queues and reconcilers, under the names that upstream's dashboards use, in Prometheus' text form.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of the duration buckets in seconds: powers of ten from 10 ns to 10 s, as upstream's.
const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// Durations, counted into buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn write(&self, out: &mut String, metric: &str, queue: &str) {
        let mut sum = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            sum += bucket.load(Relaxed);
            let _ = writeln!(out, "{metric}_bucket{{name=\"{queue}\",le=\"{bound:e}\"}} {sum}");
        }
        let count = self.count.load(Relaxed);
        let seconds = Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{metric}_bucket{{name=\"{queue}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{metric}_sum{{name=\"{queue}\"}} {seconds}");
        let _ = writeln!(out, "{metric}_count{{name=\"{queue}\"}} {count}");
    }
}

/// The figures of one work queue.
#[derive(Debug, Default)]
pub(crate) struct QueueMetrics {
    pub(crate) name: String,
    pub(crate) depth: AtomicU64,
    pub(crate) adds: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
}

impl QueueMetrics {
    /// Figures that [`write()`] shows as long as somebody holds them.
    pub(crate) fn register(name: &str) -> Arc<Self> {
        let metrics = Arc::new(Self { name: name.to_owned(), ..Self::default() });
        let mut all = registry().lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&metrics));
        metrics
    }
}

fn registry() -> &'static Mutex<Vec<Weak<QueueMetrics>>> {
    static REGISTRY: OnceLock<Mutex<Vec<Weak<QueueMetrics>>>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default)
}

/// Appends the figures of every queue of this process.
pub fn write(out: &mut String) {
    let queues: Vec<Arc<QueueMetrics>> = registry().lock().iter().filter_map(Weak::upgrade).collect();
    let mut figures = |metric: &str, kind: &str, help: &str, line: &dyn Fn(&mut String, &QueueMetrics)| {
        let _ = writeln!(out, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
        for queue in &queues {
            line(out, queue);
        }
    };
    let value = |metric: &'static str, read: fn(&QueueMetrics) -> &AtomicU64| {
        move |out: &mut String, queue: &QueueMetrics| {
            let _ = writeln!(out, "{metric}{{name=\"{}\"}} {}", queue.name, read(queue).load(Relaxed));
        }
    };
    let times = |metric: &'static str, read: fn(&QueueMetrics) -> &Histogram| {
        move |out: &mut String, queue: &QueueMetrics| read(queue).write(out, metric, &queue.name)
    };
    figures("workqueue_depth", "gauge", "Keys waiting for a worker", &value("workqueue_depth", |queue| &queue.depth));
    figures("workqueue_adds_total", "counter", "Keys added", &value("workqueue_adds_total", |queue| &queue.adds));
    figures(
        "workqueue_retries_total",
        "counter",
        "Keys added after a failure",
        &value("workqueue_retries_total", |queue| &queue.retries),
    );
    figures(
        "workqueue_queue_duration_seconds",
        "histogram",
        "How long keys waited for a worker",
        &times("workqueue_queue_duration_seconds", |queue| &queue.waited),
    );
    figures(
        "workqueue_work_duration_seconds",
        "histogram",
        "How long workers took",
        &times("workqueue_work_duration_seconds", |queue| &queue.worked),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_long_as_their_queue_lives() {
        let metrics = QueueMetrics::register("metrics-test");
        metrics.adds.fetch_add(3, Relaxed);
        metrics.worked.observe(Duration::from_millis(2));
        let mut text = String::new();
        write(&mut text);
        assert!(text.contains("workqueue_adds_total{name=\"metrics-test\"} 3"));
        assert!(text.contains("workqueue_work_duration_seconds_bucket{name=\"metrics-test\",le=\"1e-2\"} 1"));
        drop(metrics);
        text.clear();
        write(&mut text);
        assert!(!text.contains("metrics-test"));
    }
}
