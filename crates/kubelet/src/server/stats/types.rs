//! The summary's document, as its readers know it.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The machine.
    pub node: NodeStats,
    /// Its pods.
    pub pods: Vec<PodStats>,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStats {
    /// Its name.
    pub node_name: String,
    /// Groups of processes that matter as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<ContainerStats>,
    /// When it was started.
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The file system of pods' volumes and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<Fs>,
    /// The runtime's file systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeStats>,
    /// Processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<Rlimit>,
}

/// The runtime.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStats {
    /// Where images are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<Fs>,
    /// Where containers write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<Fs>,
}

/// Processes there can be, and are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rlimit {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// The most.
    pub maxpid: i64,
    /// Now.
    pub curproc: i64,
}

/// Names of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    /// Which.
    pub pod_ref: PodReference,
    /// Since when.
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    /// The runtime's id of its sandbox, for figures that carry it.
    #[serde(skip)]
    pub sandbox: String,
    /// Its containers.
    pub containers: Vec<ContainerStats>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Its volumes on the node's disks.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeStats>,
    /// What its containers, logs and volumes that go with it take of the disk.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
    /// Its processes.
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeStats {
    /// What it takes, and what there is.
    #[serde(flatten)]
    pub fs: Fs,
    /// Its name in the pod.
    pub name: String,
}

/// Processes of a pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessStats {
    /// How many.
    pub process_count: u64,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStats {
    /// Its name in the pod.
    pub name: String,
    /// Since when.
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What it wrote beside its volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    /// Its logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
    /// Its id in the runtime, for figures that carry it.
    #[serde(skip)]
    pub id: String,
    /// Its image, likewise.
    #[serde(skip)]
    pub image: String,
    /// Where what it writes is, likewise.
    #[serde(skip)]
    pub disk: String,
}

/// Processors.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// Used per second, lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    /// Used in all.
    pub usage_core_nano_seconds: u64,
}

/// Memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// Left before the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Caches included.
    pub usage_bytes: u64,
    /// What cannot be had back without pain.
    pub working_set_bytes: u64,
    /// Anonymous.
    pub rss_bytes: u64,
    /// Faults.
    pub page_faults: u64,
    /// Faults that waited for a disk.
    pub major_page_faults: u64,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// The main interface.
    #[serde(flatten)]
    pub main: Interface,
    /// All of them.
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Received.
    pub rx_bytes: u64,
    /// Received wrongly.
    pub rx_errors: u64,
    /// Sent.
    pub tx_bytes: u64,
    /// Not sent.
    pub tx_errors: u64,
    /// Packets received, for figures that tell it; like the rest where it is known.
    #[serde(skip)]
    pub rx_packets: u64,
    /// Packets dropped instead of received.
    #[serde(skip)]
    pub rx_dropped: u64,
    /// Packets sent.
    #[serde(skip)]
    pub tx_packets: u64,
    /// Packets dropped instead of sent.
    #[serde(skip)]
    pub tx_dropped: u64,
}

/// A file system, or what somebody takes of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// Left for everybody.
    pub available_bytes: u64,
    /// In all.
    pub capacity_bytes: u64,
    /// Taken.
    pub used_bytes: u64,
    /// Inodes left.
    pub inodes_free: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes taken.
    pub inodes_used: u64,
}

/// Times in the API have no parts of a second.
fn seconds<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
    serializer.collect_str(&whole)
}
