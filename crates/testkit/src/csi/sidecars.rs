//! What a real driver brings along in containers of its own, in so far as tests need it: a provisioner, an attacher, a resizer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions};
use csi::v1;
use csi::v1::controller_client::ControllerClient;
use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use informer::{Action, Informer, Informers, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttachmentStatus};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

use super::Driver;

const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const VOLUME_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Keys of volumes and attachments have these namespaces; no claim can.
const VOLUMES: &str = "\u{0}volumes";
const ATTACHMENTS: &str = "\u{0}attachments";

/// The sidecars of a driver, as long as this is held.
pub struct Sidecars {
    _stop: DropGuard,
    /// Caches are kept up to date as long as somebody holds these.
    _informers: Informers,
}

impl Sidecars {
    pub async fn start(client: &Client, driver: &Driver) -> Self {
        let stop = CancellationToken::new();
        let informers = Informers::new(client.clone());
        let me = Sidecar {
            client: client.clone(),
            driver: driver.name().to_owned(),
            socket: driver.socket(),
            claims: informers.of(),
            volumes: informers.of(),
            attachments: informers.of(),
            classes: informers.of(),
        };
        let queue = WorkQueue::new("sidecars", informers.clock().clone());
        informer::feed(&me.claims, &queue, |change| change.after().map(|claim| Key::of(&claim.metadata)));
        informer::feed(&me.volumes, &queue, |change| change.after().map(|one| keyed(VOLUMES, &one.metadata.name)));
        informer::feed(&me.attachments, &queue, |change| {
            change.after().map(|one| keyed(ATTACHMENTS, &one.metadata.name))
        });
        futures::join!(me.claims.synced(), me.volumes.synced(), me.attachments.synced(), me.classes.synced());
        tokio::spawn(informer::run("sidecars", Arc::new(me), queue, 4, stop.clone()));
        Self { _stop: stop.drop_guard(), _informers: informers }
    }
}

fn keyed(namespace: &str, name: &Option<String>) -> Key {
    Key::new(namespace, name.clone().unwrap_or_default())
}

pub(super) struct Sidecar {
    pub(super) client: Client,
    driver: String,
    socket: std::path::PathBuf,
    claims: Informer<PersistentVolumeClaim>,
    pub(super) volumes: Informer<PersistentVolume>,
    attachments: Informer<VolumeAttachment>,
    classes: Informer<StorageClass>,
}

/// Why something has to be tried again.
#[derive(Debug)]
pub(super) struct Failed(String);

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Reconciler for Sidecar {
    type Error = Failed;

    async fn reconcile(&self, key: &Key) -> Result<Action, Failed> {
        let work = async {
            match key.namespace.as_str() {
                VOLUMES => self.volume(&Key::cluster(&key.name)).await,
                ATTACHMENTS => self.attachment(&Key::cluster(&key.name)).await,
                _ => self.claim(key).await,
            }
        };
        // A real sidecar gives its driver seconds too; tests make drivers hang.
        let done = tokio::time::timeout(Duration::from_secs(15), work).await;
        let done = done.unwrap_or_else(|_| Err(Failed("the driver does not answer".to_owned())));
        // A test that waits in vain shows why.
        done.map(|()| Action::Done).inspect_err(|error| eprintln!("sidecar: {key:?}: {error}"))
    }
}

impl Sidecar {
    pub(super) fn driver(&self) -> &str {
        &self.driver
    }

    pub(super) fn controller(&self) -> Result<ControllerClient<Channel>, Failed> {
        Ok(ControllerClient::new(csi::channel(&self.socket)?))
    }

    async fn claim(&self, key: &Key) -> Result<(), Failed> {
        let Some(claim) = self.claims.get(key) else { return Ok(()) };
        let annotation = |name: &str| claim.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        let spec = claim.spec.clone().unwrap_or_default();
        if spec.volume_name.as_ref().is_some_and(|name| !name.is_empty()) {
            return self.grow(&claim).await;
        }
        if annotation(PROVISIONER).as_deref() != Some(&self.driver) || claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let class = spec.storage_class_name.clone().unwrap_or_default();
        let Some(class) = self.classes.get(&Key::cluster(&class)) else {
            return Err(Failed(format!("class {class} is not known yet")));
        };
        let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
        if waits && annotation(SELECTED_NODE).is_none() {
            return Ok(());
        }
        let name = format!("pvc-{}", claim.metadata.uid.clone().unwrap_or_default());
        if self.volumes.get(&Key::cluster(&name)).is_some() {
            return Ok(());
        }
        let request = v1::CreateVolumeRequest {
            name: name.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: requested(&claim), limit_bytes: 0 }),
            volume_capabilities: vec![capability(&spec.volume_mode, &spec.access_modes.clone().unwrap_or_default())],
            parameters: class.parameters.clone().unwrap_or_default(),
            ..Default::default()
        };
        let made = self.controller()?.create_volume(request).await?.into_inner().volume.unwrap_or_default();
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: self.driver}, "finalizers": [VOLUME_FINALIZER]},
            "spec": {
                "capacity": {"storage": made.capacity_bytes.to_string()},
                "accessModes": spec.access_modes, "volumeMode": spec.volume_mode, "storageClassName": spec.storage_class_name,
                "mountOptions": class.mount_options,
                "persistentVolumeReclaimPolicy": class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
                "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": key.namespace, "name": key.name, "uid": claim.metadata.uid},
                "csi": {"driver": self.driver, "volumeHandle": made.volume_id, "volumeAttributes": made.volume_context,
                        "fsType": class.parameters.as_ref().and_then(|all| all.get("csi.storage.k8s.io/fstype"))},
            },
        });
        match self.client.create(&serde_json::from_value::<PersistentVolume>(volume)?).await {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn volume(&self, key: &Key) -> Result<(), Failed> {
        let Some(volume) = self.volumes.get(key) else { return Ok(()) };
        let spec = volume.spec.clone().unwrap_or_default();
        let Some(source) = spec.csi.filter(|source| source.driver == self.driver) else { return Ok(()) };
        let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
        if !released || spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete") {
            return Ok(());
        }
        // As the real one does: a volume that is attached is not deleted.
        let attached = self.attachments.list();
        if attached.iter().any(|one| one.spec.source.persistent_volume_name == volume.metadata.name) {
            return Err(Failed("persistentvolume is still attached to node".to_owned()));
        }
        let request = v1::DeleteVolumeRequest { volume_id: source.volume_handle, ..Default::default() };
        self.controller()?.delete_volume(request).await?;
        let gone = self.client.delete::<PersistentVolume>("", &key.name, &DeleteOptions::default()).await;
        if let Err(error) = gone
            && !error.is_not_found()
        {
            return Err(error.into());
        }
        let Ok(mut left) = self.client.get::<PersistentVolume>("", &key.name).await else { return Ok(()) };
        left.metadata.finalizers.get_or_insert_default().retain(|one| one != VOLUME_FINALIZER);
        self.client.update(&left).await?;
        Ok(())
    }

    async fn attachment(&self, key: &Key) -> Result<(), Failed> {
        let Some(mut attachment) = self.attachments.get(key).map(|one| VolumeAttachment::clone(&one)) else {
            return Ok(());
        };
        if attachment.spec.attacher != self.driver {
            return Ok(());
        }
        let finalizer = format!("external-attacher/{}", self.driver);
        let name = attachment.spec.source.persistent_volume_name.clone().unwrap_or_default();
        let volume: PersistentVolume = self.client.get("", &name).await?;
        let spec = volume.spec.clone().unwrap_or_default();
        let handle = spec.csi.clone().map(|source| source.volume_handle).unwrap_or_default();
        let node = attachment.spec.node_name.clone();
        if attachment.metadata.deletion_timestamp.is_some() {
            let request =
                v1::ControllerUnpublishVolumeRequest { volume_id: handle, node_id: node, ..Default::default() };
            self.controller()?.controller_unpublish_volume(request).await?;
            attachment.metadata.finalizers.get_or_insert_default().retain(|one| *one != finalizer);
            self.client.update(&attachment).await?;
            return Ok(());
        }
        if attachment.status.as_ref().is_some_and(|status| status.attached) {
            return Ok(());
        }
        if !attachment.metadata.finalizers.get_or_insert_default().contains(&finalizer) {
            attachment.metadata.finalizers.get_or_insert_default().push(finalizer);
            attachment = self.client.update(&attachment).await?;
        }
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: handle,
            node_id: node,
            volume_capability: Some(capability(&spec.volume_mode, &spec.access_modes.clone().unwrap_or_default())),
            ..Default::default()
        };
        let answer = self.controller()?.controller_publish_volume(request).await;
        let mut status = VolumeAttachmentStatus::default();
        match &answer {
            Ok(answer) => {
                status.attached = true;
                status.attachment_metadata = Some(answer.get_ref().publish_context.clone());
            }
            Err(error) => {
                let error = json!({"message": error.to_string(), "time": jiff::Timestamp::now().to_string()});
                status.attach_error = Some(serde_json::from_value(error)?);
            }
        }
        attachment.status = Some(status);
        self.client.update_status(&attachment).await?;
        answer?;
        Ok(())
    }
}

pub(super) fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    bytes(requests)
}

pub(super) fn bytes(
    amounts: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> i64 {
    let amount = amounts.and_then(|all| all.get("storage")?.0.parse::<machinery::quantity::Quantity>().ok());
    amount.map_or(0, |amount| amount.value())
}

fn capability(mode: &Option<String>, access: &[String]) -> v1::VolumeCapability {
    let access_type = match mode.as_deref() {
        Some("Block") => AccessType::Block(BlockVolume {}),
        _ => AccessType::Mount(MountVolume::default()),
    };
    let mode = match access.first().map(String::as_str) {
        Some("ReadWriteMany") => Mode::MultiNodeMultiWriter,
        Some("ReadOnlyMany") => Mode::MultiNodeReaderOnly,
        _ => Mode::SingleNodeWriter,
    };
    v1::VolumeCapability { access_type: Some(access_type), access_mode: Some(AccessMode { mode: mode.into() }) }
}
