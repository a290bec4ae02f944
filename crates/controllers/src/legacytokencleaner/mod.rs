//! Legacy token cleaner: tokens in Secrets that were made automatically and not used for a year are first marked invalid and, after another year, deleted.
//!
//! `plan` decides and is pure. Upstream: LegacySATokenCleaner, which looks at all tokens every day; here each token is looked at when its time comes.

mod plan;
mod reconcile;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "legacy-serviceaccount-token-cleaner-controller",
    alias: "legacy-service-account-token-cleaner",
    account: "legacy-service-account-token-cleaner",
    events: "legacy-service-account-token-cleaner",
    queue: "legacy-serviceaccount-token-cleaner-controller",
    watches: &["Pod", "Secret", "ServiceAccount"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
