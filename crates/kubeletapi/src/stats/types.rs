//! The summary's document, as its readers know it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rules::pod_spec as spec;
use serde::{Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub node: NodeStats,
    pub pods: Vec<PodStats>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStats {
    pub node_name: String,
    /// Groups of processes that matter as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<ContainerStats>,
    /// When it was started.
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The file system of pods' volumes and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<Fs>,
    /// The runtime's file systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<Rlimit>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<Fs>,
}

/// Processes there can be, and are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rlimit {
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    pub maxpid: i64,
    pub curproc: i64,
}

/// Names of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodReference {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

impl PodReference {
    pub fn of(pod: &Pod) -> Self {
        let own = |text: &str| text.to_owned();
        Self { name: own(spec::name(pod)), namespace: own(spec::namespace(pod)), uid: own(spec::uid(pod)) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    pub pod_ref: PodReference,
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    /// The runtime's id of its sandbox, for figures that carry it.
    #[serde(skip)]
    pub sandbox: String,
    pub containers: Vec<ContainerStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Its volumes on the node's disks.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeStats>,
    /// What its containers, logs and volumes that go with it take of the disk.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeStats {
    /// What it takes, and what there is.
    #[serde(flatten)]
    pub fs: Fs,
    /// Its name in the pod.
    pub name: String,
    /// The claim that it is of.
    #[serde(rename = "pvcRef", skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimReference>,
}

/// Names of a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ClaimReference {
    pub name: String,
    pub namespace: String,
}

/// Processes of a pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessStats {
    pub process_count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStats {
    /// Its name in the pod.
    pub name: String,
    #[serde(serialize_with = "seconds")]
    pub start_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What it wrote beside its volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
    /// Its id in the runtime, for figures that carry it.
    #[serde(skip)]
    pub id: String,
    #[serde(skip)]
    pub image: String,
    /// Where what it writes is, likewise.
    #[serde(skip)]
    pub disk: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// Used per second, lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    pub usage_core_nano_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    /// Left before the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    pub usage_bytes: u64,
    /// What cannot be had back without pain.
    pub working_set_bytes: u64,
    pub rss_bytes: u64,
    pub page_faults: u64,
    /// Faults that waited for a disk.
    pub major_page_faults: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    #[serde(flatten)]
    pub main: Interface,
    pub interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_errors: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
    /// Packets received, for figures that tell it; like the rest where it is known.
    #[serde(skip)]
    pub rx_packets: u64,
    /// Packets dropped instead of received.
    #[serde(skip)]
    pub rx_dropped: u64,
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
    #[serde(serialize_with = "seconds")]
    pub time: Timestamp,
    pub available_bytes: u64,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub inodes_free: u64,
    pub inodes: u64,
    pub inodes_used: u64,
}

/// Times in the API have no parts of a second.
fn seconds<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
    serializer.collect_str(&whole)
}
