//! Storage version GC: API servers that are gone no longer count for how objects are stored.
//!
//! The resource is an alpha that API servers serve only when asked to; without it there is nothing to do. Upstream: storageversiongc.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "storageversion-garbage-collector-controller",
    alias: "storage-version-gc",
    account: "storage-version-garbage-collector",
    events: "storage-version-garbage-collector",
    queue: "storage_version_garbage_collector_storageversions",
    watches: &["Lease", "StorageVersion"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
