//! ServiceCIDR: says that a range of Service addresses is ready, and keeps it from going while addresses are in use that no other range holds.
//!
//! `plan` decides and is pure. Upstream: the ServiceCIDR controller.

mod plan;
mod reconcile;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "service-cidr-controller",
    alias: "",
    account: "service-cidrs-controller",
    events: "service-cidr-controller",
    queue: "ipaddresses",
    watches: &["IPAddress", "ServiceCIDR"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
