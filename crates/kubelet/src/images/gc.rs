//! Images and containers that nobody uses: thrown away when the disk gets full, the longest unused first.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, EventType, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use node::cri::{Runtime, v1};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Ledger;

/// Between looks at the disk.
const INTERVAL: Duration = Duration::from_secs(300);

/// When images are thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// From this share of the disk in use on, in percent; 100 for never.
    pub high: u8,
    /// Down to this share.
    pub low: u8,
    /// An image that came later than this ago stays.
    pub min_age: Duration,
    /// An image that was unused for this long goes whatever the disk; zero for never.
    pub max_age: Duration,
    /// Images that stay whatever happens: the runtime needs them for every sandbox.
    pub keep: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: Duration::ZERO, keep: Vec::new() }
    }
}

/// What is known of an image. Times are those of the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    first_seen: Duration,
    last_used: Option<Duration>,
    size: u64,
    in_use: bool,
    pinned: bool,
}

type Records = BTreeMap<String, Record>;

/// Brings the records up to date.
fn note(records: &mut Records, images: &[v1::Image], used: &HashSet<String>, keep: &[String], now: Duration) {
    records.retain(|id, _| images.iter().any(|image| image.id == *id));
    for image in images {
        let names = || image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
        let in_use = names().any(|name| used.contains(name));
        let record = records.entry(image.id.clone()).or_insert_with(|| Record {
            first_seen: now,
            last_used: None,
            size: 0,
            in_use: false,
            pinned: false,
        });
        record.size = image.size;
        record.in_use = in_use;
        record.pinned = image.pinned || names().any(|name| keep.contains(name));
        if in_use {
            record.last_used = Some(now);
        }
    }
}

/// Unused images in the order in which they go: the longest unused first, of those the one that came first.
fn order(records: &Records) -> Vec<(&String, &Record)> {
    let mut unused: Vec<_> = records.iter().filter(|(_, record)| !record.in_use && !record.pinned).collect();
    unused.sort_by_key(|(_, record)| (record.last_used, record.first_seen));
    unused
}

/// What to throw away to get so many bytes back, and all that is too old.
fn plan(records: &Records, policy: &Policy, wanted: u64, now: Duration) -> Vec<String> {
    let mut freed = 0;
    let mut gone = Vec::new();
    for (id, record) in order(records) {
        let unused_since = record.last_used.unwrap_or(record.first_seen);
        let too_old = !policy.max_age.is_zero() && now.saturating_sub(unused_since) > policy.max_age;
        let old_enough = now.saturating_sub(record.first_seen) >= policy.min_age;
        if too_old || (freed < wanted && old_enough) {
            freed += record.size;
            gone.push(id.clone());
        }
    }
    gone
}

/// How many bytes have to be had back so that the disk is as empty as it should be.
fn wanted(policy: &Policy, capacity: u64, available: u64) -> u64 {
    let used = 100 - available.min(capacity) * 100 / capacity.max(1);
    if used < u64::from(policy.high) {
        return 0;
    }
    (capacity * (100 - u64::from(policy.low)) / 100).saturating_sub(available)
}

pub struct Collector {
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    node: ObjectReference,
    policy: Policy,
    ledger: Arc<Ledger>,
    records: Mutex<Records>,
}

impl Collector {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
        node: ObjectReference,
        policy: Policy,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self { runtime, clock, recorder, node, policy, ledger, records: Mutex::default() }
    }

    /// Looks at the disk from time to time.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.collect().await {
                tracing::warn!(%error, "images not looked at");
            }
            tokio::select! {
                () = self.clock.sleep(INTERVAL) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Throws away what the policy says, as the disk is now.
    pub async fn collect(&self) -> Result<(), node::cri::Error> {
        self.detect().await?;
        let info = self.runtime.image_fs_info().await?;
        let place = info.image_filesystems.first().and_then(|usage| usage.fs_id.as_ref());
        let Some(disk) = place.and_then(|id| node::mounts::capacity(std::path::Path::new(&id.mountpoint)).ok()) else {
            return Ok(());
        };
        if disk.bytes == 0 {
            self.warn("InvalidDiskCapacity", "invalid capacity 0 on image filesystem".to_owned());
            return Ok(());
        }
        let wanted = wanted(&self.policy, disk.bytes, disk.available);
        let gone = plan(&self.records.lock(), &self.policy, wanted, self.clock.monotonic());
        let freed = self.remove(&gone).await;
        if freed < wanted {
            let used = 100 - disk.available.min(disk.bytes) * 100 / disk.bytes;
            let whole = human(disk.bytes);
            self.warn("FreeDiskSpaceFailed", format!(
                "Insufficient free disk space on the node's image filesystem ({used}% of {whole} used). Failed to free \
                 sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be \
                 used by active images, logs, volumes, or other data."
            ));
        }
        Ok(())
    }

    /// Throws away all images that nobody uses, however young.
    pub async fn remove_all_unused(&self) {
        if let Err(error) = self.detect().await {
            tracing::warn!(%error, "images not looked at");
            return;
        }
        let gone: Vec<String> = order(&self.records.lock()).into_iter().map(|(id, _)| id.clone()).collect();
        self.remove(&gone).await;
    }

    /// Removes containers that ended, and with them what they wrote. Their logs stay.
    pub async fn remove_dead_containers(&self) {
        let exited = v1::ContainerStateValue { state: v1::ContainerState::ContainerExited.into() };
        let filter = v1::ContainerFilter { state: Some(exited), ..Default::default() };
        let dead = match self.runtime.list_containers(filter).await {
            Ok(dead) => dead,
            Err(error) => {
                tracing::warn!(%error, "dead containers not found");
                return;
            }
        };
        for container in dead {
            if let Err(error) = self.runtime.remove_container(&container.id).await {
                tracing::debug!(%error, container = container.id, "dead container not removed");
            }
        }
    }

    async fn detect(&self) -> Result<(), node::cri::Error> {
        let (images, containers) =
            tokio::try_join!(self.runtime.list_images(), self.runtime.list_containers(v1::ContainerFilter::default()))?;
        let mut used: HashSet<String> = self.ledger.mounted().into_iter().collect();
        for container in containers {
            used.extend(container.image.map(|image| image.image));
            used.insert(container.image_ref);
            used.insert(container.image_id);
        }
        used.remove("");
        note(&mut self.records.lock(), &images, &used, &self.policy.keep, self.clock.monotonic());
        Ok(())
    }

    /// Removes images; says how many bytes that gave back.
    async fn remove(&self, images: &[String]) -> u64 {
        let mut freed = 0;
        for id in images {
            let spec = v1::ImageSpec { image: id.clone(), ..Default::default() };
            match self.runtime.remove_image(spec).await {
                Ok(()) => {
                    self.ledger.records.forget(id);
                    freed += self.records.lock().remove(id).map_or(0, |record| record.size);
                }
                Err(error) => tracing::warn!(%error, image = id, "unused image not removed"),
            }
        }
        if !images.is_empty() {
            tracing::info!(images = images.len(), bytes = freed, "unused images removed");
        }
        freed
    }

    fn warn(&self, reason: &str, message: String) {
        self.recorder.event_about(self.node.clone(), EventType::Warning, reason, message);
    }
}

/// A size for people: `12.3 GiB`.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64) -> v1::Image {
        v1::Image { id: id.into(), repo_tags: vec![format!("{id}:tag")], size, ..Default::default() }
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn the_longest_unused_go_first_and_the_young_stay() {
        let policy = Policy { min_age: at(100), keep: vec!["pause:tag".into()], ..Policy::default() };
        let mut records = Records::new();
        let used = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        let all = [image("a", 10), image("b", 10), image("pause", 1)];
        note(&mut records, &all, &used(&["a", "b:tag"]), &policy.keep, at(0));
        assert_eq!(plan(&records, &policy, 5, at(500)), [] as [String; 0]);
        note(&mut records, &all, &used(&["a"]), &policy.keep, at(200));
        note(&mut records, &[&all[..], &[image("new", 10)]].concat(), &used(&[]), &policy.keep, at(300));
        assert_eq!(plan(&records, &policy, 5, at(301)), ["b"]);
        assert_eq!(plan(&records, &policy, 15, at(301)), ["b", "a"]);
        assert_eq!(plan(&records, &policy, 500, at(400)), ["new", "b", "a"]);
        note(&mut records, &all[1..], &used(&[]), &policy.keep, at(301));
        assert_eq!(plan(&records, &policy, 500, at(400)), ["b"]);
        let old = Policy { max_age: at(150), ..policy };
        assert_eq!(plan(&records, &old, 0, at(140)), [] as [String; 0]);
        assert_eq!(plan(&records, &old, 0, at(400)), ["b"]);
    }

    #[test]
    fn a_full_disk_is_emptied_down_to_the_lower_mark() {
        let policy = Policy::default();
        assert_eq!(wanted(&policy, 1000, 160), 0);
        assert_eq!(wanted(&policy, 1000, 150), 50);
        assert_eq!(wanted(&policy, 1000, 0), 200);
        assert_eq!(wanted(&Policy { high: 100, low: 80, ..policy }, 1000, 100), 0);
        assert_eq!((human(10), human(3 << 29)), ("10 B".to_owned(), "1.5 GiB".to_owned()));
    }
}
