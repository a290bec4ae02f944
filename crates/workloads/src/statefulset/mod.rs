//! StatefulSet: pods with names, claims and an order.
//!
//! `plan` decides and is pure: it answers the first thing, or the few things, to do now. There are never two pods of one name, because names are unique;
//! there is never a new pod of a name before the old one is gone, because it cannot be created. Upstream: StatefulSetController.

mod claims;
mod figures;
mod identity;
mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "statefulset-controller",
    alias: "statefulset",
    account: "statefulset-controller",
    events: "statefulset-controller",
    queue: "statefulset",
    watches: &["ControllerRevision", "PersistentVolumeClaim", "Pod", "StatefulSet"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
