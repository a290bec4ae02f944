//! Taint eviction: deletes pods from nodes with `NoExecute` taints that they do not tolerate, or no longer.
//!
//! `plan` decides and is pure. The time a pod is given is counted from when the taint was added, which the taint itself says. Upstream: taint manager.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "taint-eviction-controller",
    alias: "",
    account: "node-controller",
    events: "taint-eviction-controller",
    queue: "noexec_taint_pod",
    watches: &["Node", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
