//! Ephemeral volumes: makes the claims of pods that bring the template of a claim along. The pod owns the claim, so it goes with the pod.
//!
//! Upstream: ephemeral volume controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "ephemeral-volume-controller",
    alias: "ephemeral-volume",
    account: "ephemeral-volume-controller",
    events: "ephemeral_volume",
    queue: "ephemeral_volume",
    watches: &["PersistentVolumeClaim", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
