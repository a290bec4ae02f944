//! What an administrator configures of the kubelet: [`Config`], the file it can be read from, and the page that shows what is in
//! force.

mod file;
pub(crate) mod page;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use node::cgroups::Name;
use tokio::sync::watch;

use crate::images::gc;
use crate::pressure;
use crate::registration;
use crate::static_pods;
use crate::upkeep::{rotation, shutdown};
use crate::worker::network::PodNetwork;
pub use file::{Error, read, static_url};

/// All settings of a kubelet.
#[derive(Debug, Clone)]
pub struct Config {
    pub node: registration::Config,
    pub log_dir: PathBuf,
    /// Where the machine's own logs are, which `/logs/` shows; nothing to show none.
    pub system_logs: Option<PathBuf>,
    /// Where volumes of the local-path provisioner are, which the API may have removed; nothing where there are none.
    pub local_path: Option<PathBuf>,
    /// Where seccomp profiles are.
    pub seccomp_dir: PathBuf,
    /// Where cluster names are answered.
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// The node's resolver configuration.
    pub resolv_conf: PathBuf,
    /// The cgroup of all pods.
    pub cgroup_root: Name,
    /// Most processes of one pod.
    pub pod_pids: Option<i64>,
    /// Kernel parameters that pods may set besides the safe ones; a `*` at the end stands for anything.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Pulls at a time.
    pub parallel_pulls: usize,
    /// A directory of pods that run without the API having been asked; nothing for none.
    pub static_pods: Option<PathBuf>,
    /// How often that directory is read though nothing was announced.
    pub static_pods_period: Duration,
    /// A URL of such pods; nothing for none.
    pub static_url: Option<static_pods::Url>,
    /// When pods are ended for the node's sake.
    pub eviction: pressure::Config,
    /// When images are thrown away.
    pub image_gc: gc::Policy,
    /// How logs are kept.
    pub rotation: rotation::Config,
    /// What happens when the machine goes down.
    pub shutdown: shutdown::Config,
    /// How long figures of volumes are good for.
    pub volume_stats_period: Duration,
    /// The machine, as far as disks of storage networks concern it.
    pub disks: disks::Host,
    /// The label of files of containers, where the machine has SELinux.
    pub selinux: Option<node::selinux::Label>,
    /// Where spans of pods' starts go; nothing for nowhere.
    pub tracing: Option<otlp::Configuration>,
    /// What the kubelet says of itself at `/statusz` and `/flagz`.
    pub component: rules::zpages::Component,
    /// How the kubelet's own API is served; nothing for not at all.
    pub serving: Option<Serving>,
    /// Who has to know a pod's addresses before anything starts in it.
    pub pod_network: Option<Arc<dyn PodNetwork>>,
}

impl Config {
    /// For a node of this name that keeps everything below `dir`, with upstream's defaults. It does not
    /// serve.
    pub fn new(name: &str, dir: &Path) -> Self {
        Self {
            node: registration::Config {
                name: name.to_owned(),
                hostname: name.to_owned(),
                addresses: Vec::new(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                taints: Vec::new(),
                max_pods: 110,
                reserved_cpu_milli: 0,
                reserved_memory: 0,
                reserved_storage: 0,
                reserved_pids: 0,
                enforced: true,
                eviction: Vec::new(),
                port: 10250,
                root: dir.join("kubelet"),
            },
            log_dir: dir.join("logs"),
            system_logs: Some(PathBuf::from("/var/log")),
            local_path: None,
            seccomp_dir: dir.join("seccomp"),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            cgroup_root: Name::new(["kubepods"]),
            pod_pids: None,
            allowed_unsafe_sysctls: Vec::new(),
            parallel_pulls: 4,
            static_pods: Some(dir.join("manifests")),
            static_pods_period: Duration::from_secs(300),
            static_url: None,
            eviction: pressure::Config::default(),
            image_gc: gc::Policy::default(),
            rotation: rotation::Config::default(),
            shutdown: shutdown::Config::default(),
            volume_stats_period: Duration::from_secs(60),
            disks: disks::Host::default(),
            selinux: node::selinux::file_label(),
            tracing: None,
            component: rules::zpages::Component::default(),
            serving: None,
            pod_network: None,
        }
    }
}

/// How the kubelet's own API is served.
#[derive(Debug, Clone)]
pub struct Serving {
    /// Where to listen; port 0 takes any free one.
    pub address: SocketAddr,
    /// The serving certificate, and its successors.
    pub certificate: watch::Receiver<pki::Pair>,
    /// The authority of client certificates, in PEM.
    pub client_authority: String,
}
