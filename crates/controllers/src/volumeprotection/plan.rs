//! Who uses a claim or a volume. What follows from that is `common::protection`'s to say.

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};

use crate::common::pods;

/// Whether a pod keeps its claims in use: it has a node and has not ended.
pub(super) fn uses_claims(pod: &Pod) -> bool {
    !pods::is_terminal(pod) && pods::node_name(pod).is_some()
}

pub(super) fn is_bound(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
