//! Putting the kubelet together and running it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use informer::{Filter, Informers, Recorder};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use node::cgroups::{Cgroups, Name};
use node::cri::Runtime;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::config::Facts;
use crate::images::Images;
use crate::objects::Objects;
use crate::pods::{self, Pods};
use crate::registration::{self, Registration};
use crate::server;
use crate::shared::{Settings, Shared};
use crate::static_pods;
use crate::tokens::Tokens;

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
    /// Pulls at a time.
    pub parallel_pulls: usize,
    /// A directory of pods that run without the API having been asked; nothing for none.
    pub static_pods: Option<PathBuf>,
    /// The pod network this kubelet configures; nothing when somebody else does.
    pub network: Option<Network>,
    /// How the kubelet's own API is served; nothing for not at all.
    pub serving: Option<Serving>,
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
    // Whatever ends this function ends everything it started.
    let stop = stop.child_token();
    let _everything = stop.clone().drop_guard();
    let informers = Informers::new(client.clone());
    let clock = informers.clock().clone();
    let recorder = Recorder::new(client.clone(), "kubelet", Some(&config.node.name), clock.clone());
    let (facts, facts_seen) = watch::channel(Arc::new(facts(&config)));
    let (network, network_seen) = watch::channel(Some("not looked at yet".to_owned()));
    let ranges = config.network.as_ref().map(|n| n.ranges.clone()).unwrap_or_default();
    let (ranges, mut ranges_seen) = watch::channel(ranges);
    let bell = Arc::new(Notify::new());

    let workers = Arc::new(Mutex::new(HashMap::new()));
    let told = pods::teller(&workers);
    let runtime_name = runtime_name(&*runtime, &stop).await;
    let shared = Arc::new(Shared {
        settings: Settings {
            root: config.node.root.clone(),
            pod_pids: config.pod_pids,
            cgroup_root: config.cgroup_root.clone(),
        },
        images: Images::new(runtime.clone(), clock.clone(), config.parallel_pulls.max(1)),
        runtime: runtime.clone(),
        runtime_name,
        client: client.clone(),
        recorder: recorder.clone(),
        clock: clock.clone(),
        cgroups,
        config_maps: Objects::new(informers.clone(), told.clone()),
        secrets: Objects::new(informers.clone(), told),
        services: informers.of::<Service>(),
        tokens: Tokens::new(client.clone(), clock),
        facts: facts_seen,
        network: network_seen,
        owners: Mutex::default(),
        stop: stop.clone(),
    });
    let name = config.node.name.clone();
    let me = informers.filtered::<Node>(Filter::fields(format!("metadata.name={name}")));
    let pods = Pods::new(workers, shared.clone(), me);
    let serving = match config.serving.clone() {
        Some(serving) => Some(serve(serving, &config, &shared, &pods).await?),
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
        bell: bell.clone(),
    };
    let mut tasks = tokio::task::JoinSet::new();
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
    if let Some(dir) = config.static_pods {
        tasks.spawn(static_pods::run(dir, shared.clone(), pods.clone(), assigned.clone(), stop.clone()));
    }
    tokio::select! {
        () = assigned.synced() => pods.sweep().await,
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
        cgroups: shared.cgroups.clone(),
        cgroup_root: config.cgroup_root.clone(),
        root: config.node.root.clone(),
        log_dir: config.log_dir.clone(),
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
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "maxParallelImagePulls": config.parallel_pulls,
        "staticPodPath": config.static_pods,
    }})
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
