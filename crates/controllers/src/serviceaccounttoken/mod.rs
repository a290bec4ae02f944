//! Service account tokens: fills the Secrets of type `kubernetes.io/service-account-token`, and removes those whose account is gone.
//!
//! Upstream: TokensController. It acts as the controller manager itself: no role of its own may read all Secrets.

mod plan;
mod reconcile;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "serviceaccount-token-controller",
    alias: "serviceaccount-token",
    account: "",
    events: "",
    queue: "serviceaccount_tokens_service",
    watches: &["Secret", "ServiceAccount"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
