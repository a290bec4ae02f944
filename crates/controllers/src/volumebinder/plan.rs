//! Which volume a claim gets, and in which phase both are.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer::Key;
use informer::events::reference;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::quantity::Quantity;
use rules::migration;

use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::common::storage::{PRE_RESIZE, SELECTED_NODE};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];

/// On a volume: who made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// What a claim needs.
#[derive(Debug)]
pub(super) enum Claim {
    Settled,
    /// Its volume is gone.
    Lost,
    /// Its volume is somebody else's.
    Misbound,
    Bind(Box<PersistentVolume>),
    Wait {
        reason: &'static str,
        message: &'static str,
    },
    /// A volume has to be made by this provisioner.
    Provision(String),
}

/// What a volume needs.
#[derive(Debug)]
pub(super) enum Volume {
    Settled,
    Phase(&'static str),
    Bound(Box<PersistentVolumeClaim>),
    /// The controller bound it to a claim that took another.
    Unbind,
}

fn claim_spec(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    claim.spec.clone().unwrap_or_default()
}

fn volume_spec(volume: &PersistentVolume) -> PersistentVolumeSpec {
    volume.spec.clone().unwrap_or_default()
}

pub(super) fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref().filter(|name| !name.is_empty())
}

/// It has no volume, and is not going.
pub(super) fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    !claim.metadata.is_deleting() && claim.metadata.annotation(BIND_COMPLETED).is_none()
}

/// The claim a volume is meant for.
pub(super) fn claim_key(volume: &PersistentVolume) -> Option<Key> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(claim.namespace.clone().unwrap_or_default(), claim.name.clone().unwrap_or_default()))
}

/// The volume is this very claim's, or is reserved for it by name.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    claim_key(volume) == Some(claim.metadata.key()) && (uid.is_empty() || uid == claim.metadata.uid())
}

pub(super) fn claim(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    all: &[Arc<PersistentVolume>],
) -> Claim {
    let spec = claim_spec(claim);
    let named = spec.volume_name.clone().filter(|name| !name.is_empty());
    let completed = claim.metadata.annotation(BIND_COMPLETED).is_some();
    if let Some(name) = named {
        let volume = all.iter().find(|volume| volume.metadata.name() == name);
        return match volume {
            None if completed => Claim::Lost,
            // A volume that a user named and that does not exist yet is waited for in silence.
            None => Claim::Settled,
            Some(volume) if volume_spec(volume).claim_ref.is_none() || is_for(volume, claim) => {
                Claim::Bind(Box::new(PersistentVolume::clone(volume)))
            }
            Some(_) if completed => Claim::Misbound,
            Some(_) => Claim::Wait { reason: "FailedBinding", message: "volume already bound to a different claim." },
        };
    }
    if completed {
        return Claim::Lost;
    }
    if claim.metadata.is_deleting() {
        return Claim::Settled;
    }
    // A volume that was made for the claim comes first, whatever the binding mode.
    if let Some(volume) = all.iter().find(|volume| is_for(volume, claim)) {
        return Claim::Bind(Box::new(PersistentVolume::clone(volume)));
    }
    let waits = class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer");
    if waits && claim.metadata.annotation(SELECTED_NODE).is_none() {
        let message = "waiting for first consumer to be created before binding";
        return Claim::Wait { reason: "WaitForFirstConsumer", message };
    }
    if !waits && let Some(volume) = best(claim, all) {
        return Claim::Bind(Box::new(volume));
    }
    match class {
        Some(class) if class.provisioner != "kubernetes.io/no-provisioner" => {
            Claim::Provision(migration::driver_of(&class.provisioner).to_owned())
        }
        _ => Claim::Wait {
            reason: "FailedBinding",
            message: "no persistent volumes available for this claim and no storage class is set",
        },
    }
}

/// The smallest free volume that satisfies the claim.
fn best(claim: &PersistentVolumeClaim, all: &[Arc<PersistentVolume>]) -> Option<PersistentVolume> {
    let spec = claim_spec(claim);
    let request = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage").cloned());
    let needed = request.and_then(|request| request.0.parse::<Quantity>().ok());
    let selector = spec.selector.as_ref().map(|selector| selector::parse_optional(Some(selector)));
    let size = |volume: &PersistentVolume| {
        volume_spec(volume).capacity.and_then(|capacity| capacity.get("storage")?.0.parse::<Quantity>().ok())
    };
    let fits = |volume: &PersistentVolume| {
        let offered = volume_spec(volume);
        let modes = offered.access_modes.unwrap_or_default();
        let mode = |mode: Option<String>| mode.unwrap_or_else(|| "Filesystem".to_owned());
        offered.claim_ref.is_none()
            && !volume.metadata.is_deleting()
            && offered.storage_class_name.unwrap_or_default() == spec.storage_class_name.clone().unwrap_or_default()
            && spec.access_modes.iter().flatten().all(|wanted| modes.contains(wanted))
            && mode(offered.volume_mode) == mode(spec.volume_mode.clone())
            && offered.volume_attributes_class_name.unwrap_or_default()
                == spec.volume_attributes_class_name.clone().unwrap_or_default()
            && selector.as_ref().is_none_or(|selector| selector::matches(selector, &volume.metadata.labels))
            && needed.as_ref().is_none_or(|needed| size(volume).is_some_and(|size| size >= *needed))
    };
    let fitting = all.iter().filter(|volume| fits(volume));
    let smallest = fitting.min_by(|a, b| {
        let key =
            |volume: &PersistentVolume| (size(volume).map(|size| size.value()), volume.metadata.name().to_owned());
        key(a).cmp(&key(b))
    });
    smallest.map(|volume| PersistentVolume::clone(volume))
}

/// `None` is a volume without a claim, `Some(None)` one whose claim is not there.
pub(super) fn volume(volume: &PersistentVolume, claim: Option<Option<&PersistentVolumeClaim>>) -> Volume {
    let uid = volume_spec(volume).claim_ref.and_then(|claim| claim.uid).unwrap_or_default();
    match claim {
        None => Volume::Phase("Available"),
        // Reserved for a claim that does not exist yet.
        Some(None) if uid.is_empty() => Volume::Phase("Available"),
        Some(None) => Volume::Phase("Released"),
        Some(Some(claim)) if !uid.is_empty() && uid != claim.metadata.uid() => Volume::Phase("Released"),
        Some(Some(claim)) => {
            let chosen = claim_spec(claim).volume_name.filter(|name| !name.is_empty());
            match chosen {
                Some(name) if name != volume.metadata.name() => {
                    if volume.metadata.annotation(BOUND_BY_CONTROLLER).is_some() {
                        Volume::Unbind
                    } else {
                        Volume::Settled
                    }
                }
                _ => Volume::Bound(Box::new(claim.clone())),
            }
        }
    }
}

/// The volume with its claim noted; `None` if it is.
pub(super) fn with_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let mut changed = volume.clone();
    let spec = changed.spec.get_or_insert_default();
    let known = spec.claim_ref.clone();
    if known.as_ref().is_some_and(|known| known.uid == claim.metadata.uid) {
        return None;
    }
    let wanted = ObjectReference { api_version: Some("v1".to_owned()), ..reference(claim) };
    spec.claim_ref = Some(wanted);
    if known.is_none() {
        let annotations = changed.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(changed)
}

pub(super) fn forget_claim(volume: &mut PersistentVolume) {
    if let Some(spec) = &mut volume.spec {
        spec.claim_ref = None;
    }
    if let Some(annotations) = &mut volume.metadata.annotations {
        annotations.remove(BOUND_BY_CONTROLLER);
    }
}

/// The claim with its volume noted; `None` if it is.
pub(super) fn with_volume(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let mut changed = claim.clone();
    let spec = changed.spec.get_or_insert_default();
    let annotations = changed.metadata.annotations.get_or_insert_default();
    if spec.volume_name.as_ref() != volume.metadata.name.as_ref() {
        spec.volume_name.clone_from(&volume.metadata.name);
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    annotations.entry(BIND_COMPLETED.to_owned()).or_insert_with(|| "yes".to_owned());
    (changed != *claim).then_some(changed)
}

/// Annotations with the driver behind a provisioner of an old name, or without where there is none; `None` if they say so.
fn with_driver(annotations: Option<&BTreeMap<String, String>>, keys: &[&str]) -> Option<BTreeMap<String, String>> {
    let annotations = annotations?;
    let provisioner = keys.iter().find_map(|key| annotations.get(*key))?;
    let driver = Some(migration::driver_of(provisioner)).filter(|driver| driver != provisioner);
    let known = annotations.get(migration::MIGRATED_TO).map(String::as_str).filter(|known| !known.is_empty());
    if known == driver {
        return None;
    }
    let mut changed = annotations.clone();
    changed.remove(migration::MIGRATED_TO);
    changed.extend(driver.map(|driver| (migration::MIGRATED_TO.to_owned(), driver.to_owned())));
    Some(changed)
}

/// The claim with the driver that its provisioner became; `None` if that is what it says.
pub(super) fn migrated_claim(claim: &PersistentVolumeClaim) -> Option<PersistentVolumeClaim> {
    let keys = [PROVISIONER[1], PROVISIONER[0]];
    let annotations = with_driver(claim.metadata.annotations.as_ref(), &keys)?;
    let mut changed = claim.clone();
    changed.metadata.annotations = Some(annotations);
    Some(changed)
}

/// The volume with the driver that its provisioner became; `None` if that is what it says.
pub(super) fn migrated_volume(volume: &PersistentVolume) -> Option<PersistentVolume> {
    let annotations = with_driver(volume.metadata.annotations.as_ref(), &[PROVISIONED_BY])?;
    let mut changed = volume.clone();
    changed.metadata.annotations = Some(annotations);
    Some(changed)
}

/// The claim for its provisioner to see; `None` if it can.
pub(super) fn for_provisioner(claim: &PersistentVolumeClaim, provisioner: &str) -> Option<PersistentVolumeClaim> {
    let mut changed = claim.clone();
    let annotations = changed.metadata.annotations.get_or_insert_default();
    for key in PROVISIONER {
        annotations.insert(key.to_owned(), provisioner.to_owned());
    }
    (changed != *claim).then(|| migrated_claim(&changed).unwrap_or(changed))
}

/// The volume in another phase; `None` if it is in this one.
pub(super) fn with_volume_phase(volume: &PersistentVolume, phase: &str, now: Timestamp) -> Option<PersistentVolume> {
    let mut changed = volume.clone();
    let status = changed.status.get_or_insert_default();
    if status.phase.as_deref() == Some(phase) {
        return None;
    }
    status.phase = Some(phase.to_owned());
    status.last_phase_transition_time = Some(Time(now));
    Some(changed)
}

/// The claim in another phase, with what its volume offers; `None` if that is what it says.
pub(super) fn with_claim_phase(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    phase: &str,
) -> Option<PersistentVolumeClaim> {
    let mut changed = claim.clone();
    let status = changed.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    let before = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    match volume {
        None => {
            (status.access_modes, status.capacity, status.current_volume_attributes_class_name) = (None, None, None);
        }
        Some(volume) => {
            let spec = volume_spec(volume);
            status.access_modes = spec.access_modes;
            // A claim that is bound may have less than its volume on purpose: what is in the volume has yet to grow.
            if before != phase {
                status.capacity = spec.capacity;
                if let Some(size) =
                    volume.metadata.annotation(PRE_RESIZE).filter(|size| size.parse::<Quantity>().is_ok())
                {
                    let size = (
                        "storage".to_owned(),
                        k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.to_owned()),
                    );
                    status.capacity.get_or_insert_default().extend([size]);
                }
            }
            // Later changes are the resizer's to tell.
            if before == "Pending" && phase == "Bound" {
                status.current_volume_attributes_class_name = spec.volume_attributes_class_name;
            }
        }
    }
    (changed != *claim).then_some(changed)
}
