//! TTL after finished: deletes Jobs some time after they ended, if they say so.
//!
//! Upstream: ttlafterfinished controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "ttl-after-finished-controller",
    alias: "ttl-after-finished",
    account: "ttl-after-finished-controller",
    events: "ttl-after-finished-controller",
    queue: "ttl_jobs_to_delete",
    watches: &["Job"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
