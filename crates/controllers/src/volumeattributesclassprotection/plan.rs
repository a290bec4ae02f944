//! Which classes claims and volumes name.

use informer::{Cached, Change, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// The classes of a claim: the one it wants, the one it has, and the one it is being moved to.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let status = claim.status.as_ref();
    let present = status.and_then(|status| status.current_volume_attributes_class_name.clone());
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = target.and_then(|status| status.target_volume_attributes_class_name.clone());
    let mut names: Vec<String> =
        [wanted, present, target].into_iter().flatten().filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

/// The class of a volume.
pub(super) fn of_volume(volume: &PersistentVolume) -> Vec<String> {
    let name = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    name.filter(|name| !name.is_empty()).into_iter().collect()
}

/// The classes that an object no longer names.
pub(super) fn left<K: Cached>(change: &Change<K>, names: fn(&K) -> Vec<String>) -> Vec<Key> {
    let now = change.after().map(|object| names(object)).unwrap_or_default();
    let before = change.before().map(|object| names(object)).unwrap_or_default();
    before.iter().filter(|name| !now.contains(name)).map(Key::cluster).collect()
}
