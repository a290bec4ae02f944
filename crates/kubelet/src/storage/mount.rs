//! From a volume that a pod wants to a directory that its containers can see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use csi::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, SecretReference, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};

use super::data::Data;
use super::source::about_pod;
use super::unmount::remove_staged;
use super::{Grown, Source, Storage, layout, node_object};
use crate::pod::spec;
use crate::shared::tokens::Tokens;
use crate::volumes;

/// How often volumes are published again whose driver wants that.
const REPUBLISH: Duration = Duration::from_secs(60);
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A volume that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The directory, or the device.
    pub(crate) path: PathBuf,
    /// When it has to be published again.
    pub(crate) due: Option<Timestamp>,
    pub(crate) grown: Grown,
}

impl Mounted {
    /// One that stays as it is.
    pub(crate) fn still(path: PathBuf) -> Self {
        Self { path, due: None, grown: Grown::No }
    }
}

/// Why a volume is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotMounted {
    /// It is not attached yet. The pod's worker hears of that.
    Waiting,
    /// It will not be attached: its driver says that the node has no room for one more.
    Exhausted,
    /// Which step failed, and why.
    Failed { step: &'static str, why: String },
}

/// Where its driver is asked to stage the volume.
const STAGE: &str = "MountVolume.MountDevice failed";
/// Where its driver is asked to publish the volume.
const PUBLISH: &str = "MountVolume.SetUp failed";
const EXPAND: &str = "MountVolume.Setup failed while expanding volume";
/// Where its driver is asked to make it larger while pods have it.
pub(super) const EXPAND_ONLINE: &str = "NodeExpandVolume.NodeExpandVolume failed";

/// What a pod is told whose volume is another's alone.
pub(super) const TAKEN: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

pub(super) fn failed(step: &'static str) -> impl Fn(String) -> NotMounted {
    move |why| NotMounted::Failed { step, why }
}

/// Why a volume is not staged.
pub(super) struct NotStaged {
    pub(super) why: String,
    /// Whether nothing was done, and nothing goes on in the driver: there is nothing to unstage.
    has_ended: bool,
}

/// What fails before a driver is asked.
impl From<String> for NotStaged {
    fn from(why: String) -> Self {
        Self { why, has_ended: true }
    }
}

/// The code by which drivers say that a node takes no more volumes.
const RESOURCE_EXHAUSTED: i32 = 8;

/// Whether a driver says anew how many volumes a node takes.
fn updates_limits(driver: Option<&CSIDriver>) -> bool {
    driver.and_then(|driver| driver.spec.node_allocatable_update_period_seconds).is_some_and(|period| period > 0)
}

/// What was found out about a volume before its driver is asked for it.
pub(super) struct Known {
    pub(super) driver: csi::Driver,
    pub(super) abilities: csi::Abilities,
    pub(super) object: Option<Arc<CSIDriver>>,
    /// What the attaching came to.
    pub(super) context: BTreeMap<String, String>,
}

impl Storage {
    /// Mounts a volume for a pod. May be called again for one that is there.
    pub(crate) async fn mount(&self, pod: &Pod, source: &Source, tokens: &Tokens) -> Result<Mounted, NotMounted> {
        let step = if source.ephemeral { PUBLISH } else { STAGE };
        let dir =
            layout::published(&self.root, spec::uid(pod), &source.name).map_err(|e| failed(PUBLISH)(e.to_string()))?;
        let target = layout::mount(&dir);
        let object = self.object(&source.driver).await;
        let source = &source.labelled_by(object.as_deref());
        let republish = object.as_ref().is_some_and(|object| object.spec.requires_republish == Some(true));
        // What is there needs no driver: one that is being replaced disturbs no pod that runs.
        if !republish && let Some(mounted) = self.there(source, &target) {
            return Ok(mounted);
        }
        let before = self.published.lock().contains_key(&target);
        let is_first = Data::load(&dir).is_none();
        if is_first {
            self.wait_no_more(pod, source, object.as_deref());
        }
        let known = self.known(pod, source, object, step).await?;
        let group = volumes::fs_group(pod);
        let _turn = self.locks.turn(&source.driver, &source.handle).await;
        let record = self.record(source);
        if source.is_exclusive() && self.has_other_mount(&record, &dir) {
            return Err(failed(PUBLISH)(TAKEN.to_owned()));
        }
        record.save(&dir).map_err(|e| failed(step)(format!("failed to save volume info data: {e}")))?;
        let staging = if source.ephemeral || !known.abilities.stage {
            String::new()
        } else {
            let staged =
                layout::staged(&self.root, &source.driver, &source.handle).map_err(|e| failed(STAGE)(e.to_string()))?;
            match self.stage(source, &known, &staged, group).await {
                Ok(path) => path,
                Err(refused) => {
                    // The record goes, unless something is there: then it is taken down with the pod.
                    if is_first
                        && refused.has_ended
                        && let Err(why) = self.remove_published(&dir, &target)
                    {
                        tracing::warn!(volume = source.name, why, "the record of a volume that is not staged stays");
                    }
                    return Err(failed(STAGE)(refused.why));
                }
            }
        };
        let (context, secrets) =
            self.context_and_secrets(pod, source, &known, tokens).await.map_err(failed(PUBLISH))?;
        let request = v1::NodePublishVolumeRequest {
            volume_id: source.handle.clone(),
            publish_context: known.context.clone(),
            staging_target_path: staging.clone(),
            target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(source.capability(known.abilities, group)),
            readonly: source.read_only,
            secrets,
            volume_context: context,
        };
        if !before || republish {
            known.driver.publish(request).await.map_err(|e| failed(PUBLISH)(e.to_string()))?;
        }
        if !before && source.takes_group(known.abilities, known.object.as_deref()) {
            volumes::give_to_group(pod, &target)
                .await
                .map_err(|e| failed(PUBLISH)(format!("applyFSGroup failed for vol {}: {e}", source.handle)))?;
        }
        let step = if before { EXPAND_ONLINE } else { EXPAND };
        let paths = (&*target.to_string_lossy(), staging.as_str());
        let grown = self.expand(source, &known, paths, before).await.map_err(failed(step))?;
        Ok(self.shown(source, target, grown, republish))
    }

    /// A volume that is where it should be, and as large.
    pub(super) fn there(&self, source: &Source, target: &Path) -> Option<Mounted> {
        let had = *self.published.lock().get(target)?;
        if source.growth.as_ref().is_some_and(|growth| growth.is_due(had)) {
            return None;
        }
        Some(Mounted::still(target.to_owned()))
    }

    /// Remembers a volume that was published just now, or grew.
    pub(super) fn shown(&self, source: &Source, path: PathBuf, grown: Grown, republish: bool) -> Mounted {
        let mut published = self.published.lock();
        let bytes = published.entry(path.clone()).or_insert(source.bytes);
        if grown == Grown::Yes {
            *bytes = source.bytes;
        }
        let due = republish.then(|| informer::clock::add(self.clock.now(), REPUBLISH));
        Mounted { due, path, grown }
    }

    /// The driver, and that the volume is attached where it has to be.
    pub(super) async fn known(
        &self,
        pod: &Pod,
        source: &Source,
        object: Option<Arc<CSIDriver>>,
        step: &'static str,
    ) -> Result<Known, NotMounted> {
        let attachable = source.is_attachable(object.as_deref());
        if attachable && !self.is_attached(pod, &source.unique_name()) {
            let exhausted = updates_limits(object.as_deref()) && self.is_exhausted(source).await;
            return Err(if exhausted { NotMounted::Exhausted } else { NotMounted::Waiting });
        }
        let Some(driver) = self.drivers.get(&source.driver) else {
            // Its registration is heard of.
            self.wait(spec::uid(pod));
            let made = if source.ephemeral {
                "mounter.SetUpAt failed to get CSI client"
            } else {
                "attacher.MountDevice failed to create newCsiDriverClient"
            };
            let name = &source.driver;
            let why = format!(
                "kubernetes.io/csi: {made}: driver name {name} not found in the list of registered CSI drivers"
            );
            return Err(failed(step)(why));
        };
        if let Some(why) = source.unsupported(object.as_deref()) {
            let why = format!("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {why}");
            return Err(failed(PUBLISH)(why));
        }
        let context =
            if attachable { self.publish_context(source).await.map_err(failed(step))? } else { BTreeMap::new() };
        let abilities = driver.abilities().await.map_err(|e| failed(step)(e.to_string()))?;
        Ok(Known { driver, abilities, object, context })
    }

    /// A volume that the pod waited for needs no attaching any more, and nothing was asked of its driver yet: whoever attached it may
    /// detach it. One that the pod has stays as it was mounted.
    pub(super) fn wait_no_more(&self, pod: &Pod, source: &Source, object: Option<&CSIDriver>) {
        if !source.is_attachable(object) && self.in_use.release(&source.unique_name(), spec::uid(pod)) {
            self.status_changed.notify_one();
        }
    }

    /// Whether the node's status says both that the volume is in use, so that nobody detaches it, and that it is attached.
    pub(super) fn is_attached(&self, pod: &Pod, name: &str) -> bool {
        // Before looking: what changes after that is heard of.
        self.wait(spec::uid(pod));
        if self.in_use.add(name, spec::uid(pod)) {
            self.status_changed.notify_one();
        }
        let node = self.me.get(&informer::Key::cluster(&self.node));
        let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
        let in_use = status.volumes_in_use.iter().flatten().any(|one| *one == name);
        let attached = status.volumes_attached.iter().flatten().any(|one| one.name == name);
        in_use && attached
    }

    /// Whether the driver gave up attaching the volume because the node has as many as it takes. What is known of that is brought up to date, so
    /// that the scheduler looks elsewhere.
    async fn is_exhausted(&self, source: &Source) -> bool {
        let name = csi::names::attachment(&source.handle, &source.driver, &self.node);
        let Ok(attachment) = self.client.get::<VolumeAttachment>("", &name).await else { return false };
        let error = attachment.status.and_then(|status| status.attach_error);
        if error.and_then(|error| error.error_code) != Some(RESOURCE_EXHAUSTED) {
            return false;
        }
        if let Some(driver) = self.drivers.get(&source.driver) {
            let info = match driver.info().await {
                Ok(about) => node_object::install(&self.client, &self.node, &source.driver, &about).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = info {
                tracing::warn!(driver = source.driver, why, "what a node takes of volumes is not known anew");
            }
        }
        true
    }

    async fn publish_context(&self, source: &Source) -> Result<BTreeMap<String, String>, String> {
        let name = csi::names::attachment(&source.handle, &source.driver, &self.node);
        let found = self.client.get::<VolumeAttachment>("", &name).await;
        let found =
            found.map_err(|e| format!("volume {} has GET error for volume attachment {name}: {e}", source.handle))?;
        let status = found.status.unwrap_or_default();
        if !status.attached {
            return Err(format!("volume {} is not attached for volume attachment {name}", source.handle));
        }
        Ok(status.attachment_metadata.unwrap_or_default())
    }

    fn record(&self, source: &Source) -> Data {
        Data {
            handle: source.handle.clone(),
            driver: source.driver.clone(),
            volume: source.name.clone(),
            node_name: self.node.clone(),
            attachment: csi::names::attachment(&source.handle, &source.driver, &self.node),
            volume_lifecycle_mode: source.lifecycle().to_owned(),
        }
    }

    /// Stages a volume, once for all pods; answers where. The volume's lock is held.
    async fn stage(
        &self,
        source: &Source,
        known: &Known,
        staged: &Path,
        group: Option<u32>,
    ) -> Result<String, NotStaged> {
        let target = layout::global_mount(staged);
        let path = target.to_string_lossy().into_owned();
        if let Some(label) = self.staged_as(source) {
            if label != source.label {
                let [one, other] = [&label, &source.label].map(|label| label.clone().unwrap_or_default());
                let name = &source.name;
                return Err(format!("conflicting SELinux labels of volume {name:?}: {one:?} and {other:?}").into());
            }
            return Ok(path);
        }
        std::fs::create_dir_all(&target)
            .map_err(|e| format!("kubernetes.io/csi: attacher.MountDevice failed to create dir {path:?}:  {e}"))?;
        let record = Data { handle: source.handle.clone(), driver: source.driver.clone(), ..Data::default() };
        // A record from before may be of a mount that is there, or of a call that goes on in the driver.
        let is_first = Data::load(staged).is_none();
        record.save(staged).map_err(|e| format!("kubernetes.io/csi: failed to save volume info data: {e}"))?;
        match self.ask_to_stage(source, known, &target, group).await {
            Err(refused) if is_first && refused.has_ended => {
                // What is mounted all the same has to be unstaged.
                Err(NotStaged { has_ended: remove_staged(staged).is_ok(), ..refused })
            }
            asked => asked.map(|()| path),
        }
    }

    /// With which label the volume was staged, if it was.
    pub(super) fn staged_as(&self, source: &Source) -> Option<Option<String>> {
        self.staged.lock().get(&(source.driver.clone(), source.handle.clone())).cloned()
    }

    pub(super) async fn ask_to_stage(
        &self,
        source: &Source,
        known: &Known,
        target: &Path,
        group: Option<u32>,
    ) -> Result<(), NotStaged> {
        let secrets = self.secrets("NodeStageSecretRef", source.stage_secret.as_ref()).await?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: source.handle.clone(),
            publish_context: known.context.clone(),
            staging_target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(source.capability(known.abilities, group)),
            secrets,
            volume_context: source.attributes.clone(),
        };
        let asked = known.driver.stage(request).await;
        asked.map_err(|error| NotStaged { why: error.to_string(), has_ended: error.is_final() })?;
        self.staged.lock().insert((source.driver.clone(), source.handle.clone()), source.label.clone());
        Ok(())
    }

    /// What goes with publishing: the volume's attributes with what the driver wants to know of the pod, and secrets.
    pub(super) async fn context_and_secrets(
        &self,
        pod: &Pod,
        source: &Source,
        known: &Known,
        tokens: &Tokens,
    ) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>), String> {
        let mut context = source.attributes.clone();
        let mut secrets = self.secrets("NodePublishSecretRef", source.publish_secret.as_ref()).await?;
        let Some(object) = &known.object else { return Ok((context, secrets)) };
        if object.spec.pod_info_on_mount == Some(true) {
            context.extend(about_pod(pod, source.ephemeral));
        }
        let requests = object.spec.token_requests.as_deref().unwrap_or_default();
        if !requests.is_empty() {
            let mut made = serde_json::Map::new();
            for request in requests {
                let wanted = ServiceAccountTokenProjection {
                    audience: Some(request.audience.clone()),
                    expiration_seconds: request.expiration_seconds,
                    ..ServiceAccountTokenProjection::default()
                };
                let token = tokens.get(pod, &wanted).await?;
                let status =
                    serde_json::json!({"token": token.value, "expirationTimestamp": token.expires.to_string()});
                made.insert(request.audience.clone(), status);
            }
            let text = serde_json::Value::Object(made).to_string();
            let into =
                if object.spec.service_account_token_in_secrets == Some(true) { &mut secrets } else { &mut context };
            into.insert(TOKENS.to_owned(), text);
        }
        Ok((context, secrets))
    }

    pub(super) async fn secrets(
        &self,
        what: &str,
        reference: Option<&SecretReference>,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(reference) = reference else { return Ok(BTreeMap::new()) };
        let (namespace, name) =
            (reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default());
        let secret = self.secret_of(&namespace, &name).await;
        secret.map_err(|e| format!("fetching {what} {namespace}/{name} failed: {e}"))
    }

    pub(super) async fn secret_of(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, String>, client::Error> {
        let secret = self.client.get::<Secret>(namespace, name).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(secret.data.iter().flatten().map(|(key, value)| (key.clone(), text(&value.0))).collect())
    }
}
