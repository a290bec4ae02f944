//! The node under pressure: too little memory, disk or process numbers, and pods that take more of the disk than they may.
//!
//! [`thresholds`] decides whether, [`rank`] decides who, both purely; [`Manager`] looks, gives the node its conditions, and
//! ends pods one at a time, after everything nobody uses was thrown away. The kernel announces no shortage of disk or
//! process numbers, so this is one of the few things on a node that is looked at from time to time; a look costs a few small
//! files, and pods are measured only when one of them has a limit or something is short.

pub mod rank;
pub mod thresholds;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, EventType, Recorder};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use node::cri::Runtime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::figures::Figures;
use crate::images::gc::Collector;
use crate::pods::Pods;
use crate::registration::machine::Machine;
use crate::status::Verdict;
use crate::worker::End;
use kubeletapi::stats::Stats;
use rank::{Candidate, Parts};
use thresholds::{Condition, Observation, Observations, Signal, Threshold, Tracker};

/// How long a pod that is ended may take before the next look.
const CLEANUP: Duration = Duration::from_secs(30);
/// Seconds given to the containers of a pod that has to go at once.
const AT_ONCE: i64 = 1;

/// The conditions the node has now.
pub type Conditions = BTreeSet<Condition>;

/// When something is done, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// What is too little.
    pub thresholds: Vec<Threshold>,
    /// Most seconds a pod is given when a soft threshold was crossed for too long.
    pub max_pod_grace: i64,
    /// How long a condition stays after the shortage was last seen.
    pub transition: Duration,
    pub interval: Duration,
}

/// The hard thresholds of a node whose administrator says nothing.
pub fn default_hard() -> thresholds::Settings {
    let hard = [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ];
    hard.map(|(signal, value)| (signal.to_owned(), value.to_owned())).into()
}

impl Default for Config {
    fn default() -> Self {
        let none = thresholds::Settings::new();
        let thresholds = thresholds::parse(&default_hard(), &none, &none, &none).expect("the defaults are well formed");
        Self { thresholds, max_pod_grace: 0, transition: Duration::from_secs(300), interval: Duration::from_secs(10) }
    }
}

impl Config {
    /// For a machine whose disk is not the node's alone: there a share of it says little about what pods may need, and
    /// others fill it too. What the kubelet itself needs to go on working is kept free.
    pub fn for_a_shared_disk() -> Self {
        let mut hard = default_hard();
        for disk in ["nodefs.available", "imagefs.available"] {
            hard.insert(disk.to_owned(), "1Gi".to_owned());
        }
        let none = thresholds::Settings::new();
        let thresholds = thresholds::parse(&hard, &none, &none, &none).expect("the defaults are well formed");
        Self { thresholds, ..Self::default() }
    }
}

pub struct Manager {
    pub(crate) config: Config,
    pub(crate) root: PathBuf,
    /// Memory that pods may use together.
    pub(crate) allocatable_memory: i64,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) pods: Pods,
    pub(crate) collector: Arc<Collector>,
    pub(crate) recorder: Recorder,
    pub(crate) figures: Arc<Figures>,
    pub(crate) node: ObjectReference,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) conditions: watch::Sender<Conditions>,
    /// Told when the conditions changed.
    pub(crate) status_changed: Arc<Notify>,
}

impl Manager {
    /// Looks and acts until it is stopped.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tracker = Tracker::default();
        let mut images = None;
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.clock.sleep(self.config.interval) => {}
                () = stop.cancelled() => return,
            }
            if images.is_none() {
                images = self.image_disk().await;
            }
            self.look(&mut tracker, images.as_deref()).await;
        }
    }

    /// Where images are; nothing while the runtime does not say.
    async fn image_disk(&self) -> Option<PathBuf> {
        let info = self.runtime.image_fs_info().await.ok()?;
        Some(PathBuf::from(&info.image_filesystems.first()?.fs_id.as_ref()?.mountpoint))
    }

    async fn look(&self, tracker: &mut Tracker, images: Option<&std::path::Path>) {
        let seen = self.observe(images);
        let (conditions, due) =
            tracker.look(&self.config.thresholds, &seen, self.config.transition, self.clock.monotonic());
        let news = self.conditions.send_if_modified(|present| {
            let news = *present != conditions;
            *present = conditions;
            news
        });
        if news {
            self.status_changed.notify_one();
        }
        let separate = images.is_some_and(|images| !same_disk(images, &self.root));
        if self.end_over_limit(separate).await {
            return;
        }
        let Some(threshold) = due.first() else { return };
        let resource = threshold.signal.resource();
        self.recorder.event_about(
            self.node.clone(),
            EventType::Warning,
            "EvictionThresholdMet",
            format!("Attempting to reclaim {resource}"),
        );
        if threshold.signal.condition() == Condition::Disk && self.throw_away(threshold, images).await {
            tracing::info!(resource, "enough was reclaimed without ending pods");
            return;
        }
        self.end_first(threshold, &due, &seen, separate).await;
    }

    /// What is left of everything.
    fn observe(&self, images: Option<&std::path::Path>) -> Observations {
        let machine = Machine::read(&self.root);
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut seen = Observations::new();
        let mut note = |signal, available, capacity| {
            if capacity > 0 {
                seen.insert(signal, Observation { available, capacity });
            }
        };
        let (whole, pods) = self.stats.memory_in_use();
        let available = whole.map_or(machine.memory_available, |used| (machine.memory - signed(used)).max(0));
        note(Signal::Memory, available, machine.memory);
        if let Some(used) = pods {
            note(Signal::AllocatableMemory, self.allocatable_memory - signed(used), self.allocatable_memory);
        }
        note(Signal::NodeFs, machine.disk_available, machine.disk);
        note(Signal::NodeFsInodes, machine.inodes_free, machine.inodes);
        if let Some(disk) = images.and_then(|path| node::mounts::capacity(path).ok()) {
            note(Signal::ImageFs, signed(disk.available), signed(disk.bytes));
            note(Signal::ImageFsInodes, signed(disk.inodes_free), signed(disk.inodes));
        }
        let (most, running) = machine.processes;
        note(Signal::Pid, most - running, most);
        seen
    }

    /// Ends pods that take more of the disk than they may; says whether there was one.
    async fn end_over_limit(&self, separate: bool) -> bool {
        let active = self.pods.active();
        if !active.iter().any(|pod| rank::is_limited(pod)) {
            return false;
        }
        let Some(candidates) = self.measure(active.into_iter().filter(|pod| rank::is_limited(pod)).collect()).await
        else {
            return false;
        };
        let mut any = false;
        for candidate in candidates {
            let over = candidate.stats.as_ref().and_then(|stats| rank::over_limit(&candidate.pod, stats, separate));
            if let Some((signal, message)) = over {
                any |= self.end(&candidate.pod, message, AT_ONCE, false, signal).await;
            }
        }
        any
    }

    async fn measure(&self, pods: Vec<Arc<Pod>>) -> Option<Vec<Candidate>> {
        let summary = match self.stats.summary(&*self.runtime, &self.pods, self.clock.now(), false).await {
            Ok(summary) => summary,
            Err(error) => {
                tracing::warn!(%error, "pods cannot be measured");
                return None;
            }
        };
        let of = |pod: &Pod| {
            summary.pods.iter().find(|stats| Some(&stats.pod_ref.uid) == pod.metadata.uid.as_ref()).cloned()
        };
        Some(pods.into_iter().map(|pod| Candidate { stats: of(&pod), pod }).collect())
    }

    /// Throws away what nobody uses; says whether that was enough.
    async fn throw_away(&self, threshold: &Threshold, images: Option<&std::path::Path>) -> bool {
        self.collector.remove_dead_containers().await;
        self.collector.remove_all_unused().await;
        let seen = self.observe(images);
        seen.get(&threshold.signal).is_some_and(|seen| seen.available >= threshold.value.of(seen.capacity))
    }

    /// Ends the first pod in the order of the shortage.
    async fn end_first(&self, threshold: &Threshold, due: &[Threshold], seen: &Observations, separate: bool) {
        let Some(mut candidates) = self.measure(self.pods.active()).await else { return };
        rank::rank(&mut candidates, threshold.signal, Parts::of(threshold.signal, separate));
        for candidate in &candidates {
            let grace = if threshold.is_hard() { AT_ONCE } else { self.config.max_pod_grace };
            let message = rank::message(threshold.signal, candidate, due, seen);
            if self.end(&candidate.pod, message, grace, true, threshold.signal.as_str()).await {
                return;
            }
        }
        tracing::warn!(resource = threshold.signal.resource(), "no pod can be ended to relieve the node");
    }

    /// Ends a pod and waits until it has; says whether it may be ended.
    async fn end(&self, pod: &Pod, message: String, grace: i64, disruption: bool, signal: &'static str) -> bool {
        if rank::is_critical(pod) {
            tracing::warn!(pod = %crate::pod::spec::long_name(pod), "a critical pod is not ended");
            return false;
        }
        self.figures.evictions.increment(&[signal]);
        self.recorder.event(pod, EventType::Warning, "Evicted", message.clone());
        let disruption = disruption.then(|| message.clone());
        let verdict = Verdict { reason: "Evicted".to_owned(), message, disruption };
        let done = self.pods.end(pod, End { verdict, grace: Some(grace) });
        let limit = CLEANUP + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if tokio::time::timeout(limit, done).await.is_err() {
            tracing::warn!(pod = %crate::pod::spec::long_name(pod), "pod does not end");
        }
        true
    }
}

fn same_disk(a: &std::path::Path, b: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => a.dev() == b.dev(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::thresholds::Value;
    use super::*;

    #[test]
    fn a_shared_disk_is_measured_in_bytes() {
        let of = |config: &Config, signal| config.thresholds.iter().find(|t| t.signal == signal).map(|t| t.value);
        let (usual, shared) = (Config::default(), Config::for_a_shared_disk());
        assert_eq!(of(&usual, Signal::NodeFs), Some(Value::Share(0.1)));
        assert_eq!(of(&shared, Signal::NodeFs), Some(Value::Amount(1 << 30)));
        assert_eq!(of(&shared, Signal::Memory), of(&usual, Signal::Memory));
    }
}
