//! The text that scrapers read.

use std::fmt::Write;

use super::{Attempt, Histogram, Inner, Metrics, Place, Point, Status};
use crate::framework::Code;
use crate::queue::Pending;

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

impl Point {
    fn label(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::ScoreExtensionNormalize => "ScoreExtensionNormalize",
            Self::Reserve => "Reserve",
            Self::Unreserve => "Unreserve",
            Self::Permit => "Permit",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }
}

impl Status {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Skip => "Skip",
            Self::Wait => "Wait",
            Self::Rejected(code) => Code::label(code),
        }
    }
}

impl Place {
    fn label(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff => "backoff",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// One metric family under construction.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Self { out, name }
    }

    fn value(&mut self, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.out, "{} {value}", self.name),
            _ => writeln!(self.out, "{}{{{labels}}} {value}", self.name),
        };
    }

    fn histogram(&mut self, labels: &str, histogram: &Histogram) {
        histogram.write(self.out, self.name, labels);
    }
}

impl Metrics {
    /// All of it, as text.
    pub fn render(&self) -> String {
        let inner = self.0.lock();
        let mut out = String::with_capacity(16 * 1024);
        attempts(&inner, &mut out);
        queues(&inner, &mut out);
        plugins(&inner, &mut out);
        preemption(&inner, &mut out);
        out
    }
}

fn attempts(inner: &Inner, out: &mut String) {
    let by_result = || {
        let label = |result: &Attempt, profile: &str| format!("profile=\"{profile}\",result=\"{}\"", result.label());
        inner.profiles.iter().flat_map(move |p| p.attempts.iter().map(move |(r, h)| (label(r, &p.name), h)))
    };
    let mut family = Family::new(
        out,
        "scheduler_schedule_attempts_total",
        "counter",
        "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
    );
    by_result().for_each(|(labels, histogram)| family.value(&labels, histogram.count()));
    let mut family = Family::new(
        out,
        "scheduler_scheduling_attempt_duration_seconds",
        "histogram",
        "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
    );
    by_result().for_each(|(labels, histogram)| family.histogram(&labels, histogram));
    Family::new(
        out,
        "scheduler_scheduling_algorithm_duration_seconds",
        "histogram",
        "[BETA] Scheduling algorithm latency in seconds",
    )
    .histogram("", &inner.algorithm);
    let mut family = Family::new(
        out,
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
    );
    for (attempts, histogram) in &inner.sli {
        let label = if *attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        family.histogram(&format!("attempts=\"{label}\""), histogram);
    }
    Family::new(
        out,
        "scheduler_pod_scheduling_attempts",
        "histogram",
        "[STABLE] Number of attempts to successfully schedule a pod.",
    )
    .histogram("", &inner.attempts_per_pod);
    Family::new(
        out,
        "scheduler_pod_scheduled_after_flush_total",
        "counter",
        "[ALPHA] Number of pods that were successfully scheduled after being flushed from unschedulableEntities due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
    )
    .value("", inner.scheduled_after_flush);
}

fn queues(inner: &Inner, out: &mut String) {
    let Pending { active, backoff, unschedulable, gated } = inner.pending;
    let places = [("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("gated", gated)];
    let mut family = Family::new(
        out,
        "scheduler_pending_pods",
        "gauge",
        "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
    );
    places.iter().for_each(|(queue, count)| family.value(&format!("queue=\"{queue}\""), count));
    let mut family = Family::new(
        out,
        "scheduler_queued_entities",
        "gauge",
        "[ALPHA] Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that the scheduler never attempted to schedule because they are gated.",
    );
    places.iter().for_each(|(queue, count)| family.value(&format!("queue=\"{queue}\",type=\"pod\""), count));
    for (name, kind, help) in [
        (
            "scheduler_queue_incoming_pods_total",
            "",
            "[STABLE] Number of pods added to scheduling queues by event and queue type.",
        ),
        (
            "scheduler_queue_incoming_entities_total",
            ",type=\"pod\"",
            "[ALPHA] Number of scheduling entities added to scheduling queues by event, queue type, and entity type. Entity types are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.",
        ),
    ] {
        let mut family = Family::new(out, name, "counter", help);
        for ((place, event), count) in &inner.incoming {
            family.value(&format!("event=\"{event}\",queue=\"{}\"{kind}", place.label()), count);
        }
    }
    Family::new(
        out,
        "scheduler_inflight_events",
        "gauge",
        "[ALPHA] Number of events currently tracked in the scheduling queue.",
    )
    .value("event=\"all\"", inner.in_flight_events);
    let mut family = Family::new(
        out,
        "scheduler_event_handling_duration_seconds",
        "histogram",
        "[ALPHA] Event handling latency in seconds.",
    );
    inner.events.iter().for_each(|(event, histogram)| family.histogram(&format!("event=\"{event}\""), histogram));
    let mut family = Family::new(
        out,
        "scheduler_unschedulable_pods",
        "gauge",
        "[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
    );
    for profile in &inner.profiles {
        for (plugin, count) in &profile.unschedulable {
            family.value(&format!("plugin=\"{plugin}\",profile=\"{}\"", profile.name), count);
        }
    }
    let mut family = Family::new(
        out,
        "scheduler_cache_size",
        "gauge",
        "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
    );
    let cache = inner.cache;
    for (kind, count) in [("nodes", cache.nodes), ("pods", cache.pods), ("assumed_pods", cache.assumed_pods)] {
        family.value(&format!("type=\"{kind}\""), count);
    }
    Family::new(
        out,
        "scheduler_goroutines",
        "gauge",
        "[BETA] Number of running goroutines split by the work they do such as binding.",
    )
    .value("operation=\"binding\"", inner.bindings);
}

fn plugins(inner: &Inner, out: &mut String) {
    let mut family = Family::new(
        out,
        "scheduler_framework_extension_point_duration_seconds",
        "histogram",
        "[STABLE] Latency for running all plugins of a specific extension point.",
    );
    for profile in &inner.profiles {
        for ((point, status), histogram) in &profile.points {
            let (point, status, name) = (point.label(), status.label(), &profile.name);
            family.histogram(&format!("extension_point=\"{point}\",profile=\"{name}\",status=\"{status}\""), histogram);
        }
    }
    let mut family = Family::new(
        out,
        "scheduler_plugin_execution_duration_seconds",
        "histogram",
        "[BETA] Duration for running a plugin at a specific extension point.",
    );
    for ((plugin, point, status), histogram) in &inner.plugins {
        let (point, status) = (point.label(), status.label());
        family.histogram(&format!("extension_point=\"{point}\",plugin=\"{plugin}\",status=\"{status}\""), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_plugin_evaluation_total",
        "counter",
        "[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).",
    );
    for profile in &inner.profiles {
        for ((plugin, point), count) in &profile.evaluations {
            let (point, name) = (point.label(), &profile.name);
            family.value(&format!("extension_point=\"{point}\",plugin=\"{plugin}\",profile=\"{name}\""), count);
        }
    }
    let mut family = Family::new(
        out,
        "scheduler_queueing_hint_execution_duration_seconds",
        "histogram",
        "[ALPHA] Duration for running a queueing hint function of a plugin.",
    );
    for ((plugin, event, queue), histogram) in &inner.hints {
        let hint = if *queue { "Queue" } else { "QueueSkip" };
        family.histogram(&format!("event=\"{event}\",hint=\"{hint}\",plugin=\"{plugin}\""), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_permit_wait_duration_seconds",
        "histogram",
        "[BETA] Duration of waiting on permit.",
    );
    for (status, histogram) in &inner.permit_waits {
        family.histogram(&format!("result=\"{}\"", status.label()), histogram);
    }
}

fn preemption(inner: &Inner, out: &mut String) {
    Family::new(
        out,
        "scheduler_preemption_attempts_total",
        "counter",
        "[STABLE] Total preemption attempts in the cluster till now",
    )
    .value("", inner.preemption_attempts);
    Family::new(
        out,
        "scheduler_preemption_victims",
        "histogram",
        "[STABLE] Number of selected preemption victims for preemption initiated by a single pod",
    )
    .histogram("", &inner.victims);
    let mut family = Family::new(
        out,
        "scheduler_preemption_evaluation_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for identifying the target preemption victims.",
    );
    for (found, histogram) in &inner.evaluations {
        let result = if *found { "Success" } else { "Unschedulable" };
        family.histogram(&format!("preemptor=\"pod\",result=\"{result}\""), histogram);
    }
    let result = |succeeded: bool| if succeeded { "success" } else { "error" };
    let mut family = Family::new(
        out,
        "scheduler_preemption_execution_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for preempting the target preemption victims. With async preemption enabled, preemption execution does not block the scheduling of other pods.",
    );
    for (succeeded, histogram) in &inner.executions {
        family.histogram(&format!("preemptor=\"pod\",result=\"{}\"", result(*succeeded)), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_preemption_pdb_violations_total",
        "counter",
        "[ALPHA] Total number of pod disruption budget violations caused by preemption.",
    );
    if inner.budget_violations > 0 {
        family.value("preemptor=\"pod\"", inner.budget_violations);
    }
    let mut family = Family::new(
        out,
        "scheduler_preemption_goroutines_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for running goroutines for the preemption.",
    );
    for (succeeded, histogram) in &inner.evictions {
        family.histogram(&format!("result=\"{}\"", result(*succeeded)), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_preemption_goroutines_execution_total",
        "counter",
        "[ALPHA] Number of preemption goroutines executed.",
    );
    for (succeeded, histogram) in &inner.evictions {
        family.value(&format!("result=\"{}\"", result(*succeeded)), histogram.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_result_and_bucketed() {
        let metrics = Metrics::default();
        metrics.attempt("default-scheduler", Attempt::Scheduled, 0.003);
        metrics.sizes(Pending { active: 3, ..Pending::default() }, 0, Default::default());
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
