//! PodGC: removes pods that nobody else will: those of nodes that are gone, those that never got a node and are being deleted, those of nodes out of service,
//! and the oldest ended ones when there are too many.
//!
//! `plan` decides and is pure. Upstream: PodGCController, which looks every 20 s; here nodes and pods that change bring the turn.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "pod-garbage-collector-controller",
    alias: "podgc",
    account: "pod-garbage-collector",
    events: "pod-garbage-collector",
    queue: "orphaned_pods_nodes",
    watches: &["Node", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
