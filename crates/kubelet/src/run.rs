//! Putting the kubelet together and running it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::Client;
use informer::{Filter, Informers, Recorder};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use node::cgroups::{Cgroups, Name};
use node::cri::Runtime;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::sysctls::Allowed;
use crate::allocations::Allocations;
use crate::config::Facts;
use crate::figures::{Counted, Figures};
use crate::images::gc::{self, Collector};
use crate::images::{self, Images};
use crate::objects::Objects;
use crate::pods::{self, Pods};
use crate::pressure;
use crate::pressure::thresholds::{Signal, Value};
use crate::registration::{self, Registration};
use crate::rotation;
use crate::server;
use crate::server::stats::{Rates, Stats, Volumes};
use crate::shared::{Settings, Shared};
use crate::shutdown;
use crate::static_pods;
use crate::tokens::Tokens;
use crate::users::Users;
use crate::worker::certificates::Requests;

/// What the kubelet is told by its administrator.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node itself.
    pub node: registration::Config,
    /// Where logs go.
    pub log_dir: PathBuf,
    /// Where seccomp profiles are.
    pub seccomp_dir: PathBuf,
    /// Where cluster names are answered.
    pub cluster_dns: Vec<String>,
    /// The cluster's domain.
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
    /// The pod network this kubelet configures; nothing when somebody else does.
    pub network: Option<Network>,
    /// How the kubelet's own API is served; nothing for not at all.
    pub serving: Option<Serving>,
}

impl Config {
    /// For a node of this name that keeps everything below `dir`, with upstream's defaults. It has no network of its own
    /// and does not serve.
    pub fn new(name: &str, dir: &Path) -> Self {
        Self {
            node: registration::Config {
                name: name.to_owned(),
                hostname: name.to_owned(),
                addresses: Vec::new(),
                labels: BTreeMap::new(),
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
            network: None,
            serving: None,
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

/// Why the kubelet does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its own API cannot be served.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// What pods may set cannot be read.
    #[error("allowedUnsafeSysctls: {0}")]
    Sysctls(String),
    /// There is nowhere to keep pods.
    #[error("make {}: {source}", root.display())]
    Root {
        /// Where they are to be kept.
        root: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A pod network that the kubelet writes CNI configuration for.
#[derive(Debug, Clone)]
pub struct Network {
    /// Where the runtime looks for it.
    pub conf_dir: PathBuf,
    /// Name of the bridge.
    pub bridge: String,
    /// Largest packet, when it is not the kernel's choice.
    pub mtu: Option<u32>,
    /// Where addresses in use are remembered.
    pub ipam_dir: PathBuf,
    /// Ranges to use without being assigned any.
    pub ranges: Vec<String>,
}

/// Runs the kubelet until told to stop. Pods keep running; the next start takes them over.
pub async fn run(
    mut config: Config,
    client: Client,
    runtime: Arc<dyn Runtime>,
    cgroups: Option<Cgroups>,
    stop: CancellationToken,
) -> Result<(), Error> {
    // The node tells how large the disk below it is before the first pod needs it.
    let root = config.node.root.clone();
    std::fs::create_dir_all(&root).map_err(|source| Error::Root { root, source })?;
    let machine = registration::machine::Machine::read(&config.node.root);
    let sysctls = Allowed::new(&machine.kernel, &config.allowed_unsafe_sysctls).map_err(Error::Sysctls)?;
    // What is kept for the node itself is not promised to pods.
    config.node.eviction = config.eviction.thresholds.clone();
    // Whatever ends this function ends everything it started.
    let stop = stop.child_token();
    let _everything = stop.clone().drop_guard();
    let figures = Arc::new(Figures::default());
    let runtime: Arc<dyn Runtime> = Arc::new(Counted::new(runtime, figures.clone()));
    let informers = Informers::new(client.clone());
    let clock = informers.clock().clone();
    let recorder = Recorder::new(client.clone(), "kubelet", Some(&config.node.name), clock.clone());
    let (facts, facts_seen) = watch::channel(Arc::new(facts(&config)));
    let (network, network_seen) = watch::channel(Some("not looked at yet".to_owned()));
    let ranges = config.network.as_ref().map(|n| n.ranges.clone()).unwrap_or_default();
    let (ranges, mut ranges_seen) = watch::channel(ranges);
    let bell = Arc::new(Notify::new());

    let workers = Arc::new(Mutex::new(HashMap::new()));
    let ledger = Arc::new(images::Ledger::new(&config.node.root));
    let told = pods::teller(&workers);
    let runtime_name = runtime_name(&*runtime, &stop).await;
    let shared = Arc::new(Shared {
        settings: Settings {
            root: config.node.root.clone(),
            pod_pids: config.pod_pids,
            cgroup_root: config.cgroup_root.clone(),
            sysctls,
        },
        images: Images::new(
            runtime.clone(),
            clock.clone(),
            figures.clone(),
            ledger.clone(),
            config.parallel_pulls,
            config.node.root.join("config.json"),
        ),
        runtime: runtime.clone(),
        runtime_name,
        client: client.clone(),
        recorder: recorder.clone(),
        clock: clock.clone(),
        cgroups,
        config_maps: Objects::new(informers.clone(), told.clone()),
        secrets: Objects::new(informers.clone(), told.clone()),
        trust_bundles: Objects::new(informers.clone(), told.clone()),
        requests: Requests::new(informers.clone(), &config.node.name, told),
        services: informers.of::<Service>(),
        tokens: Tokens::new(client.clone(), clock),
        facts: facts_seen,
        network: network_seen,
        owners: Mutex::default(),
        figures: figures.clone(),
        shares: AtomicU64::new(0),
        users: Users::new(&config.node.root, config.node.max_pods),
        allocations: Allocations::default(),
        me: informers.filtered::<Node>(Filter::fields(format!("metadata.name={}", config.node.name))),
        stop: stop.clone(),
    });
    let name = config.node.name.clone();
    let (conditions, pressure) = watch::channel(pressure::Conditions::new());
    let (begun, shutdown) = watch::channel(false);
    let pods = Pods::new(workers, shared.clone(), pressure.clone(), shutdown.clone());
    let stats = Arc::new(Stats {
        node: name.clone(),
        root: config.node.root.clone(),
        log_dir: config.log_dir.clone(),
        cgroups: shared.cgroups.clone(),
        cgroup_root: config.cgroup_root.clone(),
        rates: Rates::default(),
        volumes: Volumes::new(config.volume_stats_period),
    });
    let serving = match config.serving.clone() {
        Some(serving) => Some(serve(serving, &config, &shared, &pods, stats.clone()).await?),
        None => None,
    };
    if let Some(running) = &serving {
        config.node.port = running.address().port();
    }
    let registration = Registration {
        config: config.node.clone(),
        informers: informers.clone(),
        recorder,
        runtime,
        facts,
        network,
        ranges,
        pressure,
        shutdown,
        bell: bell.clone(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    let reference = registration.reference();
    if let Some(cgroups) = shared.cgroups.clone() {
        let limits = registration::enforcement::limits(&config.node, &machine);
        let (recorder, clock) = (shared.recorder.clone(), shared.clock.clone());
        let (root, node) = (config.cgroup_root.clone(), reference.clone());
        tasks.spawn(registration::enforcement::enforce(cgroups, root, limits, recorder, node, clock, stop.clone()));
    }
    let policy = config.image_gc.clone();
    let (recorder, clock) = (shared.recorder.clone(), shared.clock.clone());
    let collector = Arc::new(Collector::new(
        shared.runtime.clone(),
        clock.clone(),
        recorder.clone(),
        reference.clone(),
        policy,
        ledger,
    ));
    tasks.spawn(collector.clone().run(stop.clone()));
    let manager = pressure::Manager {
        config: config.eviction.clone(),
        root: config.node.root.clone(),
        allocatable_memory: machine.memory - config.node.reserved_memory,
        runtime: shared.runtime.clone(),
        stats,
        pods: pods.clone(),
        collector,
        recorder,
        figures,
        node: reference,
        clock: clock.clone(),
        conditions,
        bell: bell.clone(),
    };
    tasks.spawn(manager.run(stop.clone()));
    let rotation = rotation::Rotation {
        config: config.rotation.clone(),
        runtime: shared.runtime.clone(),
        clock,
        log_dir: config.log_dir.clone(),
    };
    tasks.spawn(rotation.run(stop.clone()));
    let shutdown =
        shutdown::Shutdown { config: config.shutdown.clone(), pods: pods.clone(), begun, bell: bell.clone() };
    tasks.spawn(shutdown.run(stop.clone()));
    tasks.spawn(registration.run(stop.clone()));
    tasks.spawn(pods.clone().listen());
    if let Some(network) = config.network {
        tasks.spawn(async move {
            loop {
                let ranges = ranges_seen.borrow_and_update().clone();
                if !ranges.is_empty() {
                    configure(&network, ranges);
                    bell.notify_one();
                }
                if ranges_seen.changed().await.is_err() {
                    return;
                }
            }
        });
    }
    let assigned = informers.filtered::<Pod>(Filter::fields(format!("spec.nodeName={name}")));
    pods.follow(&assigned);
    let sources = static_pods::Sources {
        files: config.static_pods.map(|dir| (dir, config.static_pods_period)),
        url: config.static_url,
    };
    let read = static_pods::follow(sources, &shared, &pods, &assigned, &mut tasks, &stop);
    // What nobody wants is known only once everybody was asked.
    tokio::select! {
        _ = async { tokio::join!(assigned.synced(), read) } => {
            pods.sweep(&assigned).await;
            static_pods::sweep(&shared, &pods, &assigned).await;
        }
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    tasks.abort_all();
    if let Some(running) = serving {
        running.stop().await;
    }
    Ok(())
}

async fn serve(
    serving: Serving,
    config: &Config,
    shared: &Arc<Shared>,
    pods: &Pods,
    stats: Arc<Stats>,
) -> Result<server::Running, server::Error> {
    server::Server::start(server::Config {
        address: serving.address,
        node_name: config.node.name.clone(),
        certificate: serving.certificate,
        client_authority: serving.client_authority,
        client: shared.client.clone(),
        runtime: shared.runtime.clone(),
        pods: Arc::new(pods.clone()),
        clock: shared.clock.clone(),
        stats,
        configuration: configz(config),
    })
    .await
}

/// What `/configz` shows.
fn configz(config: &Config) -> serde_json::Value {
    serde_json::json!({"kubeletconfig": {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "maxPods": config.node.max_pods,
        "podPidsLimit": config.pod_pids.unwrap_or(-1),
        "enforceNodeAllocatable": [if config.node.enforced { "pods" } else { "none" }],
        "allowedUnsafeSysctls": config.allowed_unsafe_sysctls,
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "maxParallelImagePulls": config.parallel_pulls,
        "staticPodPath": config.static_pods,
        "staticPodURL": config.static_url.as_ref().map(|source| source.url.clone()).unwrap_or_default(),
        "fileCheckFrequency": format!("{}s", config.static_pods_period.as_secs()),
        "containerLogMaxSize": config.rotation.max_size.to_string(),
        "containerLogMaxFiles": config.rotation.max_files,
        "containerLogMaxWorkers": config.rotation.workers,
        "containerLogMonitorInterval": format!("{}s", config.rotation.interval.as_secs()),
        "imageGCHighThresholdPercent": config.image_gc.high,
        "imageGCLowThresholdPercent": config.image_gc.low,
        "imageMinimumGCAge": format!("{}s", config.image_gc.min_age.as_secs()),
        "imageMaximumGCAge": format!("{}s", config.image_gc.max_age.as_secs()),
        "evictionHard": eviction(&config.eviction, true),
        "evictionSoft": eviction(&config.eviction, false),
        "evictionPressureTransitionPeriod": format!("{}s", config.eviction.transition.as_secs()),
        "evictionMaxPodGracePeriod": config.eviction.max_pod_grace,
        "volumeStatsAggPeriod": format!("{}s", config.volume_stats_period.as_secs()),
    }})
}

/// The thresholds in force, as an administrator would write them.
fn eviction(config: &pressure::Config, hard: bool) -> BTreeMap<&'static str, String> {
    let own = |signal: &Signal| *signal != Signal::AllocatableMemory;
    let chosen = config.thresholds.iter().filter(|t| t.is_hard() == hard && own(&t.signal));
    chosen
        .map(|threshold| {
            let text = match threshold.value {
                Value::Amount(amount) => threshold.signal.amount(amount),
                Value::Share(share) => format!("{}%", (share * 1e4).round() / 1e2),
            };
            (threshold.signal.as_str(), text)
        })
        .collect()
}

fn facts(config: &Config) -> Facts {
    Facts {
        node_name: config.node.name.clone(),
        host_ips: config.node.addresses.clone(),
        cluster_dns: config.cluster_dns.clone(),
        cluster_domain: config.cluster_domain.clone(),
        resolv_conf: std::fs::read_to_string(&config.resolv_conf).unwrap_or_default(),
        seccomp_dir: config.seccomp_dir.clone(),
        log_dir: config.log_dir.clone(),
        ..Facts::default()
    }
}

/// The runtime's name, which every container id begins with.
async fn runtime_name(runtime: &dyn Runtime, stop: &CancellationToken) -> String {
    let mut backoff =
        informer::Backoff::new(std::time::Duration::from_millis(50), std::time::Duration::from_secs(5), 0.2);
    while !stop.is_cancelled() {
        match runtime.version().await {
            Ok(version) => return version.runtime_name,
            Err(error) => {
                tracing::warn!(%error, "runtime does not answer yet");
                tokio::time::sleep(backoff.delay()).await;
            }
        }
    }
    String::new()
}

fn configure(network: &Network, ranges: Vec<String>) {
    let wanted = node::cni::Network {
        bridge: network.bridge.clone(),
        ranges,
        mtu: network.mtu,
        ipam_dir: network.ipam_dir.clone(),
    };
    match node::cni::write(&network.conf_dir, &wanted) {
        Ok(true) => tracing::info!(ranges = ?wanted.ranges, "pod network configured"),
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "pod network not configured"),
    }
}
