//! ServiceAccount: every namespace has the account `default`.
//!
//! Upstream: ServiceAccountsController.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "serviceaccount-controller",
    alias: "serviceaccount",
    account: "service-account-controller",
    events: "service-account-controller",
    queue: "serviceaccount",
    watches: &["Namespace", "ServiceAccount"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
