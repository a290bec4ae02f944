//! VolumeBinding.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// Whether a claim has a volume and the binding is complete in both directions.
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    let has_volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).is_some_and(|n| !n.is_empty());
    let completed = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key("pv.kubernetes.io/bind-completed"));
    has_volume && completed
}
