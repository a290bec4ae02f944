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
    let mut family =
        Family::new(out, "scheduler_schedule_attempts_total", "counter", "Attempts to schedule pods, by result.");
    by_result().for_each(|(labels, histogram)| family.value(&labels, histogram.count()));
    let mut family = Family::new(
        out,
        "scheduler_scheduling_attempt_duration_seconds",
        "histogram",
        "How long attempts took, from taking the pod from the queue to the end of its binding.",
    );
    by_result().for_each(|(labels, histogram)| family.histogram(&labels, histogram));
    Family::new(
        out,
        "scheduler_scheduling_algorithm_duration_seconds",
        "histogram",
        "How long it took to find a node, or none.",
    )
    .histogram("", &inner.algorithm);
    let mut family = Family::new(
        out,
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "From a pod's first time in the active queue to its node.",
    );
    for (attempts, histogram) in &inner.sli {
        let label = if *attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        family.histogram(&format!("attempts=\"{label}\""), histogram);
    }
    Family::new(out, "scheduler_pod_scheduling_attempts", "histogram", "Attempts until a pod was scheduled.")
        .histogram("", &inner.attempts_per_pod);
    Family::new(
        out,
        "scheduler_pod_scheduled_after_flush_total",
        "counter",
        "Pods scheduled after no event had helped them in time.",
    )
    .value("", inner.scheduled_after_flush);
}

fn queues(inner: &Inner, out: &mut String) {
    let Pending { active, backoff, unschedulable, gated } = inner.pending;
    let places = [("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("gated", gated)];
    let mut family = Family::new(out, "scheduler_pending_pods", "gauge", "Pods that wait, by queue.");
    places.iter().for_each(|(queue, count)| family.value(&format!("queue=\"{queue}\""), count));
    let mut family = Family::new(out, "scheduler_queued_entities", "gauge", "What waits, by queue and kind.");
    places.iter().for_each(|(queue, count)| family.value(&format!("queue=\"{queue}\",type=\"pod\""), count));
    for (name, kind) in
        [("scheduler_queue_incoming_pods_total", ""), ("scheduler_queue_incoming_entities_total", ",type=\"pod\"")]
    {
        let mut family = Family::new(out, name, "counter", "Pods that came into queues, by queue and event.");
        for ((place, event), count) in &inner.incoming {
            family.value(&format!("event=\"{event}\",queue=\"{}\"{kind}", place.label()), count);
        }
    }
    Family::new(out, "scheduler_inflight_events", "gauge", "Events kept for pods under way.")
        .value("event=\"all\"", inner.in_flight_events);
    let mut family = Family::new(
        out,
        "scheduler_event_handling_duration_seconds",
        "histogram",
        "How long it took to take in an event of the cluster.",
    );
    inner.events.iter().for_each(|(event, histogram)| family.histogram(&format!("event=\"{event}\""), histogram));
    let mut family = Family::new(
        out,
        "scheduler_unschedulable_pods",
        "gauge",
        "Pods that wait because of a plugin; one that several rejected counts for each.",
    );
    for profile in &inner.profiles {
        for (plugin, count) in &profile.unschedulable {
            family.value(&format!("plugin=\"{plugin}\",profile=\"{}\"", profile.name), count);
        }
    }
    let mut family = Family::new(out, "scheduler_cache_size", "gauge", "Nodes and pods in the model of the cluster.");
    let cache = inner.cache;
    for (kind, count) in [("nodes", cache.nodes), ("pods", cache.pods), ("assumed_pods", cache.assumed_pods)] {
        family.value(&format!("type=\"{kind}\""), count);
    }
    Family::new(out, "scheduler_goroutines", "gauge", "Tasks under way, by what they do.")
        .value("operation=\"binding\"", inner.bindings);
}

fn plugins(inner: &Inner, out: &mut String) {
    let mut family = Family::new(
        out,
        "scheduler_framework_extension_point_duration_seconds",
        "histogram",
        "How long all plugins of an extension point took together.",
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
        "How long a plugin took at an extension point, in one of ten cycles.",
    );
    for ((plugin, point, status), histogram) in &inner.plugins {
        let (point, status) = (point.label(), status.label());
        family.histogram(&format!("extension_point=\"{point}\",plugin=\"{plugin}\",status=\"{status}\""), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_plugin_evaluation_total",
        "counter",
        "How often a plugin was asked: PreFilter and PreScore once per pod, Filter and Score per node.",
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
        "How long a plugin took to say whether an event may help a pod.",
    );
    for ((plugin, event, queue), histogram) in &inner.hints {
        let hint = if *queue { "Queue" } else { "QueueSkip" };
        family.histogram(&format!("event=\"{event}\",hint=\"{hint}\",plugin=\"{plugin}\""), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_permit_wait_duration_seconds",
        "histogram",
        "How long pods waited for permission to be bound.",
    );
    for (status, histogram) in &inner.permit_waits {
        family.histogram(&format!("result=\"{}\"", status.label()), histogram);
    }
}

fn preemption(inner: &Inner, out: &mut String) {
    Family::new(out, "scheduler_preemption_attempts_total", "counter", "Attempts to make room by evictions.")
        .value("", inner.preemption_attempts);
    Family::new(out, "scheduler_preemption_victims", "histogram", "Pods evicted for one pod.")
        .histogram("", &inner.victims);
    let result = |succeeded: bool| if succeeded { "success" } else { "error" };
    let mut family = Family::new(
        out,
        "scheduler_preemption_goroutines_duration_seconds",
        "histogram",
        "How long the evictions for a pod took.",
    );
    for (succeeded, histogram) in &inner.evictions {
        family.histogram(&format!("result=\"{}\"", result(*succeeded)), histogram);
    }
    let mut family = Family::new(
        out,
        "scheduler_preemption_goroutines_execution_total",
        "counter",
        "How often pods were evicted for another.",
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
