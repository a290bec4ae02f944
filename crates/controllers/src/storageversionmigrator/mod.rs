//! Storage version migrations: writes every object of a resource again, so that it is stored in today's version and with today's key.
//!
//! Of a resource one migration runs at a time, the oldest first. It notes the resource version at which it began; whatever was written later is stored as it
//! should be, and everything else gets a patch that changes nothing. If the resource is custom, its definition says that it is being migrated and
//! afterwards which version its objects are stored in, unless the definition has changed meanwhile. A manager that starts anew goes on where the status says.
//!
//! `plan` decides and is pure; `reconcile` observes, applies and reports. Upstream has three controllers for this, which hand migrations to each other
//! through the same conditions, and reads the names of objects from the caches of the garbage collector; here they are listed.

mod plan;
mod reconcile;
mod run;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "storage-version-migrator-controller",
    alias: "svm",
    account: "storage-version-migrator-controller",
    events: "storage-version-migrator-controller",
    queue: "storage-version-migrator-controller",
    watches: &["StorageVersionMigration"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
