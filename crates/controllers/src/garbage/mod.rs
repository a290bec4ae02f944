//! Garbage collector: deletes what no living owner holds, and carries out foreground and orphaning deletions.
//!
//! It follows the metadata of every object of every kind, custom ones included, in one graph. `graph` keeps the books, `plan` decides, both pure. An owner
//! that nobody has seen is asked for at the API server before anything is deleted on its account. Upstream: GarbageCollector.

mod graph;
mod monitor;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "garbage-collector-controller",
    alias: "garbagecollector",
    account: "generic-garbage-collector",
    events: "garbage-collector-controller",
    queue: "garbage_collector_attempt_to_delete",
    watches: &["Metadata"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
