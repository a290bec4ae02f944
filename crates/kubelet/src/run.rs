//! Putting the kubelet together and running it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::Client;
use informer::{Filter, Informers, Recorder};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::storage::v1::CSIDriver;
use node::cgroups::Cgroups;
use node::cri::Runtime;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::sysctls::Allowed;
use crate::configuration::{Config, page};
use crate::cri_config::NodeFacts;
use crate::figures::{Counted, Figures};
use crate::images::gc::Collector;
use crate::images::{Images, Ledger};
use crate::pods::{self, Pods};
use crate::pressure;
use crate::registration::enforcement::{self, Enforcement};
use crate::registration::machine::Machine;
use crate::registration::{self, Registration};
use crate::shared::allocations::Allocations;
use crate::shared::objects::Objects;
use crate::shared::tokens::Tokens;
use crate::shared::users::Users;
use crate::shared::{Settings, Shared};
use crate::static_pods;
use crate::storage::{Plugins, Storage};
use crate::upkeep::rotation::Rotation;
use crate::upkeep::shutdown::Shutdown;
use crate::upkeep::tasks::Tasks;
use crate::volumes;
use crate::worker::Handle;
use crate::worker::certificates::Requests;
use kubeletapi::stats::{Rates, Stats, Volumes};

/// What is below the root from the beginning: pods' own directories, sockets and mounts of storage drivers, and the sockets by
/// which drivers and device plugins make themselves known.
const DIRECTORIES: [&str; 3] = ["pods", "plugins", "plugins_registry"];

/// Why the kubelet does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its own API cannot be served.
    #[error(transparent)]
    Server(#[from] kubeletapi::Error),
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

/// Runs the kubelet until it is stopped. Pods keep running; the next start takes them over.
pub async fn run(
    mut config: Config,
    client: Client,
    runtime: Arc<dyn Runtime>,
    cgroups: Option<Cgroups>,
    stop: CancellationToken,
) -> Result<(), Error> {
    // The node tells how large the disk below it is before the first pod needs it, and drivers are started that look for theirs.
    make_directories(&config.node.root)?;
    share(&config.node.root);
    let machine = Machine::read(&config.node.root);
    let sysctls = Allowed::new(&machine.kernel, &config.allowed_unsafe_sysctls).map_err(Error::Sysctls)?;
    // What is kept for the node itself is not promised to pods.
    config.node.eviction = config.eviction.thresholds.clone();
    // Whatever ends this function ends everything it started.
    let stop = stop.child_token();
    let _everything = stop.clone().drop_guard();
    let figures = Arc::new(Figures::default());
    let parts = Parts {
        channels: Channels::new(&config),
        ledger: Arc::new(Ledger::new(&config.node.root)),
        informers: Informers::new(client),
        runtime: Arc::new(Counted::new(runtime, figures.clone())),
        figures,
        machine,
        config,
        stop: stop.clone(),
    };
    let workers = Arc::default();
    let shared = Arc::new(parts.shared(sysctls, cgroups, &workers).await);
    let (pressure, shutdown) = (parts.channels.pressure.subscribe(), parts.channels.shutdown.subscribe());
    let pods = Pods::new(workers, shared.clone(), pressure, shutdown);
    let stats = Arc::new(parts.stats(&shared));
    let serving = parts.serve(&shared, &pods, &stats).await?;
    let mut tasks = Tasks::new(shared.clock.clone(), stop.clone());
    let port = serving.as_ref().map_or(parts.config.node.port, |running| running.address().port());
    parts.keep_node(&shared, &pods, port, &mut tasks);
    parts.keep_disk(&shared, &pods, stats, &mut tasks);
    tasks.spawn("runtime events", Arc::new(pods.clone()), |pods, _| Pods::clone(&pods).listen());

    let node = &parts.config.node.name;
    let assigned = parts.informers.filtered::<Pod>(Filter::fields(format!("spec.nodeName={node}")));
    pods.follow(&assigned);
    let read = static_pods::follow(parts.static_pods(), &shared, &pods, &assigned, &mut tasks, &stop);
    // What nobody wants is known only once everybody was asked.
    tokio::select! {
        _ = async { tokio::join!(assigned.synced(), read) } => {
            pods.sweep(&assigned).await;
            static_pods::sweep(&shared, &pods, &assigned).await;
        }
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    drop(tasks);
    if let Some(running) = serving {
        running.stop().await;
    }
    Ok(())
}

/// Storage drivers mount volumes from inside of containers, and containers are to see what is mounted for them later.
fn share(root: &Path) {
    match node::mounts::share(root) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(root = %root.display(), "mounts are not shared with containers before the next start without pods")
        }
        Err(error) => tracing::warn!(%error, "mounts are not shared with containers"),
    }
}

fn make_directories(root: &Path) -> Result<(), Error> {
    let made = DIRECTORIES.iter().try_for_each(|name| node::private::directory(&root.join(name)));
    made.map_err(|source| Error::Root { root: root.to_owned(), source })
}

/// What the parts of the kubelet tell each other. Each has one part that writes it.
struct Channels {
    facts: watch::Sender<Arc<NodeFacts>>,
    /// Why pods cannot have a network, by the registration.
    network: watch::Sender<Option<String>>,
    pressure: watch::Sender<pressure::Conditions>,
    /// By the machine's shutdown.
    shutdown: watch::Sender<bool>,
    /// By whoever changed what the node's status shows.
    status_changed: Arc<Notify>,
}

impl Channels {
    fn new(config: &Config) -> Self {
        let facts = NodeFacts {
            node_name: config.node.name.clone(),
            host_ips: config.node.addresses.clone(),
            cluster_dns: config.cluster_dns.clone(),
            cluster_domain: config.cluster_domain.clone(),
            resolv_conf: std::fs::read_to_string(&config.resolv_conf).unwrap_or_default(),
            seccomp_dir: config.seccomp_dir.clone(),
            log_dir: config.log_dir.clone(),
            ..NodeFacts::default()
        };
        Self {
            facts: watch::Sender::new(Arc::new(facts)),
            network: watch::Sender::new(Some("not looked at yet".to_owned())),
            pressure: watch::Sender::default(),
            shutdown: watch::Sender::default(),
            status_changed: Arc::default(),
        }
    }
}

/// What the kubelet's parts are made from.
struct Parts {
    config: Config,
    machine: Machine,
    informers: Informers,
    runtime: Arc<dyn Runtime>,
    figures: Arc<Figures>,
    ledger: Arc<Ledger>,
    channels: Channels,
    stop: CancellationToken,
}

impl Parts {
    async fn shared(
        &self,
        sysctls: Allowed,
        cgroups: Option<Cgroups>,
        workers: &Arc<Mutex<HashMap<String, Handle>>>,
    ) -> Shared {
        let Self { config, informers, runtime, figures, stop, .. } = self;
        let (client, clock, node) = (informers.client().clone(), informers.clock().clone(), &config.node);
        let on_change = pods::on_reference_change(workers);
        let me = informers.filtered::<Node>(Filter::fields(format!("metadata.name={}", node.name)));
        let storage = Storage::new(
            node.root.clone(),
            node.name.clone(),
            informers.of::<CSIDriver>(),
            me.clone(),
            (client.clone(), clock.clone()),
            (self.channels.status_changed.clone(), config.disks.clone()),
            on_change.clone(),
        );
        Shared {
            settings: Settings {
                root: node.root.clone(),
                pod_pids: config.pod_pids,
                cgroup_root: config.cgroup_root.clone(),
                sysctls,
                selinux: config.selinux.clone(),
            },
            images: Images::new(
                runtime.clone(),
                clock.clone(),
                figures.clone(),
                self.ledger.clone(),
                config.parallel_pulls,
                node.root.join("config.json"),
            ),
            runtime: runtime.clone(),
            runtime_name: runtime_name(&**runtime, stop).await,
            recorder: Recorder::new(client.clone(), "kubelet", Some(&node.name), clock.clone()),
            cgroups,
            config_maps: Objects::new(informers.clone(), on_change.clone()),
            secrets: Objects::new(informers.clone(), on_change.clone()),
            trust_bundles: Objects::new(informers.clone(), on_change.clone()),
            claims: Objects::new(informers.clone(), on_change.clone()),
            requests: Requests::new(informers.clone(), &node.name, on_change),
            services: informers.of::<Service>(),
            tokens: Tokens::new(client.clone(), clock.clone()),
            client,
            clock,
            facts: self.channels.facts.subscribe(),
            network: self.channels.network.subscribe(),
            pod_network: config.pod_network.clone(),
            owners: Mutex::default(),
            figures: figures.clone(),
            shares: AtomicU64::new(0),
            users: Users::new(&node.root, node.max_pods),
            allocations: Allocations::default(),
            me,
            storage: Arc::new(storage),
            stop: stop.clone(),
        }
    }

    fn stats(&self, shared: &Shared) -> Stats {
        let config = &self.config;
        Stats {
            node: config.node.name.clone(),
            root: config.node.root.clone(),
            pods: volumes::pods_dir(&config.node.root),
            log_dir: config.log_dir.clone(),
            cgroups: shared.cgroups.clone(),
            cgroup_root: config.cgroup_root.clone(),
            rates: Rates::default(),
            volumes: Volumes::new(config.volume_stats_period, Some(shared.storage.clone())),
        }
    }

    async fn serve(
        &self,
        shared: &Arc<Shared>,
        pods: &Pods,
        stats: &Arc<Stats>,
    ) -> Result<Option<kubeletapi::Running>, Error> {
        let config = &self.config;
        let Some(serving) = config.serving.clone() else { return Ok(None) };
        let started = kubeletapi::Server::start(kubeletapi::Config {
            address: serving.address,
            node_name: config.node.name.clone(),
            certificate: serving.certificate,
            client_authority: serving.client_authority,
            client: shared.client.clone(),
            runtime: shared.runtime.clone(),
            pods: Arc::new(pods.clone()),
            clock: shared.clock.clone(),
            stats: stats.clone(),
            system_logs: config.system_logs.clone(),
            local_path: config.local_path.clone(),
            configuration: page::configz(config),
            component: config.component.clone(),
        });
        Ok(Some(started.await?))
    }

    /// The node's object and lease, what all pods may use together, and the machine's shutdown.
    fn keep_node(&self, shared: &Arc<Shared>, pods: &Pods, port: u16, tasks: &mut Tasks) {
        let Self { config, channels, .. } = self;
        let registration = Registration {
            config: registration::Config { port, ..config.node.clone() },
            informers: self.informers.clone(),
            recorder: shared.recorder.clone(),
            runtime: shared.runtime.clone(),
            facts: channels.facts.clone(),
            network: channels.network.clone(),
            pressure: channels.pressure.subscribe(),
            shutdown: channels.shutdown.subscribe(),
            status_changed: channels.status_changed.clone(),
            storage: shared.storage.clone(),
        };
        tasks.spawn("node registration", Arc::new(registration), Registration::run);
        let plugins = Plugins {
            dir: config.node.root.join("plugins_registry"),
            node: config.node.name.clone(),
            client: shared.client.clone(),
            drivers: shared.storage.drivers.clone(),
            objects: shared.storage.objects.clone(),
        };
        tasks.spawn("plug-ins", Arc::new(plugins), Plugins::run);
        if let Some(cgroups) = shared.cgroups.clone() {
            let enforcement = Enforcement {
                cgroups,
                name: config.cgroup_root.clone(),
                limits: enforcement::limits(&config.node, &self.machine),
                recorder: shared.recorder.clone(),
                node: config.node.reference(),
                clock: shared.clock.clone(),
            };
            tasks.spawn("node allocatable", Arc::new(enforcement), Enforcement::run);
        }
        let shutdown = Shutdown {
            config: config.shutdown.clone(),
            pods: pods.clone(),
            begun: channels.shutdown.clone(),
            status_changed: channels.status_changed.clone(),
        };
        tasks.spawn("node shutdown", Arc::new(shutdown), Shutdown::run);
    }

    /// What keeps the disk from filling up, and the node from running out of anything else.
    fn keep_disk(&self, shared: &Arc<Shared>, pods: &Pods, stats: Arc<Stats>, tasks: &mut Tasks) {
        let config = &self.config;
        let collector = Arc::new(Collector::new(
            shared.runtime.clone(),
            shared.clock.clone(),
            shared.recorder.clone(),
            config.node.reference(),
            config.image_gc.clone(),
            self.ledger.clone(),
        ));
        tasks.spawn("image garbage collection", collector.clone(), Collector::run);
        let manager = pressure::Manager {
            config: config.eviction.clone(),
            root: config.node.root.clone(),
            allocatable_memory: self.machine.memory - config.node.reserved_memory,
            runtime: shared.runtime.clone(),
            stats,
            pods: pods.clone(),
            collector,
            recorder: shared.recorder.clone(),
            figures: self.figures.clone(),
            node: config.node.reference(),
            clock: shared.clock.clone(),
            conditions: self.channels.pressure.clone(),
            status_changed: self.channels.status_changed.clone(),
        };
        tasks.spawn("eviction", Arc::new(manager), pressure::Manager::run);
        let rotation = Rotation {
            config: config.rotation.clone(),
            runtime: shared.runtime.clone(),
            clock: shared.clock.clone(),
            log_dir: config.log_dir.clone(),
        };
        tasks.spawn("log rotation", Arc::new(rotation), Rotation::run);
    }

    fn static_pods(&self) -> static_pods::Sources {
        let config = &self.config;
        static_pods::Sources {
            files: config.static_pods.clone().map(|dir| (dir, config.static_pods_period)),
            url: config.static_url.clone(),
        }
    }
}

/// The runtime's name, which every container id begins with.
async fn runtime_name(runtime: &dyn Runtime, stop: &CancellationToken) -> String {
    let mut backoff = informer::Backoff::new(Duration::from_millis(50), Duration::from_secs(5), 0.2);
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
