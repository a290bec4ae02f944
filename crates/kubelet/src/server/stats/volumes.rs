//! What volumes take of the disk. Adding a volume up means looking at every file in it, so a result is kept for a while.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::types::VolumeStats;

/// One volume of a pod on the disk: its name and where it is.
type Place = (String, PathBuf);

#[derive(Debug)]
struct Measured {
    at: Timestamp,
    volumes: Vec<VolumeStats>,
}

/// Results, by the pod's uid.
#[derive(Debug)]
pub struct Volumes {
    period: Duration,
    kept: Mutex<HashMap<String, Measured>>,
}

impl Volumes {
    /// Results are good for this long.
    pub fn new(period: Duration) -> Self {
        Self { period, kept: Mutex::default() }
    }

    /// The volumes of these pods, in their order. `root` is where pods are.
    pub async fn of(&self, root: &Path, uids: &[String], now: Timestamp) -> Vec<Vec<VolumeStats>> {
        let due: Vec<(String, PathBuf)> = {
            let mut kept = self.kept.lock();
            kept.retain(|uid, _| uids.contains(uid));
            let fresh = |measured: &Measured| informer::clock::since(now, measured.at) < self.period;
            let due = uids.iter().filter(|uid| !kept.get(*uid).is_some_and(fresh));
            due.map(|uid| (uid.clone(), crate::volumes::pod_dir(root, uid).join("volumes"))).collect()
        };
        let measured = tokio::task::spawn_blocking(move || -> Vec<(String, Vec<VolumeStats>)> {
            due.into_iter().map(|(uid, dir)| (uid, measure(&dir, now))).collect()
        });
        // A panic while measuring would leave the figures of before, which is better than none.
        let measured = measured.await.unwrap_or_default();
        let mut kept = self.kept.lock();
        kept.extend(measured.into_iter().map(|(uid, volumes)| (uid, Measured { at: now, volumes })));
        uids.iter().map(|uid| kept.get(uid).map(|measured| measured.volumes.clone()).unwrap_or_default()).collect()
    }
}

fn measure(dir: &Path, now: Timestamp) -> Vec<VolumeStats> {
    let mut volumes: Vec<VolumeStats> = places(dir)
        .into_iter()
        .filter_map(|(name, path)| {
            let used = node::files::usage(&path).ok()?;
            let disk = super::fs(&path, now)?;
            Some(VolumeStats { name, fs: super::Fs { used_bytes: used.bytes, inodes_used: used.inodes, ..disk } })
        })
        .collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    volumes
}

/// Volumes lie in a folder per plugin.
fn places(dir: &Path) -> Vec<Place> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    below(dir.to_owned())
        .flat_map(|plugin| below(plugin.path()))
        .map(|volume| (volume.file_name().to_string_lossy().into_owned(), volume.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn volumes_are_added_up_once_in_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("pods/u/volumes/kubernetes.io~empty-dir/data");
        std::fs::create_dir_all(&volume).unwrap();
        let volumes = Volumes::new(Duration::from_secs(60));
        let at = |second| Timestamp::from_second(second).unwrap();
        let used = async |second| {
            let found = volumes.of(dir.path(), &["u".to_owned(), "other".to_owned()], at(second)).await;
            assert!(found[0][0].name == "data" && found[1].is_empty());
            found[0][0].fs.used_bytes
        };
        let empty = used(0).await;
        std::fs::write(volume.join("file"), vec![1; 1 << 20]).unwrap();
        assert_eq!(used(59).await, empty);
        assert!(used(60).await >= empty + (1 << 20));
    }
}
