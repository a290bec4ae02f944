//! Attach-detach: volumes of drivers are attached to the nodes whose pods want them, and detached when no pod there does.
//!
//! A turn is about one persistent volume, so that no two turns can give one volume to two nodes. What is attached is in VolumeAttachments, which the
//! drivers' own attachers follow; the nodes hear of it by `status.volumesAttached`. Detaching is dangerous while a node has the volume mounted, so it goes
//! in this order: the node does not say that it uses the volume; it is told that the volume is not attached; in the answer it still does not use it; only then the
//! VolumeAttachment is deleted. Disks of storage networks have no driver and no VolumeAttachment: the node connects to them itself, and the lists in
//! the nodes' status alone say who has them. `plan` decides and is pure. Upstream: attachDetachController.

mod disks;
mod figures;
mod plan;
mod reconcile;
mod report;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    alias: "attachdetach",
    account: "attachdetach-controller",
    events: "attachdetach-controller",
    queue: "attachdetach",
    watches: &["CSIDriver", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "VolumeAttachment"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
