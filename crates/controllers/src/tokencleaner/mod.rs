//! Token cleaner: deletes bootstrap tokens when they expire.
//!
//! Upstream: TokenCleaner.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "token-cleaner-controller",
    alias: "tokencleaner",
    account: "token-cleaner",
    events: "token-cleaner",
    queue: "token_cleaner",
    watches: &["Secret"],
    on: false,
    start: |context| reconcile::start(context).boxed(),
};
