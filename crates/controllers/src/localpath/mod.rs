//! Local-path provisioner: claims of the default StorageClass get a directory on the node of their first pod.
//!
//! The directory itself is made by the kubelet when the pod starts, because the volume says `DirectoryOrCreate`. What is in it stays on the node when the volume is
//! deleted: removing it is the node's affair. Not upstream's; clusters without any storage would otherwise not run a StatefulSet.

use std::collections::BTreeMap;

use client::{Client, DeleteOptions};
use informer::events::reference;
use informer::{Action, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;
use crate::volumebinder::SELECTED_NODE;

const WORKERS: usize = 2;
const PROVISIONER: &str = "trireme.io/local-path";
const CLASS: &str = "local-path";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Keys of volumes have this namespace; no claim can.
const VOLUMES: &str = "\u{0}volumes";

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = LocalPath {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
        classes: context.informers.of(),
        nodes: context.informers.of(),
        root: context.config.local_path_root.clone(),
    };
    let queue = context.queue();
    informer::feed(&controller.claims, &queue, |change| change.after().map(|claim| claim.metadata.key()));
    informer::feed(&controller.volumes, &queue, |change| {
        change.after().map(|volume| Key::new(VOLUMES, volume.metadata.name()))
    });
    futures::join!(
        controller.claims.synced(),
        controller.volumes.synced(),
        controller.classes.synced(),
        controller.nodes.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct LocalPath {
    client: Client,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    root: String,
}

impl Reconciler for LocalPath {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if key.namespace == VOLUMES {
            if let Some(volume) = self.volumes.get(&Key::cluster(&key.name)).filter(|volume| is_over(volume)) {
                let options = DeleteOptions { uid: volume.metadata.uid.clone(), ..DeleteOptions::default() };
                match self.client.delete::<PersistentVolume>("", &key.name, &options).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Action::Done);
        }
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let Some(class) = self.class_of(&claim) else { return Ok(Action::Done) };
        let Some(node) = claim.metadata.annotation(SELECTED_NODE) else { return Ok(Action::Done) };
        let Some(node) = self.nodes.get(&Key::cluster(node)) else { return Ok(Action::Done) };
        let volume = volume_for(&claim, &class, &node, &self.root);
        match self.client.create(&volume).await {
            Ok(created) => {
                let message = format!("Successfully provisioned volume {}", created.metadata.name());
                self.recorder.event(&*claim, EventType::Normal, "ProvisioningSucceeded", message);
                Ok(Action::Done)
            }
            Err(error) if error.is_already_exists() => Ok(Action::Done),
            Err(error) => {
                let message =
                    format!("failed to provision volume with StorageClass {:?}: {error}", class.metadata.name());
                self.recorder.event(&*claim, EventType::Warning, "ProvisioningFailed", message);
                Err(error.into())
            }
        }
    }
}

impl LocalPath {
    /// The claim's class, if the claim still needs a volume and the class is this provisioner's.
    fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<StorageClass> {
        let spec = claim.spec.as_ref()?;
        let unbound = spec.volume_name.as_deref().unwrap_or_default().is_empty() && !claim.metadata.is_deleting();
        let class = self.classes.get(&Key::cluster(spec.storage_class_name.as_deref()?))?;
        (unbound && class.provisioner == PROVISIONER).then(|| StorageClass::clone(&class))
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
        ..StorageClass::default()
    }
}

/// A volume of this provisioner whose claim is gone and that is not to be kept.
fn is_over(volume: &PersistentVolume) -> bool {
    let own = volume.metadata.annotation(PROVISIONED_BY) == Some(PROVISIONER);
    let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    own && released && policy == Some("Delete") && !volume.metadata.is_deleting()
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
