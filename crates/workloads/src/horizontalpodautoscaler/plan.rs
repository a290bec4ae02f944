//! What an autoscaler does with what its metrics ask for, and what it says about that.

use std::time::Duration;

use informer::EventType;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerStatus,
    MetricStatus,
};

use super::behavior::{Demand, History};
use super::calculate::Tolerances;
use super::compute::{Failure, Proposal};
use super::status::{ABLE, ACTIVE, LIMITED, Report, ZERO};

/// How far from its target a metric may be, unless the autoscaler says otherwise.
const TOLERANCE: f64 = 0.1;
const BELOW_MINIMUM: &str = "Current number of replicas below Spec.MinReplicas";

/// What a turn sees.
pub(super) struct Observed<'a> {
    pub(super) scaler: &'a HorizontalPodAutoscaler,
    /// The size of the target, or why nobody knows it.
    pub(super) current: Result<i32, String>,
    /// What each metric asks for, in their order; or why the target's pods are not known. Empty where [`needs_metrics`] says so.
    pub(super) metrics: Result<Vec<Result<Proposal, Failure>>, BadSelector>,
    /// Earlier recommendations and changes of the size.
    pub(super) history: History,
    /// The time by which the history counts.
    pub(super) monotonic: Duration,
}

/// Why the pods of the target are not known, or are another autoscaler's too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadSelector {
    pub(super) event: &'static str,
    pub(super) reason: &'static str,
    /// What the condition says.
    pub(super) condition: String,
    pub(super) message: String,
}

/// An event: its type, reason and message.
pub(super) type Message = (EventType, &'static str, String);

/// What a turn does.
pub(super) struct Plan {
    pub(super) events: Vec<Message>,
    /// The size to write, if it is another one.
    pub(super) rescale: Option<i32>,
    /// Why another size is desired.
    reason: String,
    /// `None` if nobody knows it.
    current: Option<i32>,
    desired: Option<i32>,
    metrics: Vec<MetricStatus>,
    report: Report,
    history: History,
}

/// How a turn ends.
pub(super) struct Outcome {
    pub(super) events: Vec<Message>,
    pub(super) status: HorizontalPodAutoscalerStatus,
    pub(super) history: History,
    pub(super) current: i32,
    /// `None` if it is not known, or could not be written.
    pub(super) desired: Option<i32>,
}

fn minimum(scaler: &HorizontalPodAutoscaler) -> i32 {
    scaler.spec.min_replicas.unwrap_or(1)
}

/// Whether it may scale from and to nothing: its own pods cannot tell then what is needed.
fn counts_outside(scaler: &HorizontalPodAutoscaler) -> bool {
    scaler.spec.metrics.iter().flatten().any(|metric| matches!(&*metric.type_, "Object" | "External"))
}

/// What is decided without looking at any metric.
enum Settled {
    Disabled,
    To(i32, &'static str),
}

fn settled(scaler: &HorizontalPodAutoscaler, current: i32) -> Option<Settled> {
    let (min, max) = (minimum(scaler), scaler.spec.max_replicas);
    let at_zero = Report::of(scaler, ZERO);
    if current == 0 && (!at_zero || (min == 0 && !counts_outside(scaler))) {
        Some(Settled::Disabled)
    } else if current > max {
        Some(Settled::To(max, "Current number of replicas above Spec.MaxReplicas"))
    } else if current != 0 && current < min {
        Some(Settled::To(min, BELOW_MINIMUM))
    } else {
        None
    }
}

/// Whether a decision needs to know what the metrics ask for.
pub(super) fn needs_metrics(scaler: &HorizontalPodAutoscaler, current: i32) -> bool {
    settled(scaler, current).is_none()
}

pub(super) fn plan(observed: Observed<'_>, now: Timestamp) -> Plan {
    let Observed { scaler, current, metrics, history, monotonic } = observed;
    let mut plan = Plan {
        events: Vec::new(),
        rescale: None,
        reason: String::new(),
        current: None,
        desired: None,
        metrics: Vec::new(),
        report: Report::new(scaler, now),
        history,
    };
    let current = match current {
        Ok(current) => current,
        Err(error) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            plan.report.condition(ABLE, false, "FailedGetScale", message);
            plan.warn("FailedGetScale", error);
            return plan;
        }
    };
    let message = "the HPA controller was able to get the target's current scale";
    plan.report.condition(ABLE, true, "SucceededGetScale", message);
    plan.current = Some(current);
    plan.history.begin(current, monotonic);
    let desired = match settled(scaler, current) {
        Some(Settled::Disabled) => {
            let message = "scaling is disabled since the replica count of the target is zero";
            plan.report.condition(ACTIVE, false, "ScalingDisabled", message);
            Some(0)
        }
        Some(Settled::To(size, reason)) => {
            reason.clone_into(&mut plan.reason);
            Some(size)
        }
        None => plan.by_metrics(scaler, current, metrics, monotonic),
    };
    plan.desired = desired;
    plan.rescale = desired.filter(|desired| *desired != current);
    plan
}

impl Plan {
    fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push((EventType::Warning, reason, message.into()));
    }

    fn by_metrics(
        &mut self,
        scaler: &HorizontalPodAutoscaler,
        current: i32,
        metrics: Result<Vec<Result<Proposal, Failure>>, BadSelector>,
        monotonic: Duration,
    ) -> Option<i32> {
        let asked = match metrics {
            Ok(metrics) => self.most(current, metrics),
            Err(bad) => {
                self.warn(bad.event, bad.message.clone());
                self.report.condition(ACTIVE, false, bad.reason, bad.condition);
                Err(bad.message)
            }
        };
        let (replicas, metric) = match asked {
            Ok(asked) => asked,
            Err(message) => {
                self.warn("FailedComputeMetricsReplicas", message);
                return None;
            }
        };
        if replicas > current {
            self.reason = format!("{metric} above target");
        } else if replicas < current {
            "All metrics below target".clone_into(&mut self.reason);
        }
        let min = minimum(scaler);
        let demand = Demand { current, desired: replicas, min, max: scaler.spec.max_replicas };
        let at_zero = self.report.holds(ZERO);
        let decision = self.history.decide(demand, scaler.spec.behavior.as_ref(), monotonic);
        self.report.condition(ABLE, true, decision.able.0, decision.able.1);
        let (limited, why) = decision.limited;
        self.report.condition(LIMITED, limited, why.0, why.1);
        if current == 0 && min != 0 && at_zero && decision.replicas < min {
            if self.reason.is_empty() {
                BELOW_MINIMUM.clone_into(&mut self.reason);
            }
            return Some(min);
        }
        Some(decision.replicas)
    }

    /// The most that any metric asks for, and which one. Metrics that fail may not make it smaller.
    fn most(&mut self, current: i32, metrics: Vec<Result<Proposal, Failure>>) -> Result<(i32, String), String> {
        let all = metrics.len();
        let (mut most, mut failed): (Option<(i32, String)>, Vec<Failure>) = (None, Vec::new());
        for metric in metrics {
            match metric {
                Ok(proposal) => {
                    self.metrics.push(proposal.status);
                    if most.as_ref().is_none_or(|(most, _)| *most == 0 || proposal.replicas > *most) {
                        most = Some((proposal.replicas, proposal.name));
                    }
                }
                Err(failure) => {
                    self.warn(failure.reason, failure.cause.clone());
                    // A place is kept for every metric, so that they can be told apart.
                    self.metrics.push(MetricStatus::default());
                    failed.push(failure);
                }
            }
        }
        match (most, failed.first()) {
            (Some((replicas, metric)), first) if first.is_none() || replicas >= current => {
                let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
                self.report.condition(ACTIVE, true, "ValidMetricFound", message);
                Ok((replicas, metric))
            }
            (_, Some(first)) => {
                let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
                self.report.condition(ACTIVE, false, first.reason, message);
                let invalid = failed.len();
                Err(format!("invalid metrics ({invalid} invalid out of {all}), first error is: {}", first.whole))
            }
            (_, None) => Err(String::new()),
        }
    }

    /// What is reported in the end, after the size was written, or could not be.
    pub(super) fn finish(
        mut self,
        scaler: &HorizontalPodAutoscaler,
        rescaled: Option<Result<(), String>>,
        monotonic: Duration,
    ) -> Outcome {
        let Some(current) = self.current else {
            let (events, status, history) = (Vec::new(), self.report.conditions_only(), self.history);
            return Outcome { events, status, history, current: 0, desired: None };
        };
        let mut events = Vec::new();
        let (desired, reason) = (self.desired.unwrap_or(current), &self.reason);
        match &rescaled {
            None => {}
            Some(Err(error)) => {
                let message = format!("New size: {desired}; reason: {reason}; error: {error}");
                events.push((EventType::Warning, "FailedRescale", message));
                let message = format!("the HPA controller was unable to update the target scale: {error}");
                self.report.condition(ABLE, false, "FailedUpdateScale", message);
                self.desired = None;
            }
            Some(Ok(())) => {
                let message = format!("the HPA controller was able to update the target scale to {desired}");
                self.report.condition(ABLE, true, "SucceededRescale", message);
                let message = format!("New size: {desired}; reason: {reason}");
                events.push((EventType::Normal, "SuccessfulRescale", message));
                self.history.scaled(current, desired, scaler.spec.behavior.as_ref(), monotonic);
                if current > 0 && desired == 0 && minimum(scaler) == 0 && counts_outside(scaler) {
                    let message = "the HPA controller scaled the workload to zero";
                    self.report.condition(ZERO, true, "ScaledToZero", message);
                } else {
                    let message = "the HPA controller did not scale the workload to zero";
                    self.report.condition(ZERO, false, "NotScaledToZero", message);
                }
            }
        }
        let was_rescaled = matches!(rescaled, Some(Ok(())));
        let status = self.report.finish(scaler, current, self.desired, self.metrics, was_rescaled);
        Outcome { events, status, history: self.history, current, desired: self.desired }
    }
}

pub(super) fn tolerances(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Tolerances {
    let given = |rules: Option<&HPAScalingRules>| {
        let text = &rules?.tolerance.as_ref()?.0;
        text.parse::<machinery::quantity::Quantity>().ok().map(|quantity| quantity.as_f64())
    };
    Tolerances {
        down: given(behavior.and_then(|behavior| behavior.scale_down.as_ref())).unwrap_or(TOLERANCE),
        up: given(behavior.and_then(|behavior| behavior.scale_up.as_ref())).unwrap_or(TOLERANCE),
    }
}
