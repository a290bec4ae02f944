//! Node IPAM: gives every node a range of pod addresses out of the cluster's.
//!
//! `plan` keeps the books and is pure; what was given is in the nodes themselves, and a new process reads it there. Upstream: the range allocator.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    alias: "nodeipam",
    account: "node-controller",
    events: "cidrAllocator",
    queue: "cidrallocator_node",
    watches: &["Node"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
