//! Which volumes the claims of a pod would get on a node. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};

use super::super::volumes::{
    NO_PROVISIONER, Reach, SELECTED_NODE, capacity_bytes, claim_class, requested_bytes, volume_class,
};
use crate::framework::{Code, Rejection};
use crate::model::node::NodeInfo;
use crate::model::objects::Objects;
use crate::model::resources::whole;
use rules::selectors::{LabelSelector, NodeFacts, NodeSelector};

pub(super) const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
pub(super) const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
pub(super) const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
pub(super) const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// A volume that a claim could be bound to.
#[derive(Clone)]
pub(super) struct Available {
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) affinity: Option<NodeSelector>,
    pub(super) bytes: i64,
}

/// A claim that waits for its pod.
#[derive(Clone)]
pub(super) struct Delayed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) class: Option<Arc<StorageClass>>,
    pub(super) selector: Option<LabelSelector>,
    pub(super) bytes: i64,
    /// Volumes of the claim's class.
    pub(super) available: Vec<Available>,
    /// Capacities of the class that are large enough; `None` when the driver does not report them.
    pub(super) capacities: Option<Vec<(Arc<CSIStorageCapacity>, LabelSelector)>>,
}

/// A claim that is bound.
#[derive(Clone)]
pub(super) enum Bound {
    To(Reach),
    /// Its volume does not exist.
    ToNothing,
}

/// The claims of a pod.
#[derive(Clone, Default)]
pub(super) struct Claims {
    pub(super) bound: Vec<Bound>,
    pub(super) delayed: Vec<Delayed>,
}

/// What a node means for the claims.
#[derive(Default)]
pub(super) struct Found {
    pub(super) bindings: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    pub(super) provisions: Vec<(Arc<PersistentVolumeClaim>, Option<Arc<CSIStorageCapacity>>)>,
}

/// Which volumes the claims would get on a node, or why they would not.
pub(super) fn find(claims: &Claims, node: &NodeInfo) -> Result<Found, Rejection> {
    let mut reasons: Vec<&'static str> = Vec::new();
    // The first claim with a problem decides which one is reported.
    let missing = claims.bound.iter().find_map(|bound| match bound {
        Bound::To(reach) if !reach.includes(node) => Some(false),
        Bound::ToNothing => Some(true),
        Bound::To(_) => None,
    });
    if missing == Some(false) {
        reasons.push(NODE_CONFLICT);
    }
    let mut found = Found::default();
    match find_delayed(claims, node, &mut found) {
        Ok(()) => {}
        Err(Unmet::Reason(reason)) => reasons.push(reason),
        Err(Unmet::Error(text)) => return Err(Rejection::error(text)),
    }
    if missing == Some(true) {
        reasons.push(VOLUME_MISSING);
    }
    if reasons.is_empty() {
        return Ok(found);
    }
    Err(Rejection { code: Code::Unresolvable, reasons: reasons.into_iter().map(Into::into).collect(), plugin: None })
}

pub(super) enum Unmet {
    Reason(&'static str),
    Error(String),
}

pub(super) fn find_delayed(claims: &Claims, node: &NodeInfo, found: &mut Found) -> Result<(), Unmet> {
    let mut to_provision = Vec::new();
    for delayed in &claims.delayed {
        let annotations = delayed.claim.metadata.annotations.as_ref();
        match annotations.and_then(|a| a.get(SELECTED_NODE)) {
            // Provisioning has begun for a node: it is that one or none.
            Some(selected) if selected != node.name() => return Err(Unmet::Reason(BIND_CONFLICT)),
            Some(_) => to_provision.push(delayed),
            None => match best_match(delayed, node, &found.bindings) {
                Some(volume) => found.bindings.push((volume, delayed.claim.clone())),
                None => to_provision.push(delayed),
            },
        }
    }
    for delayed in to_provision {
        let Some(class) = &delayed.class else {
            let class = claim_class(&delayed.claim);
            return Err(Unmet::Error(format!("failed to find storage class {class:?}")));
        };
        if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER || !allows(class, node) {
            return Err(Unmet::Reason(BIND_CONFLICT));
        }
        let capacity = match &delayed.capacities {
            None => None,
            Some(capacities) => match capacities.iter().find(|(_, topology)| topology.matches(node.labels())) {
                Some((capacity, _)) => Some(capacity.clone()),
                None => return Err(Unmet::Reason(NOT_ENOUGH_SPACE)),
            },
        };
        found.provisions.push((delayed.claim.clone(), capacity));
    }
    Ok(())
}

/// Whether a class provisions for a node. Terms are alternatives; within one, every label must have one of the values.
pub(super) fn allows(class: &StorageClass, node: &NodeInfo) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let requirements = term.match_label_expressions.as_deref().unwrap_or_default();
            !requirements.is_empty()
                && requirements
                    .iter()
                    .all(|r| node.labels().and_then(|l| l.get(&r.key)).is_some_and(|v| r.values.contains(v)))
        })
}

pub(super) fn is_claimed_by(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).is_some_and(|r| {
        r.name == claim.metadata.name
            && r.namespace == claim.metadata.namespace
            && r.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// The smallest volume that suits the claim and the node; the one already meant for the claim before all others.
pub(super) fn best_match(
    delayed: &Delayed,
    node: &NodeInfo,
    taken: &[(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)],
) -> Option<Arc<PersistentVolume>> {
    let mut best: Option<&Available> = None;
    for available in &delayed.available {
        let volume = &available.volume;
        if taken.iter().any(|(t, _)| t.metadata.name == volume.metadata.name) {
            continue;
        }
        let reachable = available.affinity.as_ref().is_none_or(|a| a.matches(node));
        if is_claimed_by(volume, &delayed.claim) {
            return reachable.then(|| volume.clone());
        }
        let is_free = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available");
        let selected = delayed.selector.as_ref().is_none_or(|s| s.matches(volume.metadata.labels.as_ref()));
        if is_free
            && selected
            && reachable
            && offers_modes(volume, &delayed.claim)
            && best.is_none_or(|b| available.bytes < b.bytes)
        {
            best = Some(available);
        }
    }
    best.map(|b| b.volume.clone())
}

pub(super) fn offers_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| offered.contains(mode))
}

/// Whether a volume could ever be bound to a claim, whatever the node.
pub(super) fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str, bytes: i64) -> bool {
    let (Some(spec), Some(wanted)) = (volume.spec.as_ref(), claim.spec.as_ref()) else { return false };
    let mode = |m: &Option<String>| m.clone().unwrap_or_else(|| "Filesystem".into());
    let attributes = |a: &Option<String>| a.clone().unwrap_or_default();
    volume_class(volume) == class
        && (spec.claim_ref.is_none() || is_claimed_by(volume, claim))
        && capacity_bytes(volume) >= bytes
        && mode(&spec.volume_mode) == mode(&wanted.volume_mode)
        && attributes(&spec.volume_attributes_class_name) == attributes(&wanted.volume_attributes_class_name)
        && volume.metadata.deletion_timestamp.is_none()
}

/// What a capacity object promises for one volume.
pub(super) fn volume_limit(capacity: &CSIStorageCapacity) -> Option<i64> {
    let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())?;
    whole(limit)
}

pub(super) fn capacities(
    class: &StorageClass,
    claim: &PersistentVolumeClaim,
    objects: &Objects,
) -> Option<Vec<(Arc<CSIStorageCapacity>, LabelSelector)>> {
    let bytes = requested_bytes(claim)?;
    let driver = objects.csi_drivers.named(&class.provisioner)?;
    if driver.spec.storage_capacity != Some(true) {
        return None;
    }
    let of_class = objects.capacities.iter().filter(|c| Some(&c.storage_class_name) == class.metadata.name.as_ref());
    let enough = of_class.filter(|c| volume_limit(c).is_some_and(|limit| limit >= bytes));
    Some(
        enough.filter_map(|c| Some((c.clone(), LabelSelector::parse(Some(c.node_topology.as_ref()?)).ok()?))).collect(),
    )
}
