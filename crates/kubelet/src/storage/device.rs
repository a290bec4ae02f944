//! Volumes that containers see as devices. Nothing is mounted by the kubelet: a link in the pod's directory leads to what the driver
//! made, and is the record that it may have made something.

use std::path::Path;

use csi::v1;
use k8s_openapi::api::core::v1::Pod;

use super::data::Data;
use super::mount::{EXPAND_ONLINE, TAKEN, failed};
use super::{Mounted, NotMounted, Source, Storage, layout};
use crate::pod::spec;
use crate::shared::tokens::Tokens;

/// Where its driver is asked for the device.
const SET_UP: &str = "MapVolume.SetUpDevice failed";
const MAP: &str = "MapVolume.MapPodDevice failed";
const EXPAND: &str = "MapVolume.MarkVolumeAsMounted failed while expanding volume";

impl Storage {
    /// Makes a device for a pod. May be called again for one that is there.
    pub(crate) async fn map(&self, pod: &Pod, source: &Source, tokens: &Tokens) -> Result<Mounted, NotMounted> {
        let device =
            layout::device(&self.root, spec::uid(pod), &source.name).map_err(|e| failed(SET_UP)(e.to_string()))?;
        if let Some(there) = self.there(source, &device.publish) {
            return Ok(there);
        }
        let before = self.published.lock().contains_key(&device.publish);
        let object = self.object(&source.driver).await;
        if Data::load(&device.data).is_none() {
            self.wait_no_more(pod, source, object.as_deref());
        }
        let known = self.known(pod, source, object, SET_UP).await?;
        let _turn = self.locks.turn(&source.driver, &source.handle).await;
        if source.is_exclusive() && self.has_other_device(spec::uid(pod), &source.name) {
            return Err(failed(SET_UP)(TAKEN.to_owned()));
        }
        let data = Data {
            handle: source.handle.clone(),
            driver: source.driver.clone(),
            volume: source.name.clone(),
            ..Data::default()
        };
        // The link first: it is by links that the data are found again, and without data nothing was asked of a driver.
        link(&device.publish, &device.link)
            .and_then(|()| data.save(&device.data))
            .map_err(|e| failed(MAP)(e.to_string()))?;
        let mut staging = String::new();
        if known.abilities.stage {
            std::fs::create_dir_all(&device.staging).map_err(|e| failed(SET_UP)(e.to_string()))?;
            staging = device.staging.to_string_lossy().into_owned();
            if self.staged_as(source).is_none() {
                let asked = self.ask_to_stage(source, &known, &device.staging, None).await;
                asked.map_err(|refused| failed(SET_UP)(refused.why))?;
            }
        }
        if let Some(parent) = device.publish.parent() {
            std::fs::create_dir_all(parent).map_err(|e| failed(MAP)(e.to_string()))?;
        }
        let (context, secrets) = self.context_and_secrets(pod, source, &known, tokens).await.map_err(failed(MAP))?;
        let request = v1::NodePublishVolumeRequest {
            volume_id: source.handle.clone(),
            publish_context: known.context.clone(),
            staging_target_path: staging.clone(),
            target_path: device.publish.to_string_lossy().into_owned(),
            volume_capability: Some(source.capability(known.abilities, None)),
            readonly: source.read_only,
            secrets,
            volume_context: context,
        };
        if !before {
            known.driver.publish(request).await.map_err(|e| failed(MAP)(e.to_string()))?;
        }
        let step = if before { EXPAND_ONLINE } else { EXPAND };
        let paths = (&*device.publish.to_string_lossy(), staging.as_str());
        let grown = self.expand(source, &known, paths, before).await.map_err(failed(step))?;
        Ok(self.shown(source, device.publish, grown, false))
    }

    /// Takes a pod's device away, and what was staged for it when no other pod has it.
    pub(super) async fn unmap(&self, pod: &str, volume: &str) -> Result<(), String> {
        let device = layout::device(&self.root, pod, volume).map_err(|e| e.to_string())?;
        let Some(data) = Data::load(&device.data) else {
            // They come before the first question to a driver, and go after the last.
            return remove(&device.link);
        };
        let _turn = self.locks.turn(&data.driver, &data.handle).await;
        let driver = self.registered(&data.driver)?;
        let target_path = device.publish.to_string_lossy().into_owned();
        let request = v1::NodeUnpublishVolumeRequest { volume_id: data.handle.clone(), target_path };
        driver.unpublish(request).await.map_err(|e| e.to_string())?;
        self.published.lock().remove(&device.publish);
        remove(&device.publish)?;
        if !self.has_other_device(pod, volume) {
            if device.staging.exists() {
                self.ask_to_unstage(&driver, &data, &device.staging).await?;
                remove(&device.staging)?;
            }
            if let Some(parent) = device.publish.parent() {
                remove(parent)?;
            }
            Data::forget(&device.data)?;
            remove(&device.data)?;
            if let Some(parent) = device.data.parent() {
                remove(parent)?;
            }
        }
        remove(&device.link)
    }

    fn has_other_device(&self, pod: &str, volume: &str) -> bool {
        let pods = crate::volumes::pods_on_disk(&self.root);
        pods.iter().any(|other| other != pod && layout::devices_to(&self.root, other).iter().any(|one| one == volume))
    }
}

/// Makes a link that leads to `target`. One that is there leads there already.
fn link(target: &Path, link: &Path) -> std::io::Result<()> {
    if let Some(parent) = link.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::os::unix::fs::symlink(target, link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes a file, a link or an empty directory, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("remove {}: {error}", path.display());
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if found.is_dir() { std::fs::remove_dir(path).map_err(failed) } else { std::fs::remove_file(path).map_err(failed) }
}
