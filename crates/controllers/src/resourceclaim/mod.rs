//! ResourceClaims: makes the claims of pods that name templates, and takes back what pods that are done had reserved.
//!
//! Two queues: pods, which may lack a claim or a reservation ([`pods`]), and claims, which may be reserved for pods that are gone ([`claims`]).
//! `plan` decides and is pure. PodGroups have no claims here: v1.37 has that behind `DRAWorkloadResourceClaims`, which is off by default.
//! Upstream: resourceclaim controller.

mod claims;
mod figures;
mod plan;
mod pods;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "resourceclaim-controller",
    alias: "resource-claim-controller",
    account: "resource-claim-controller",
    events: "resource_claim",
    queue: "resource_claim",
    watches: &["Pod", "ResourceClaim", "ResourceClaimTemplate"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
