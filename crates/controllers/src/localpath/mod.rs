//! Local-path provisioner: claims of the default StorageClass get a directory on the node of their first pod.
//!
//! The directory itself is made by the kubelet when the pod starts, because the volume says `DirectoryOrCreate`. It is removed with its volume if it is on the machine that
//! the controllers run on; on another one it stays, for nobody there may be told to remove it. A directory has no size, so a claim that grows has grown.
//! Not upstream's; clusters without any storage would otherwise not run a StatefulSet.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

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
use crate::common::storage;
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
        directories: context.config.directories.clone(),
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
    directories: Option<Arc<dyn Directories>>,
}

impl Reconciler for LocalPath {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if key.namespace == VOLUMES {
            if let Some(volume) = self.volumes.get(&Key::cluster(&key.name)).filter(|volume| is_over(volume)) {
                self.remove_directory(&volume).await?;
                let options = DeleteOptions { uid: volume.metadata.uid.clone(), ..DeleteOptions::default() };
                match self.client.delete::<PersistentVolume>("", &key.name, &options).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Action::Done);
        }
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        if let Some(volume) = storage::bound_volume(&claim, &self.volumes).filter(|volume| is_own(volume)) {
            return self.grow(&claim, &volume).await;
        }
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

impl LocalPath {
    async fn remove_directory(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let (Some(directories), Some((node, path))) = (self.directories.clone(), place(volume)) else { return Ok(()) };
        // Only what this provisioner made: a volume's path is somebody else's text.
        if !is_below(&path, &self.root) {
            return Ok(());
        }
        let removing = tokio::task::spawn_blocking(move || directories.remove(&node, &path)).await;
        let outcome = removing.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = outcome {
            self.recorder.event(volume, EventType::Warning, "VolumeFailedDelete", error.to_string());
            return Err(Error::Waiting(format!("directory of {}: {error}", volume.metadata.name())));
        }
        Ok(())
    }

    /// First the volume, then the claim: a claim never has more than its volume.
    async fn grow(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<Action, Error> {
        let wanted = storage::requested(claim);
        if wanted <= storage::granted(claim) {
            return Ok(Action::Done);
        }
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.clone());
        if storage::capacity(volume) < wanted {
            let mut larger = volume.clone();
            larger.spec.get_or_insert_default().capacity = requests.clone();
            self.client.update(&larger).await?;
        }
        let mut grown = claim.clone();
        grown.status.get_or_insert_default().capacity = requests;
        self.client.update_status(&grown).await?;
        self.recorder.event(claim, EventType::Normal, "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(Action::Done)
    }
}

/// The machine that the controllers run on, as far as volumes on it concern them.
pub trait Directories: Send + Sync + 'static {
    /// Removes a directory with everything in it, if the node is this machine. One that is not there is removed.
    fn remove(&self, node: &str, path: &Path) -> std::io::Result<()>;
}

/// The node and directory of a volume.
fn place(volume: &PersistentVolume) -> Option<(String, PathBuf)> {
    let spec = volume.spec.as_ref()?;
    let terms = &spec.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let host = terms.first()?.match_expressions.as_ref()?.first()?.values.as_ref()?.first()?;
    Some((host.clone(), PathBuf::from(&spec.host_path.as_ref()?.path)))
}

/// Whether a path is a directory right below the root, whatever it looks like.
fn is_below(path: &Path, root: &str) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir));
    plain && path.parent() == Some(Path::new(root))
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

fn is_own(volume: &PersistentVolume) -> bool {
    volume.metadata.annotation(PROVISIONED_BY) == Some(PROVISIONER)
}

/// A volume of this provisioner whose claim is gone and that is not to be kept.
fn is_over(volume: &PersistentVolume) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_this_provisioner_are_removed() {
        let check = |path: &str| is_below(Path::new(path), "/var/lib/volumes");
        assert!(check("/var/lib/volumes/pvc-1_default_data"));
        for path in
            ["/", "/etc", "/var/lib/volumes", "/var/lib/volumes/a/b", "/var/lib/volumes/..", "/var/lib/volumes/../x"]
        {
            assert!(!check(path), "{path}");
        }
    }

    #[test]
    fn a_volume_knows_where_it_is() {
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some("data".into()),
                namespace: Some("ns".into()),
                uid: Some("u".into()),
                ..ObjectMeta::default()
            },
            ..PersistentVolumeClaim::default()
        };
        let node =
            Node { metadata: ObjectMeta { name: Some("n1".into()), ..ObjectMeta::default() }, ..Node::default() };
        let volume = volume_for(&claim, &default_storage_class(), &node, "/root");
        assert_eq!(place(&volume), Some(("n1".to_owned(), PathBuf::from("/root/pvc-u_ns_data"))));
        assert!(is_own(&volume));
    }
}
