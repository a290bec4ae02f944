//! Claims and volumes: who uses them, how much is asked for, how much is granted.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer::{Informer, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::meta::MetaExt;
use super::pods;

/// The index of pods by the claims they use.
pub const CLAIM_INDEX: &str = "claim";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// How large a volume was before it began to grow.
pub const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// The claims a pod uses, those of its ephemeral volumes included.
pub fn claims_of(pod: &Pod) -> Vec<Key> {
    let volumes = pods::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let names = volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name(), volume.name)),
        (None, None) => None,
    });
    names.map(|name| Key::new(pod.metadata.namespace(), name)).collect()
}

/// Whether a pod has a volume that is a claim, by the claim's name.
pub fn names_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let mut volumes = pods::spec(pod).into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    pod.metadata.namespace() == claim.metadata.namespace()
        && volumes.any(|volume| {
            volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name == claim.metadata.name())
        })
}

/// Whether a claim was made for a volume of a pod.
pub fn owns_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let mut volumes = pods::spec(pod).into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    let made = |volume: &str| format!("{}-{volume}", pod.metadata.name()) == claim.metadata.name();
    pod.metadata.namespace() == claim.metadata.namespace()
        && rules::owners::controller_uid(&claim.metadata) == Some(pod.metadata.uid())
        && volumes.any(|volume| volume.ephemeral.is_some() && made(&volume.name))
}

/// Values of [`CLAIM_INDEX`].
pub fn claim_values(pod: &Pod) -> Vec<String> {
    claims_of(pod).iter().map(Key::to_string).collect()
}

fn bytes(amounts: Option<&BTreeMap<String, Quantity>>) -> Option<machinery::quantity::Quantity> {
    amounts?.get("storage")?.0.parse().ok()
}

/// What a claim asks for.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<machinery::quantity::Quantity> {
    bytes(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

/// What a claim has.
pub fn granted(claim: &PersistentVolumeClaim) -> Option<machinery::quantity::Quantity> {
    bytes(claim.status.as_ref()?.capacity.as_ref())
}

/// How large a volume is.
pub fn capacity(volume: &PersistentVolume) -> Option<machinery::quantity::Quantity> {
    bytes(volume.spec.as_ref()?.capacity.as_ref())
}

/// The volume of a bound claim, if it is the claim's indeed.
pub fn bound_volume(
    claim: &PersistentVolumeClaim,
    volumes: &Informer<PersistentVolume>,
) -> Option<Arc<PersistentVolume>> {
    let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|_| bound)?;
    let volume = volumes.get(&Key::cluster(name))?;
    let owner = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let own = owner.uid.as_deref() == Some(claim.metadata.uid())
        && owner.namespace.as_deref() == Some(claim.metadata.namespace());
    own.then_some(volume)
}
