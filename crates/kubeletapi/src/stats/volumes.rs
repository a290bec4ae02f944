//! What volumes take of the disk. Adding a volume up means looking at every file in it, and a driver or a server may take its time to
//! answer, so a result is kept for a while, and whoever asks gets the last one there is.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::types::{ClaimReference, Fs, PodReference, VolumeStats};

/// How long others are waited for. What they say later is there for the next one who asks.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who knows how full the volumes of a pod are that outlive it, or are a driver's.
pub trait Persistent: Send + Sync + 'static {
    /// By the pod's uid; volumes that nobody says anything of are left out.
    fn usage<'a>(&'a self, pod: &'a str) -> BoxFuture<'a, Vec<Usage>>;
}

/// How full a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// By which the pod calls the volume.
    pub volume: String,
    pub claim: Option<String>,
    pub bytes: Amount,
    pub inodes: Amount,
}

/// Zeros for what nobody said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub available: u64,
    pub total: u64,
    pub used: u64,
}

/// One volume of a pod on the disk: its name and where it is.
type Place = (String, PathBuf);

#[derive(Debug)]
struct Measured {
    at: Timestamp,
    volumes: Vec<VolumeStats>,
}

/// Results, by the pod's uid.
type Results = HashMap<String, Measured>;

/// What drivers and file systems said, and of which pods they are being asked.
#[derive(Debug, Default)]
struct Asked {
    results: Results,
    under_way: HashSet<String>,
}

pub struct Volumes {
    period: Duration,
    kept: Mutex<Results>,
    asked: Arc<Mutex<Asked>>,
    others: Option<Arc<dyn Persistent>>,
}

impl Volumes {
    /// Results are good for this long. Of volumes that outlive pods `others` knows.
    pub fn new(period: Duration, others: Option<Arc<dyn Persistent>>) -> Self {
        Self { period, kept: Mutex::default(), asked: Arc::default(), others }
    }

    /// All volumes of these pods, in their order. `root` has a directory for each pod, by its uid.
    pub async fn of(&self, root: &Path, pods: &[PodReference], now: Timestamp) -> Vec<Vec<VolumeStats>> {
        let (own, others) = tokio::join!(self.own(root, pods, now), self.persistent(pods, now));
        let pairs = own.into_iter().zip(others);
        pairs
            .map(|(mut volumes, others)| {
                volumes.extend(others);
                volumes.sort_by(|a, b| a.name.cmp(&b.name));
                volumes
            })
            .collect()
    }

    fn is_fresh(&self, measured: Option<&Measured>, now: Timestamp) -> bool {
        measured.is_some_and(|measured| informer::clock::since(now, measured.at) < self.period)
    }

    /// Volumes that go with their pods.
    async fn own(&self, root: &Path, pods: &[PodReference], now: Timestamp) -> Vec<Vec<VolumeStats>> {
        let due: Vec<(String, PathBuf)> = {
            let mut kept = self.kept.lock();
            kept.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
            let due = pods.iter().filter(|pod| !self.is_fresh(kept.get(&pod.uid), now));
            due.map(|pod| (pod.uid.clone(), root.join(&pod.uid).join("volumes"))).collect()
        };
        let measured = tokio::task::spawn_blocking(move || -> Vec<(String, Vec<VolumeStats>)> {
            due.into_iter().map(|(uid, dir)| (uid, measure(&dir, now))).collect()
        });
        // A panic while measuring would leave the figures of before, which is better than none.
        let measured = measured.await.unwrap_or_default();
        let mut kept = self.kept.lock();
        kept.extend(measured.into_iter().map(|(uid, volumes)| (uid, Measured { at: now, volumes })));
        latest(&kept, pods)
    }

    /// Volumes that outlive their pods, and those of drivers.
    pub async fn persistent(&self, pods: &[PodReference], now: Timestamp) -> Vec<Vec<VolumeStats>> {
        let Some(others) = &self.others else { return vec![Vec::new(); pods.len()] };
        let due: Vec<PodReference> = {
            let mut asked = self.asked.lock();
            asked.results.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
            let due = pods
                .iter()
                .filter(|pod| !self.is_fresh(asked.results.get(&pod.uid), now) && !asked.under_way.contains(&pod.uid));
            let due: Vec<PodReference> = due.cloned().collect();
            asked.under_way.extend(due.iter().map(|pod| pod.uid.clone()));
            due
        };
        let questions = due.into_iter().map(|pod| {
            let (others, asked) = (others.clone(), self.asked.clone());
            tokio::spawn(async move {
                // Also when the question ends in a panic, the pod may be asked about again.
                let _end = Question(asked.clone(), pod.uid.clone());
                let used = others.usage(&pod.uid).await;
                let volumes = used.into_iter().map(|usage| of_usage(usage, &pod, now)).collect();
                asked.lock().results.insert(pod.uid.clone(), Measured { at: now, volumes });
            })
        });
        let questions = futures::future::join_all(questions.collect::<Vec<_>>());
        let _ = tokio::time::timeout(PATIENCE, questions).await;
        latest(&self.asked.lock().results, pods)
    }
}

/// Ends the question about a pod when it is dropped.
struct Question(Arc<Mutex<Asked>>, String);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.lock().under_way.remove(&self.1);
    }
}

fn latest(results: &Results, pods: &[PodReference]) -> Vec<Vec<VolumeStats>> {
    pods.iter().map(|pod| results.get(&pod.uid).map(|measured| measured.volumes.clone()).unwrap_or_default()).collect()
}

fn of_usage(usage: Usage, pod: &PodReference, time: Timestamp) -> VolumeStats {
    let fs = Fs {
        time,
        available_bytes: usage.bytes.available,
        capacity_bytes: usage.bytes.total,
        used_bytes: usage.bytes.used,
        inodes_free: usage.inodes.available,
        inodes: usage.inodes.total,
        inodes_used: usage.inodes.used,
    };
    let claim = usage.claim.map(|name| ClaimReference { name, namespace: pod.namespace.clone() });
    VolumeStats { fs, name: usage.volume, claim }
}

fn measure(dir: &Path, now: Timestamp) -> Vec<VolumeStats> {
    places(dir)
        .into_iter()
        .filter_map(|(name, path)| {
            let used = node::files::usage(&path).ok()?;
            let disk = super::fs(&path, now)?;
            let fs = Fs { used_bytes: used.bytes, inodes_used: used.inodes, ..disk };
            Some(VolumeStats { name, fs, claim: None })
        })
        .collect()
}

/// Folders of plug-ins whose volumes are more than what the pod put there.
const NOT_THE_PODS: [&str; 4] = ["kubernetes.io~csi", "kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~fc"];

/// Volumes lie in a folder per plugin.
fn places(dir: &Path) -> Vec<Place> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    below(dir.to_owned())
        .filter(|plugin| !NOT_THE_PODS.iter().any(|name| plugin.file_name() == *name))
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
        // What a driver has there is not gone through file by file.
        std::fs::create_dir_all(dir.path().join("pods/u/volumes/kubernetes.io~csi/pv/mount")).unwrap();
        let volumes = Volumes::new(Duration::from_secs(60), None);
        let pod = |uid: &str| PodReference { name: "p".into(), namespace: "ns".into(), uid: uid.into() };
        let at = |second| Timestamp::from_second(second).unwrap();
        let used = async |second| {
            let found = volumes.of(&dir.path().join("pods"), &[pod("u"), pod("other")], at(second)).await;
            assert!(found[0].len() == 1 && found[0][0].name == "data" && found[1].is_empty());
            found[0][0].fs.used_bytes
        };
        let empty = used(0).await;
        std::fs::write(volume.join("file"), vec![1; 1 << 20]).unwrap();
        assert_eq!(used(59).await, empty);
        assert!(used(60).await >= empty + (1 << 20));
    }
}
