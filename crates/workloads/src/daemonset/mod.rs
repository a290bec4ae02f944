//! DaemonSet: one pod on every node that it fits.
//!
//! `plan` decides and is pure: which nodes lack a pod, which pods have no business where they are, and which old pods an update may replace
//! now. Upstream: DaemonSetsController.

mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "daemonset-controller",
    alias: "daemonset",
    account: "daemon-set-controller",
    events: "daemonset-controller",
    queue: "daemonset",
    watches: &["ControllerRevision", "DaemonSet", "Node", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
