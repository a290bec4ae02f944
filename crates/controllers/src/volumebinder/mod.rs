//! PersistentVolume binder: brings claims and volumes together, and releases volumes whose claims are gone.
//!
//! Binding takes four writes (the volume's claim, its phase, the claim's volume, its phase); every turn finds out which are missing and goes on, so being cut off
//! between any two does no harm. `plan` decides and is pure. Upstream: PersistentVolumeController.

mod figures;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "persistentvolume-binder-controller",
    alias: "persistentvolume-binder",
    account: "persistent-volume-binder",
    events: "persistentvolume-controller",
    queue: "volumes",
    watches: &["PersistentVolume", "PersistentVolumeClaim", "StorageClass"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
