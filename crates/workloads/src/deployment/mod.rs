//! Deployment: rolls pods from one template to the next by growing and shrinking ReplicaSets.
//!
//! `plan` decides with the help of `sizes`, `revisions` and `status`; all are pure. A turn is one step of a rollout, applied and reported with one
//! write of the status. Upstream: DeploymentController.

mod plan;
mod reconcile;
mod revisions;
mod sizes;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "deployment-controller",
    alias: "deployment",
    account: "deployment-controller",
    events: "deployment-controller",
    queue: "deployment",
    watches: &["Deployment", "Pod", "ReplicaSet"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
