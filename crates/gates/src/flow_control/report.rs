//! What flow control tells of itself: figures, and dumps under `/debug/api_priority_and_fairness`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use figures::{Buckets, Distribution, samples};
use parking_lot::Mutex;

use super::FlowControl;
use super::seats::Refusal;

/// Waiting times, in seconds.
const WAITS: Buckets = Buckets::At(&[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0]);

/// What became of the requests of a schema.
pub struct Stats {
    schema: String,
    level: String,
    rejected: [AtomicU64; 3],
    executed: Mutex<Distribution>,
    refused: Mutex<Distribution>,
}

impl Stats {
    /// Of a schema and its level.
    pub fn new(schema: &str, level: &str) -> Self {
        let waits = || Mutex::new(Distribution::new(WAITS));
        Self {
            schema: schema.to_owned(),
            level: level.to_owned(),
            rejected: Default::default(),
            executed: waits(),
            refused: waits(),
        }
    }

    /// A request got its seat after this time.
    pub fn dispatched(&self, waited: Duration) {
        self.executed.lock().observe(waited.as_secs_f64());
    }

    /// A request was sent away after this time.
    pub fn rejected(&self, why: Refusal, waited: Duration) {
        self.rejected[why as usize].fetch_add(1, Ordering::Relaxed);
        self.refused.lock().observe(waited.as_secs_f64());
    }

    fn labels(&self) -> [(&'static str, &str); 2] {
        [("flow_schema", &self.schema), ("priority_level", &self.level)]
    }
}

/// The columns of `dump_priority_levels`.
const LEVELS: &[&str] = &[
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];

/// The columns of `dump_queues`.
const QUEUES: &[&str] = &[
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];

/// The columns of `dump_requests`.
const REQUESTS: &[&str] = &["PriorityLevelName", "QueueIndex", "RequestIndexInQueue", "InitialSeats"];

impl FlowControl {
    /// The figures, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        let classes = self.classes();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let help = "[BETA] Number of requests executed by API Priority and Fairness subsystem";
        let mut family = samples(text, "apiserver_flowcontrol_dispatched_requests_total", "counter", help);
        for class in classes.iter() {
            family.add(&class.stats.labels(), class.stats.executed.lock().count() as f64);
        }
        let help = "[BETA] Number of requests rejected by API Priority and Fairness subsystem";
        let mut family = samples(text, "apiserver_flowcontrol_rejected_requests_total", "counter", help);
        for class in classes.iter() {
            for why in [Refusal::ConcurrencyLimit, Refusal::QueueFull, Refusal::TimeOut] {
                let count = read(&class.stats.rejected[why as usize]);
                if count > 0 {
                    let [schema, level] = class.stats.labels();
                    family.add(&[schema, level, ("reason", why.name())], count as f64);
                }
            }
        }
        let help = "[BETA] Length of time a request spent waiting in its queue";
        let mut family = samples(text, "apiserver_flowcontrol_request_wait_duration_seconds", "histogram", help);
        for class in classes.iter() {
            for (execute, waits) in [("true", &class.stats.executed), ("false", &class.stats.refused)] {
                let waits = waits.lock().clone();
                if waits.count() > 0 {
                    let [schema, level] = class.stats.labels();
                    family.distribution(&[("execute", execute), schema, level], &waits);
                }
            }
        }
        let seats = self.seats.lock();
        let mut gauge = |name: &str, help: &str, of: &dyn Fn(&super::seats::Level<super::Ticket>) -> u32| {
            let mut family = samples(text, name, "gauge", &format!("[BETA] {help}"));
            for level in seats.levels() {
                family.add(&[("priority_level", &*level.name)], f64::from(of(level)));
            }
        };
        gauge(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
            &|level| level.waiting,
        );
        gauge(
            "apiserver_flowcontrol_current_executing_requests",
            "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
            &|level| level.executing,
        );
        gauge(
            "apiserver_flowcontrol_current_executing_seats",
            "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
            &|level| level.used,
        );
        gauge(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Nominal number of execution seats configured for each priority level",
            &|level| level.limits.nominal,
        );
        gauge(
            "apiserver_flowcontrol_lower_limit_seats",
            "Configured lower bound on number of execution seats available to each priority level",
            &|level| level.limits.min,
        );
        gauge(
            "apiserver_flowcontrol_upper_limit_seats",
            "Configured upper bound on number of execution seats available to each priority level",
            &|level| level.limits.max,
        );
        gauge(
            "apiserver_flowcontrol_current_limit_seats",
            "current derived number of execution seats available to each priority level",
            &|level| seats.limit(&level.name),
        );
    }

    /// One of the dumps; nothing for a name that is none.
    pub fn dump(&self, name: &str) -> Option<String> {
        let classes = self.classes();
        let seats = self.seats.lock();
        let mut levels: Vec<_> = seats.levels().collect();
        levels.sort_by(|one, other| one.name.cmp(&other.name));
        let mut rows: Vec<Vec<String>> = Vec::new();
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<String>>();
        match name {
            "dump_priority_levels" => {
                rows.push(row(LEVELS));
                for level in &levels {
                    let of_level = || classes.iter().filter(|class| *class.schema.level == *level.name);
                    let sum = |read: &dyn Fn(&Stats) -> u64| of_level().map(|class| read(&class.stats)).sum::<u64>();
                    let refused = |stats: &Stats, why: Refusal| stats.rejected[why as usize].load(Ordering::Relaxed);
                    let active = level.queues.iter().filter(|queue| !queue.waiting.is_empty() || queue.executing > 0);
                    let quiescing = of_level().next().is_none() && level.limits.nominal == 0 && !level.limits.exempt;
                    rows.push(vec![
                        level.name.to_string(),
                        active.count().to_string(),
                        (level.used == 0 && level.waiting == 0).to_string(),
                        quiescing.to_string(),
                        level.waiting.to_string(),
                        level.executing.to_string(),
                        sum(&|stats| stats.executed.lock().count()).to_string(),
                        sum(&|stats| refused(stats, Refusal::ConcurrencyLimit) + refused(stats, Refusal::QueueFull))
                            .to_string(),
                        sum(&|stats| refused(stats, Refusal::TimeOut)).to_string(),
                        "0".to_owned(),
                    ]);
                }
            }
            "dump_queues" => {
                rows.push(row(QUEUES));
                for level in levels.iter().filter(|level| level.limits.queuing.is_some()) {
                    for (index, queue) in level.queues.iter().enumerate() {
                        let sum: u32 = queue.waiting.iter().map(|request| request.width).sum();
                        rows.push(vec![
                            level.name.to_string(),
                            index.to_string(),
                            queue.waiting.len().to_string(),
                            queue.executing.to_string(),
                            queue.used.to_string(),
                            format!("{:.8}ss", queue.start),
                            sum.to_string(),
                            sum.to_string(),
                            format!("{:.8}ss", f64::from(sum) * 0.003),
                        ]);
                    }
                }
            }
            "dump_requests" => {
                rows.push(row(REQUESTS));
                for level in &levels {
                    for (index, queue) in level.queues.iter().enumerate() {
                        for (place, request) in queue.waiting.iter().enumerate() {
                            rows.push(vec![
                                level.name.to_string(),
                                index.to_string(),
                                place.to_string(),
                                request.width.to_string(),
                            ]);
                        }
                    }
                }
            }
            _ => return None,
        }
        Some(table(&rows))
    }

    /// The names of the dumps.
    pub fn dumps() -> BTreeSet<&'static str> {
        BTreeSet::from(["dump_priority_levels", "dump_queues", "dump_requests"])
    }
}

/// Rows with a comma after each cell but the last, and columns below each other.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0).max(6) + 2).collect();
    let mut text = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == columns {
                text.push_str(cell);
            } else {
                let _ = write!(text, "{:<width$}", format!("{cell},"), width = widths[at]);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_times_fall_into_buckets() {
        let stats = Stats::new("schema", "level");
        stats.dispatched(Duration::ZERO);
        stats.dispatched(Duration::from_millis(30));
        stats.rejected(Refusal::TimeOut, Duration::from_secs(60));
        let shown = |waits: &Mutex<Distribution>| {
            let mut text = String::new();
            samples(&mut text, "w", "histogram", "").distribution(&[("l", "x")], &waits.lock());
            text
        };
        let executed = shown(&stats.executed);
        for line in ["w_bucket{l=\"x\",le=\"0\"} 1\n", "w_bucket{l=\"x\",le=\"0.05\"} 2\n", "w_count{l=\"x\"} 2\n"] {
            assert!(executed.contains(line), "{executed}");
        }
        let refused = shown(&stats.refused);
        assert!(refused.contains("le=\"30\"} 0\n") && refused.contains("le=\"+Inf\"} 1\n"), "{refused}");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["Name".to_owned(), "Count".to_owned()], vec!["workload-low".to_owned(), "7".to_owned()]];
        assert_eq!(table(&rows), "Name,         Count\nworkload-low, 7\n");
    }
}
