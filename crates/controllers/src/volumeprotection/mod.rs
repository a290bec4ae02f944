//! Protection of volumes and claims: what is in use is not removed before it no longer is.
//!
//! A finalizer is put on every claim and volume; it is taken away from one that is being deleted as soon as no pod uses the claim, or no claim the volume.
//! Claims say since when no pod refers to them, in the condition `Unused`.
//! Upstream: pvc-protection and pv-protection controllers.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[
    Controller {
        name: "persistentvolumeclaim-protection-controller",
        alias: "pvc-protection",
        account: "pvc-protection-controller",
        events: "pvc-protection-controller",
        queue: "pvcprotection",
        watches: &["PersistentVolumeClaim", "Pod"],
        on: true,
        start: |context| reconcile::start_claims(context).boxed(),
    },
    Controller {
        name: "persistentvolume-protection-controller",
        alias: "pv-protection",
        account: "pv-protection-controller",
        events: "pv-protection-controller",
        queue: "pvprotection",
        watches: &["PersistentVolume"],
        on: true,
        start: |context| reconcile::start_volumes(context).boxed(),
    },
];
