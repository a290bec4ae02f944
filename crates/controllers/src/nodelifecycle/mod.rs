//! Node lifecycle: notices nodes that fell silent, marks them and their pods, and taints nodes by their conditions.
//!
//! A node shows life by renewing its Lease or reporting its status. Life is counted by this process' own clock from when the change was *seen*: node clocks
//! are not trusted. `plan` decides and is pure; `zones` keeps evictions slow when many nodes fail at once, because then the fault is more likely
//! with the network than with the nodes. Upstream: node lifecycle controller.

mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;
mod zones;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "node-lifecycle-controller",
    alias: "nodelifecycle",
    account: "node-controller",
    events: "node-controller",
    queue: "node_lifecycle_controller",
    watches: &["Lease", "Node", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
