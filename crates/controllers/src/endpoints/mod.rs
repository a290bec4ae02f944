//! Endpoints: the older form of EndpointSlices, one object per Service, for clients that still read it.
//!
//! `plan` decides and is pure. Upstream: endpoints controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "endpoints-controller",
    alias: "endpoint",
    account: "endpoint-controller",
    events: "endpoint-controller",
    queue: "endpoint",
    watches: &["Endpoints", "Pod", "Service"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
