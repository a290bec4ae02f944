//! Device taint eviction: deletes pods whose devices have `NoExecute` taints that their claims do not tolerate, or no longer.
//!
//! A taint is the driver's, in a ResourceSlice, or an administrator's, in a DeviceTaintRule. `plan` decides over a pod and is pure; `status`
//! says what is reported about a rule and is pure. Two queues: pods, and rules whose conditions may be out of date (`rules`). Upstream: device taint eviction
//! controller.

mod plan;
mod reconcile;
mod rules;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "device-taint-eviction-controller",
    alias: "",
    account: "device-taint-eviction-controller",
    events: "device-taint-eviction-controller",
    queue: "device-taint-eviction-controller",
    watches: &["DeviceTaintRule", "Pod", "ResourceClaim", "ResourceSlice"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
