//! Which volume a claim gets, and which volumes go.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use informer::events::reference;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::MetaExt;
use crate::common::storage;

const PROVISIONER: &str = "trireme.io/local-path";
const CLASS: &str = "local-path";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A claim and what belongs to it.
pub(super) struct Observed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// The volume it is bound to.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) class: Option<Arc<StorageClass>>,
    /// The node that the scheduler chose for it.
    pub(super) node: Option<Arc<Node>>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Provision(Box<PersistentVolume>),
    /// The volume, unless it is large enough, and the claim as they should be.
    Grow {
        volume: Option<Box<PersistentVolume>>,
        claim: Box<PersistentVolumeClaim>,
    },
}

pub(super) fn plan(observed: &Observed, root: &str) -> Plan {
    let Observed { claim, volume, class, node } = observed;
    if let Some(volume) = volume.as_ref().filter(|volume| is_own(volume)) {
        return grow(claim, volume);
    }
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_some_and(|name| !name.is_empty());
    match (class, node) {
        (Some(class), Some(node)) if !bound && !claim.metadata.is_deleting() && class.provisioner == PROVISIONER => {
            Plan::Provision(Box::new(volume_for(claim, class, node, root)))
        }
        _ => Plan::Keep,
    }
}

fn grow(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan {
    let wanted = storage::requested(claim);
    if wanted <= storage::granted(claim) {
        return Plan::Keep;
    }
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.clone());
    let larger = (storage::capacity(volume) < wanted).then(|| {
        let mut larger = volume.clone();
        larger.spec.get_or_insert_default().capacity = requests.clone();
        Box::new(larger)
    });
    let mut grown = claim.clone();
    grown.status.get_or_insert_default().capacity = requests;
    Plan::Grow { volume: larger, claim: Box::new(grown) }
}

/// The node and directory of a volume, if the provisioner made it: a volume's path is somebody else's text.
pub(super) fn place(volume: &PersistentVolume, root: &str) -> Option<(String, PathBuf)> {
    let spec = volume.spec.as_ref()?;
    let terms = &spec.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let host = terms.first()?.match_expressions.as_ref()?.first()?.values.as_ref()?.first()?;
    let path = PathBuf::from(&spec.host_path.as_ref()?.path);
    is_below(&path, root).then(|| (host.clone(), path))
}

/// Where the node that a volume is on is told to remove it; nothing if the node is gone, and the directory with it.
pub(super) fn removal(volume: &PersistentVolume, root: &str, nodes: &[Arc<Node>]) -> Option<String> {
    let (host, path) = place(volume, root)?;
    let name = path.file_name()?.to_str()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_there = |node: &&Arc<Node>| node.metadata.label(HOSTNAME).unwrap_or(node.metadata.name()) == host;
    let node = nodes.iter().find(is_there).filter(|_| name.chars().all(plain))?;
    Some(format!("/api/v1/nodes/{}/proxy/localpath/{name}", node.metadata.name()))
}

/// Whether a path is a directory right below the root, whatever it looks like.
pub(super) fn is_below(path: &Path, root: &str) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir));
    plain && path.parent() == Some(Path::new(root))
}

fn is_own(volume: &PersistentVolume) -> bool {
    volume.metadata.annotation(PROVISIONED_BY) == Some(PROVISIONER)
}

/// A volume of this provisioner whose claim is gone and that is not to be kept.
pub(super) fn is_over(volume: &PersistentVolume) -> bool {
    let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    is_own(volume) && released && policy == Some("Delete") && !volume.metadata.is_deleting()
}

/// The volume of a claim, on a node. Its name is the claim's uid: a second attempt is the same volume.
fn volume_for(claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node, root: &str) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let name = format!("pvc-{}", claim.metadata.uid());
    let path = format!("{root}/{name}_{}_{}", claim.metadata.namespace(), claim.metadata.name());
    let host = node.metadata.label(HOSTNAME).unwrap_or(node.metadata.name()).to_owned();
    let requirement =
        NodeSelectorRequirement { key: HOSTNAME.to_owned(), operator: "In".to_owned(), values: Some(vec![host]) };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(reference(claim)),
            host_path: Some(HostPathVolumeSource { path, type_: Some("DirectoryOrCreate".to_owned()) }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone(),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// The StorageClass of this provisioner, as the default one. Whoever sets a cluster up creates it: the controller's own role only reads classes.
pub fn default_storage_class() -> StorageClass {
    let annotations = BTreeMap::from([(DEFAULT_CLASS.to_owned(), "true".to_owned())]);
    StorageClass {
        metadata: ObjectMeta { name: Some(CLASS.to_owned()), annotations: Some(annotations), ..ObjectMeta::default() },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        allow_volume_expansion: Some(true),
        ..StorageClass::default()
    }
}
