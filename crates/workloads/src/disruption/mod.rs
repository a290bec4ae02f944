//! Disruption: keeps the numbers of PodDisruptionBudgets, by which the eviction API decides.
//!
//! `plan` counts and is pure. Upstream: DisruptionController.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    alias: "disruption",
    account: "disruption-controller",
    events: "controllermanager",
    queue: "disruption",
    watches: &["Deployment", "Pod", "PodDisruptionBudget", "ReplicaSet", "ReplicationController", "StatefulSet"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
