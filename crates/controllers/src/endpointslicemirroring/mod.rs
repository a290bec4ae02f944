//! EndpointSlice mirroring: Endpoints that users write by hand, for Services without a selector, become EndpointSlices.
//!
//! `plan` decides and is pure. Upstream: endpointslicemirroring controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "endpointslice-mirroring-controller",
    alias: "endpointslicemirroring",
    account: "endpointslicemirroring-controller",
    events: "endpoint-slice-mirroring-controller",
    queue: "endpoint_slice_mirroring",
    watches: &["EndpointSlice", "Endpoints", "Service"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
