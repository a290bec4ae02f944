//! Volume expansion: tells who asks for a larger volume that somebody outside has to make it so.
//!
//! Upstream's expand controller grows volumes of in-tree plug-ins, of which none is left that can grow; what is left is the word to the user. The resizer of a CSI driver,
//! or our own local-path provisioner, does the work. Upstream: expandController.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "persistentvolume-expander-controller",
    alias: "persistentvolume-expander",
    account: "expand-controller",
    events: "volume_expand",
    queue: "volume_expand",
    watches: &["PersistentVolume", "PersistentVolumeClaim"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
