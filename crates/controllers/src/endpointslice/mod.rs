//! EndpointSlice: the addresses behind every Service with a selector, in slices of at most a hundred.
//!
//! `plan` decides and is pure: it changes as few slices as it can, because every change goes to every node. Upstream: endpointslice controller.

mod endpoints;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
mod traffic;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "endpointslice-controller",
    alias: "endpointslice",
    account: "endpointslice-controller",
    events: "endpoint-slice-controller",
    queue: "endpoint_slice",
    watches: &["EndpointSlice", "Node", "Pod", "Service"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
