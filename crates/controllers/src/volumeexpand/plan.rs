//! Which claims get an event because somebody outside has to make their volumes larger.

use informer::Change;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::common::meta::MetaExt;
use crate::common::storage::{self, PRE_RESIZE};

/// Whether a claim may ask for more than before, or have got it.
pub(super) fn grew(change: &Change<PersistentVolumeClaim>) -> bool {
    match change {
        Change::Added(_) => true,
        Change::Modified { old, new } => {
            storage::requested(new) > storage::requested(old) || storage::granted(new) > storage::granted(old)
        }
        Change::Deleted(_) => false,
    }
}

/// The message of the event about a claim.
pub(super) fn plan(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<&'static str> {
    let wanted = storage::requested(claim) > storage::granted(claim);
    let waits = wanted || volume.metadata.annotation(PRE_RESIZE).is_some();
    waits.then_some("waiting for an external controller to expand this PVC")
}
