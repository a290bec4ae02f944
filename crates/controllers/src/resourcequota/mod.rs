//! ResourceQuota: keeps `status.used`, by which admission decides.
//!
//! `plan` counts and is pure, with the evaluator that admission charges by ([`rules::quota`]). Pods, services and both kinds of claims are counted
//! from the caches that everybody shares; for everything else that a quota limits
//! (`secrets`, `count/widgets.example.com`), a cache of its metadata is begun when the first quota names it. Upstream: resource quota controller.
//!
//! Admission charges a quota *before* it stores the object, so a count made in between would take the charge away and let one object too many in.
//! Therefore a count waits until the quota has not been charged for a moment (`charges`). It comes then even if nothing else happened: the object of
//! a charge may never have been stored.

mod charges;
mod others;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "resourcequota-controller",
    alias: "resourcequota",
    account: "resourcequota-controller",
    events: "resourcequota-controller",
    queue: "resourcequota_primary",
    watches: &["Metadata", "PersistentVolumeClaim", "Pod", "ResourceClaim", "ResourceQuota", "Service"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
