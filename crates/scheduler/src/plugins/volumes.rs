//! What claims and volumes say about themselves: shared by the volume plugins.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSINode;
use rustc_hash::FxHashSet;

use crate::model::node::NodeInfo;
use crate::model::objects::Objects;
use crate::model::pod::{ClaimRef, PodInfo};
use crate::model::resources::whole;
use rules::migration::MIGRATED_PLUGINS;
use rules::selectors::NodeSelector;

/// Set by the volume controller once a claim and its volume point at each other.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks a volume that was chosen for its claim, as opposed to one that a person bound.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Tells provisioners on which node the pod will run.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of classes whose volumes are made by people.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The storage class of a claim; empty for none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.metadata.annotations.as_ref().and_then(|a| a.get(BETA_CLASS)).map(String::as_str);
    annotated.or(claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref())).unwrap_or_default()
}

/// The storage class of a volume; empty for none.
pub fn volume_class(volume: &PersistentVolume) -> &str {
    let annotated = volume.metadata.annotations.as_ref().and_then(|a| a.get(BETA_CLASS)).map(String::as_str);
    annotated.or(volume.spec.as_ref().and_then(|s| s.storage_class_name.as_deref())).unwrap_or_default()
}

/// The volume that a claim names; empty for none.
pub fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default()
}

/// Whether a claim has a volume and the binding is complete in both directions.
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    let completed = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(BIND_COMPLETED));
    !volume_name(claim).is_empty() && completed
}

/// Bytes that a claim requests; `None` when it does not say.
pub fn requested_bytes(claim: &PersistentVolumeClaim) -> Option<i64> {
    whole(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?)
}

/// Bytes that a volume has.
pub fn capacity_bytes(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage"));
    capacity.and_then(whole).unwrap_or(0)
}

/// The nodes that can reach a volume; `None` for all of them.
pub fn node_affinity(volume: &PersistentVolume) -> Option<NodeSelector> {
    volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref().map(NodeSelector::parse)
}

/// From where a volume can be reached.
#[derive(Clone)]
pub struct Reach {
    affinity: Option<NodeSelector>,
    by_driver: Option<ByDriver>,
}

/// What a driver says of a volume of an old name, and the nodes that leave it to the driver.
#[derive(Clone)]
struct ByDriver {
    affinity: Option<NodeSelector>,
    nodes: FxHashSet<String>,
}

impl Reach {
    pub fn of(volume: &PersistentVolume, objects: &Objects) -> Result<Self, String> {
        let Some(plugin) = rules::migration::plugin_of(volume) else {
            return Ok(Self { affinity: node_affinity(volume), by_driver: None });
        };
        let translated = rules::migration::volume(volume).map_err(|why| format!("could not translate pv: {why}"))?;
        let leaves = |node: &&Arc<CSINode>| {
            let plugins = node.metadata.annotations.as_ref().and_then(|all| all.get(MIGRATED_PLUGINS));
            plugins.is_some_and(|plugins| plugins.split(',').any(|one| one == plugin.name))
        };
        let nodes = objects.csi_nodes.iter().filter(leaves).filter_map(|node| node.metadata.name.clone()).collect();
        let by_driver = Some(ByDriver { affinity: node_affinity(&translated), nodes });
        Ok(Self { affinity: node_affinity(volume), by_driver })
    }

    pub fn includes(&self, node: &NodeInfo) -> bool {
        let driver = self.by_driver.as_ref().filter(|driver| driver.nodes.contains(node.name()));
        let affinity = driver.map_or(&self.affinity, |driver| &driver.affinity);
        affinity.as_ref().is_none_or(|affinity| affinity.matches(node))
    }
}

/// The message for an object that is not there.
pub fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

/// Whether binding waits for a pod. A class that is not there, or none, does not wait.
pub fn waits_for_consumer(claim: &PersistentVolumeClaim, objects: &Objects) -> Result<bool, String> {
    let name = claim_class(claim);
    let Some(class) = objects.storage_classes.named(name).filter(|_| !name.is_empty()) else { return Ok(false) };
    match class.volume_binding_mode.as_deref() {
        None => Err(format!("VolumeBindingMode not set for StorageClass {name:?}")),
        Some(mode) => Ok(mode == "WaitForFirstConsumer"),
    }
}

/// Checks that a claim for an ephemeral volume was made for this very pod.
pub fn is_for_pod(claim: &PersistentVolumeClaim, pod: &PodInfo) -> Result<(), String> {
    if rules::owners::controller_uid(&claim.metadata) == Some(&**pod.uid()) {
        return Ok(());
    }
    let name = |part: &Option<String>| part.clone().unwrap_or_default();
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        name(&claim.metadata.namespace),
        name(&claim.metadata.name),
        pod.namespace(),
        pod.name()
    ))
}

/// Whether a pod's volumes name this claim.
pub fn names_claim(pod: &PodInfo, claim: &PersistentVolumeClaim, ephemeral_too: bool) -> bool {
    claim.metadata.namespace.as_deref() == Some(pod.namespace())
        && pod.claim_names().any(|c| {
            (ephemeral_too || matches!(c, ClaimRef::Named(_)))
                && Some(c.name().as_str()) == claim.metadata.name.as_deref()
        })
}
