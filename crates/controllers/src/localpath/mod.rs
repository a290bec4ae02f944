//! Local-path provisioner: claims of the default StorageClass get a directory on the node of their first pod.
//!
//! The directory itself is made by the kubelet when the pod starts, because the volume says `DirectoryOrCreate`. It is removed with its volume by
//! the kubelet of its node, which is told so through the API server; one that cannot be told now is told later. A directory has no size, so a claim that grows has grown.
//! Not upstream's; clusters without any storage would otherwise not run a StatefulSet.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "local-path-provisioner-controller",
    alias: "",
    account: "persistent-volume-binder",
    events: "trireme.io/local-path",
    queue: "local-path-provisioner-controller",
    watches: &["Node", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};

pub use plan::default_storage_class;
