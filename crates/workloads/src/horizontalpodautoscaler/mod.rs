//! HorizontalPodAutoscaler: as many replicas as the load asks for.
//!
//! `metrics` reads, `calculate` says what a metric asks for, `plan` what is done about it within the limits of `behavior`; these and `status` are pure. Metrics cannot be watched, so an autoscaler looks again every 15 s; without one nothing
//! wakes up. Upstream: HorizontalController.

mod behavior;
mod calculate;
mod compute;
mod figures;
mod metrics;
mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "horizontal-pod-autoscaler-controller",
    alias: "horizontalpodautoscaling",
    account: "horizontal-pod-autoscaler",
    events: "horizontal-pod-autoscaler",
    queue: "horizontalpodautoscaler",
    watches: &["HorizontalPodAutoscaler", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
