//! From a pod that has ended to a node that has nothing of its volumes any more.

use std::path::Path;

use csi::v1;

use super::data::Data;
use super::device::remove;
use super::{Storage, layout};

impl Storage {
    /// Takes all volumes of a pod away. What fails is to be tried again: nothing is removed that a driver did not let go.
    pub(crate) async fn unmount_pod(&self, pod: &str) -> Result<(), String> {
        self.shown.lock().remove(pod);
        let mut failures = Vec::new();
        for dir in layout::published_to(&self.root, pod) {
            failures.extend(self.unpublish(&dir).await.err().map(|why| format!("{}: {why}", dir.display())));
        }
        for volume in layout::devices_to(&self.root, pod) {
            failures.extend(self.unmap(pod, &volume).await.err().map(|why| format!("{volume}: {why}")));
        }
        failures.extend(self.unmount_disks(pod).await.err());
        if !failures.is_empty() {
            // A driver that is not there wakes nobody by itself.
            return Err(failures.join("; "));
        }
        self.waiting.lock().remove(pod);
        if self.in_use.forget(pod) {
            self.status_changed.notify_one();
        }
        Ok(())
    }

    async fn unpublish(&self, dir: &Path) -> Result<(), String> {
        let target = layout::mount(dir);
        let Some(data) = Data::load(dir) else {
            // Nothing was asked of a driver before the record was written.
            return self.remove_published(dir, &target);
        };
        let _turn = self.locks.turn(&data.driver, &data.handle).await;
        let driver = self.registered(&data.driver)?;
        let target_path = target.to_string_lossy().into_owned();
        let request = v1::NodeUnpublishVolumeRequest { volume_id: data.handle.clone(), target_path };
        driver.unpublish(request).await.map_err(|e| e.to_string())?;
        if is_mounted(&target)? {
            return Err("the driver says that it is unpublished, and it is mounted".to_owned());
        }
        self.published.lock().remove(&target);
        let staged = layout::staged(&self.root, &data.driver, &data.handle).map_err(|e| e.to_string())?;
        if !data.is_ephemeral() && !self.has_other_mount(&data, dir) && staged.exists() {
            self.unstage(&driver, &data, &staged).await?;
        }
        self.remove_published(dir, &target)
    }

    /// The record goes last: as long as it is there, everything is tried again.
    pub(super) fn remove_published(&self, dir: &Path, target: &Path) -> Result<(), String> {
        if is_mounted(target)? {
            return Err("something is mounted there that nobody has a record of".to_owned());
        }
        remove(target)?;
        Data::forget(dir)?;
        remove(dir)
    }

    async fn unstage(&self, driver: &csi::Driver, data: &Data, staged: &Path) -> Result<(), String> {
        let target = layout::global_mount(staged);
        // A driver that does not stage was never asked to.
        if Data::load(staged).is_some() {
            self.ask_to_unstage(driver, data, &target).await?;
        }
        remove_staged(staged)
    }

    pub(super) async fn ask_to_unstage(&self, driver: &csi::Driver, data: &Data, target: &Path) -> Result<(), String> {
        let volume = (data.driver.clone(), data.handle.clone());
        self.staged.lock().remove(&volume);
        self.refusals.lock().remove(&volume);
        let staging_target_path = target.to_string_lossy().into_owned();
        let request = v1::NodeUnstageVolumeRequest { volume_id: data.handle.clone(), staging_target_path };
        driver.unstage(request).await.map_err(|e| e.to_string())
    }

    pub(super) fn registered(&self, name: &str) -> Result<csi::Driver, String> {
        let missing = || {
            format!(
                "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: driver name {name} not found in the list of registered CSI drivers"
            )
        };
        self.drivers.get(name).ok_or_else(missing)
    }

    /// Whether another pod's record is about the volume too.
    pub(super) fn has_other_mount(&self, data: &Data, dir: &Path) -> bool {
        let others = layout::all_published(&self.root).into_iter().filter(|other| other != dir);
        others.filter_map(|other| Data::load(&other)).any(|other| other.is_same_volume(data))
    }
}

/// Removes what there is of a volume that is not staged. Its record goes last.
pub(super) fn remove_staged(staged: &Path) -> Result<(), String> {
    let target = layout::global_mount(staged);
    if is_mounted(&target)? {
        return Err("the driver says that it is not staged, and it is mounted".to_owned());
    }
    remove(&target)?;
    Data::forget(staged)?;
    remove(staged)
}

pub(super) fn is_mounted(path: &Path) -> Result<bool, String> {
    node::mounts::is_mounted(path).map_err(|e| e.to_string())
}
