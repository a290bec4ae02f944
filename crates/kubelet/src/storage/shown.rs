//! Volumes that outlive their pods, or are a driver's, as pods see them: by which name, for which claim, and who knows how full they are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use csi::v1;
use csi::v1::volume_usage::Unit;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::Storage;
use kubeletapi::stats::{Amount, Persistent, VolumeUsage};

/// Who knows how full a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Knows {
    Driver {
        name: String,
        handle: String,
    },
    /// The file system that it is.
    Kernel,
}

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// By which the pod calls it.
    pub(crate) name: String,
    pub(crate) claim: Option<String>,
    pub(crate) path: PathBuf,
    pub(crate) knows: Knows,
}

/// Bytes and inodes.
type Amounts = (Amount, Amount);

/// By the pod's uid.
pub(super) type AllShown = Mutex<HashMap<String, Vec<Shown>>>;

impl Storage {
    /// Remembers what a pod sees.
    pub(crate) fn show(&self, pod: &str, volumes: Vec<Shown>) {
        self.shown.lock().insert(pod.to_owned(), volumes);
    }

    async fn ask(&self, name: &str, handle: &str, path: &Path) -> Option<Amounts> {
        let driver = self.drivers.get(name)?;
        let asked = async {
            if !driver.abilities().await?.stats {
                return Ok(Vec::new());
            }
            let volume_path = path.to_string_lossy().into_owned();
            let volume_id = handle.to_owned();
            driver
                .stats(v1::NodeGetVolumeStatsRequest {
                    volume_id,
                    volume_path,
                    ..v1::NodeGetVolumeStatsRequest::default()
                })
                .await
        };
        let usages: Result<Vec<v1::VolumeUsage>, csi::Error> = asked.await;
        let usages = usages.inspect_err(|error| tracing::debug!(%error, driver = name, "volume not measured")).ok()?;
        (!usages.is_empty()).then(|| read(&usages))
    }
}

impl Persistent for Storage {
    fn usage<'a>(&'a self, pod: &'a str) -> BoxFuture<'a, Vec<VolumeUsage>> {
        let volumes = self.shown.lock().get(pod).cloned().unwrap_or_default();
        let asked = volumes.into_iter().map(async |volume| {
            let (bytes, inodes) = match &volume.knows {
                Knows::Driver { name, handle } => self.ask(name, handle, &volume.path).await,
                Knows::Kernel => of_file_system(&volume.path).await,
            }?;
            Some(VolumeUsage { volume: volume.name, claim: volume.claim, bytes, inodes })
        });
        futures::future::join_all(asked).map(|used| used.into_iter().flatten().collect()).boxed()
    }
}

/// What a driver said, last word last. A driver may say anything, so what is below zero counts as nothing.
fn read(usages: &[v1::VolumeUsage]) -> Amounts {
    let (mut bytes, mut inodes) = Amounts::default();
    for one in usages {
        let number = |value: i64| u64::try_from(value).unwrap_or(0);
        let amount = Amount { available: number(one.available), total: number(one.total), used: number(one.used) };
        match one.unit() {
            Unit::Bytes => bytes = amount,
            Unit::Inodes => inodes = amount,
            Unit::Unknown => {}
        }
    }
    (bytes, inodes)
}

/// A server that is gone keeps whoever looks at its file system, so that is done elsewhere.
async fn of_file_system(path: &Path) -> Option<Amounts> {
    let path = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || node::mounts::capacity(&path)).await.ok()?;
    let disk = looked.ok()?;
    let bytes = Amount { available: disk.available, total: disk.bytes, used: disk.bytes.saturating_sub(disk.free) };
    let used = disk.inodes.saturating_sub(disk.inodes_free);
    Some((bytes, Amount { available: disk.inodes_free, total: disk.inodes, used }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_says_is_sorted_by_unit_and_nonsense_counts_as_nothing() {
        let usage = |unit: Unit, available, total, used| v1::VolumeUsage { available, total, used, unit: unit.into() };
        let (bytes, inodes) =
            read(&[usage(Unit::Bytes, 6, 10, 4), usage(Unit::Inodes, -1, 3, 2), usage(Unit::Unknown, 1, 1, 1)]);
        assert_eq!(bytes, Amount { available: 6, total: 10, used: 4 });
        assert_eq!(inodes, Amount { available: 0, total: 3, used: 2 });
    }
}
