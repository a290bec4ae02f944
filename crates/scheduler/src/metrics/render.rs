//! The text that scrapers read.

use figures::samples;

use super::{Attempt, Inner, Metrics, Place, Point, Status};
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

impl Metrics {
    /// All of it, as text.
    pub fn render(&self) -> String {
        let inner = self.0.lock();
        let mut out = String::with_capacity(16 * 1024);
        attempts(&inner, &mut out);
        queues(&inner, &mut out);
        state(&inner, &mut out);
        plugins(&inner, &mut out);
        preemption(&inner, &mut out);
        out
    }
}

fn attempts(inner: &Inner, out: &mut String) {
    let by_result = || {
        let labels = |result: &Attempt, profile| [("profile", profile), ("result", result.label())];
        inner
            .profiles
            .iter()
            .flat_map(move |p| p.attempts.iter().map(move |(r, times)| (labels(r, p.name.as_str()), times)))
    };
    let mut family = samples(
        out,
        "scheduler_schedule_attempts_total",
        "counter",
        "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
    );
    for (labels, times) in by_result() {
        family.add(&labels, times.count() as f64);
    }
    let mut family = samples(
        out,
        "scheduler_scheduling_attempt_duration_seconds",
        "histogram",
        "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
    );
    for (labels, times) in by_result() {
        family.distribution(&labels, times);
    }
    samples(
        out,
        "scheduler_scheduling_algorithm_duration_seconds",
        "histogram",
        "[BETA] Scheduling algorithm latency in seconds",
    )
    .distribution(&[], &inner.algorithm);
    let mut family = samples(
        out,
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
    );
    for (attempts, times) in &inner.sli {
        let label = if *attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        family.distribution(&[("attempts", &label)], times);
    }
    samples(
        out,
        "scheduler_pod_scheduling_attempts",
        "histogram",
        "[STABLE] Number of attempts to successfully schedule a pod.",
    )
    .distribution(&[], &inner.attempts_per_pod);
    samples(
        out,
        "scheduler_pod_scheduled_after_flush_total",
        "counter",
        "[ALPHA] Number of pods that were successfully scheduled after being flushed from unschedulableEntities due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
    )
    .add(&[], inner.scheduled_after_flush as f64);
}

fn queues(inner: &Inner, out: &mut String) {
    let Pending { active, backoff, unschedulable, gated } = inner.pending;
    let places = [("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("gated", gated)];
    let mut family = samples(
        out,
        "scheduler_pending_pods",
        "gauge",
        "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
    );
    for (queue, count) in places {
        family.add(&[("queue", queue)], count as f64);
    }
    let mut family = samples(
        out,
        "scheduler_queued_entities",
        "gauge",
        "[ALPHA] Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that the scheduler never attempted to schedule because they are gated.",
    );
    for (queue, count) in places {
        family.add(&[("queue", queue), ("type", "pod")], count as f64);
    }
    for (name, kind, help) in [
        (
            "scheduler_queue_incoming_pods_total",
            None,
            "[STABLE] Number of pods added to scheduling queues by event and queue type.",
        ),
        (
            "scheduler_queue_incoming_entities_total",
            Some(("type", "pod")),
            "[ALPHA] Number of scheduling entities added to scheduling queues by event, queue type, and entity type. Entity types are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.",
        ),
    ] {
        let mut family = samples(out, name, "counter", help);
        for ((place, event), count) in &inner.incoming {
            let event = event.to_string();
            let mut labels = vec![("event", event.as_str()), ("queue", place.label())];
            labels.extend(kind);
            family.add(&labels, *count as f64);
        }
    }
}

/// What is under way, and what is held in memory.
fn state(inner: &Inner, out: &mut String) {
    samples(
        out,
        "scheduler_inflight_events",
        "gauge",
        "[ALPHA] Number of events currently tracked in the scheduling queue.",
    )
    .add(&[("event", "all")], inner.in_flight_events as f64);
    let mut family = samples(
        out,
        "scheduler_event_handling_duration_seconds",
        "histogram",
        "[ALPHA] Event handling latency in seconds.",
    );
    for (event, times) in &inner.events {
        family.distribution(&[("event", &event.to_string())], times);
    }
    let mut family = samples(
        out,
        "scheduler_unschedulable_pods",
        "gauge",
        "[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
    );
    for profile in &inner.profiles {
        for (plugin, count) in &profile.unschedulable {
            family.add(&[("plugin", plugin), ("profile", &profile.name)], *count as f64);
        }
    }
    let mut family = samples(
        out,
        "scheduler_cache_size",
        "gauge",
        "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
    );
    let cache = inner.cache;
    for (kind, count) in [("nodes", cache.nodes), ("pods", cache.pods), ("assumed_pods", cache.assumed_pods)] {
        family.add(&[("type", kind)], count as f64);
    }
    samples(
        out,
        "scheduler_goroutines",
        "gauge",
        "[BETA] Number of running goroutines split by the work they do such as binding.",
    )
    .add(&[("operation", "binding")], inner.bindings as f64);
}

fn plugins(inner: &Inner, out: &mut String) {
    let mut family = samples(
        out,
        "scheduler_framework_extension_point_duration_seconds",
        "histogram",
        "[STABLE] Latency for running all plugins of a specific extension point.",
    );
    for profile in &inner.profiles {
        for ((point, status), times) in &profile.points {
            let (point, status, name) = (point.label(), status.label(), &profile.name);
            family.distribution(&[("extension_point", point), ("profile", name), ("status", status)], times);
        }
    }
    let mut family = samples(
        out,
        "scheduler_plugin_execution_duration_seconds",
        "histogram",
        "[BETA] Duration for running a plugin at a specific extension point.",
    );
    for ((plugin, point, status), times) in &inner.plugins {
        let (point, status) = (point.label(), status.label());
        family.distribution(&[("extension_point", point), ("plugin", plugin), ("status", status)], times);
    }
    let mut family = samples(
        out,
        "scheduler_plugin_evaluation_total",
        "counter",
        "[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).",
    );
    for profile in &inner.profiles {
        for ((plugin, point), count) in &profile.evaluations {
            let (point, name) = (point.label(), &profile.name);
            family.add(&[("extension_point", point), ("plugin", plugin), ("profile", name)], *count as f64);
        }
    }
    let mut family = samples(
        out,
        "scheduler_queueing_hint_execution_duration_seconds",
        "histogram",
        "[ALPHA] Duration for running a queueing hint function of a plugin.",
    );
    for ((plugin, event, queue), times) in &inner.hints {
        let hint = if *queue { "Queue" } else { "QueueSkip" };
        family.distribution(&[("event", &event.to_string()), ("hint", hint), ("plugin", plugin)], times);
    }
    let mut family =
        samples(out, "scheduler_permit_wait_duration_seconds", "histogram", "[BETA] Duration of waiting on permit.");
    for (status, times) in &inner.permit_waits {
        family.distribution(&[("result", status.label())], times);
    }
}

fn preemption(inner: &Inner, out: &mut String) {
    samples(
        out,
        "scheduler_preemption_attempts_total",
        "counter",
        "[STABLE] Total preemption attempts in the cluster till now",
    )
    .add(&[], inner.preemption_attempts as f64);
    samples(
        out,
        "scheduler_preemption_victims",
        "histogram",
        "[STABLE] Number of selected preemption victims for preemption initiated by a single pod",
    )
    .distribution(&[], &inner.victims);
    let mut family = samples(
        out,
        "scheduler_preemption_evaluation_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for identifying the target preemption victims.",
    );
    for (found, times) in &inner.evaluations {
        let result = if *found { "Success" } else { "Unschedulable" };
        family.distribution(&[("preemptor", "pod"), ("result", result)], times);
    }
    let result = |succeeded: bool| if succeeded { "success" } else { "error" };
    let mut family = samples(
        out,
        "scheduler_preemption_execution_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for preempting the target preemption victims. With async preemption enabled, preemption execution does not block the scheduling of other pods.",
    );
    for (succeeded, times) in &inner.executions {
        family.distribution(&[("preemptor", "pod"), ("result", result(*succeeded))], times);
    }
    let mut family = samples(
        out,
        "scheduler_preemption_pdb_violations_total",
        "counter",
        "[ALPHA] Total number of pod disruption budget violations caused by preemption.",
    );
    if inner.budget_violations > 0 {
        family.add(&[("preemptor", "pod")], inner.budget_violations as f64);
    }
    let mut family = samples(
        out,
        "scheduler_preemption_goroutines_duration_seconds",
        "histogram",
        "[ALPHA] Duration in seconds for running goroutines for the preemption.",
    );
    for (succeeded, times) in &inner.evictions {
        family.distribution(&[("result", result(*succeeded))], times);
    }
    let mut family = samples(
        out,
        "scheduler_preemption_goroutines_execution_total",
        "counter",
        "[ALPHA] Number of preemption goroutines executed.",
    );
    for (succeeded, times) in &inner.evictions {
        family.add(&[("result", result(*succeeded))], times.count() as f64);
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
