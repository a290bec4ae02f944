//! What an autoscaler says about itself.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) const ABLE: &str = "AbleToScale";
pub(super) const ACTIVE: &str = "ScalingActive";
pub(super) const LIMITED: &str = "ScalingLimited";
pub(super) const ZERO: &str = "ScaledToZero";

/// The status under construction.
pub(super) struct Report {
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Report {
    /// Starts from what was reported before.
    pub(super) fn new(scaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        Self { status: scaler.status.clone().unwrap_or_default(), now }
    }

    pub(super) fn condition(&mut self, type_: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|condition| condition.type_ == type_).unwrap_or_else(|| {
            let new = HorizontalPodAutoscalerCondition { type_: type_.to_owned(), ..Default::default() };
            conditions.push(new);
            conditions.len() - 1
        });
        let (condition, status) = (&mut conditions[at], if holds { "True" } else { "False" });
        if condition.status != status {
            condition.last_transition_time = Some(Time(self.now));
            status.clone_into(&mut condition.status);
        }
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
    }

    /// Whether a condition of an autoscaler holds before a turn.
    pub(super) fn of(scaler: &HorizontalPodAutoscaler, type_: &str) -> bool {
        let conditions = scaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }

    pub(super) fn holds(&self, type_: &str) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }

    /// The whole: `desired` is what it was unless it is given.
    pub(super) fn finish(
        mut self,
        scaler: &HorizontalPodAutoscaler,
        current: i32,
        desired: Option<i32>,
        metrics: Vec<MetricStatus>,
        rescaled: bool,
    ) -> HorizontalPodAutoscalerStatus {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired.unwrap_or(self.status.desired_replicas);
        self.status.current_metrics = (!metrics.is_empty()).then_some(metrics);
        self.status.observed_generation = scaler.metadata.generation;
        if rescaled {
            self.status.last_scale_time = Some(Time(self.now));
        }
        self.status
    }

    /// Only the conditions changed.
    pub(super) fn conditions_only(self) -> HorizontalPodAutoscalerStatus {
        self.status
    }
}
