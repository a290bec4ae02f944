//! `trireme server`: store, certificates, API server and the parts around it, in one process.
//!
//! Start-up is one line of dependencies: certificates and store (side by side), then the API server, then whatever watches
//! it. Everything after the API server is a [`component`](crate::component) that reaches it through the in-process client
//! with an identity of its own. Stopping goes the other way.

mod address;
mod certificates;
pub mod flags;
mod several;
mod watching;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::cli::{Engine, Server as Options, Store as StoreOptions};
use crate::component::Components;
use crate::parts::{self, Identities};
use crate::servers::{Directory, Managed};
use crate::signals::Signals;
use certificates::Certificates;
use several::{admission, endpoint_reconciler, join_servers, start_member};
use watching::{start_balancer, start_parts};

/// How long components may take to stop before they are cut off.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the store may still be held by a server that was killed.
const PREDECESSOR: Duration = Duration::from_secs(10);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be made.
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDirectory {
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A setting makes no sense.
    #[error("--{option}: {message}")]
    Option { option: &'static str, message: String },
    /// The certificates cannot be made or read.
    #[error("certificates: {0}")]
    Pki(#[from] pki::Error),
    /// The store cannot be opened.
    #[error("store: {0}")]
    Store(#[from] store::Error),
    /// The API server did not start.
    #[error("{0}")]
    ApiServer(#[from] apiserver::Error),
    /// The signals that stop the server cannot be listened for.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// This server cannot be one of the cluster's.
    #[error("{0}")]
    Joining(String),
    /// A step of start-up panicked; the log says where.
    #[error("start-up failed")]
    Panicked,
}

/// An open store, and what it takes to close it.
struct Opened {
    store: Arc<dyn store::Store>,
    embedded: Option<Arc<store::embedded::Embedded>>,
    etcd: Option<Arc<store::etcd::Etcd>>,
    /// The member of etcd that this server looks after.
    managed: Option<Managed>,
}

/// What the parts of this process count, for its one page of figures.
const FIGURES: [fn(&mut String); 7] = [
    scheduler::metrics::write,
    controllers::metrics::write,
    informer::metrics::write,
    client::metrics::write,
    ::netpol::figures::write,
    threads::write,
    otlp::write_metrics,
];

/// Runs until a signal stops it.
pub async fn run(mut options: Options) -> Result<(), Error> {
    let started = Instant::now();
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let data_dir = options.data_dir.clone();
    crate::data_dir::prepare(&data_dir, !options.disable_agent)
        .map_err(|source| Error::DataDirectory { path: data_dir.clone(), source })?;
    let advertise = options.advertise_address.unwrap_or_else(|| address::advertised(options.bind_address));
    let managed = tokio::select! {
        managed = join_servers(&mut options, advertise) => managed?,
        name = signals.next() => {
            tracing::info!("{name}: stopped before this server was one of the cluster's");
            return Ok(());
        }
    };
    let service_address = service_address(&options)?;
    let runtime_config = apiserver::registry::RuntimeConfig::parse(&options.runtime_config)
        .map_err(|message| Error::Option { option: "runtime-config", message })?;
    let gates = options.gates.read()?;
    let traces = gates.start_tracing(&advertise.to_string())?;

    let wanted = certificates_wanted(&options, service_address, advertise);
    let keys = make_keys(&data_dir, &wanted);
    let opened = open_store(&options.store, &data_dir, managed).await?;
    let keys = Arc::new(keys.await.map_err(|_| Error::Panicked)??);

    // Clients that wait for the file may use it at once: early ones wait for the listener, not for readiness.
    if options.https_port != 0 {
        let address = SocketAddr::new(options.bind_address, options.https_port);
        write_kubeconfig(&data_dir, address, &keys, gates.serving.own.as_ref())?;
    }
    let parts = Arc::<apiserver::components::Parts>::default();
    let backups = opened.embedded.as_ref().map(|store| {
        let directory = options.backups.directory(&data_dir);
        Arc::new(crate::backup::Keeper::new(Arc::clone(store), &data_dir, directory))
    });
    let admission = opened.etcd.as_ref().map(|etcd| Arc::new(admission(&options, etcd, opened.managed.is_some())));
    let certificates = Certificates::of(&keys, &gates.serving)?;
    let start = async || {
        let mut config = base_config(Arc::clone(&opened.store), &keys)?;
        config.peer_authority = opened.etcd.as_ref().map(|_| keys.authority_pem());
        gates.configure(&mut config, &keys)?;
        certificates.configure(&mut config);
        configure(&mut config, &options, advertise);
        config.joining = admission.clone().map(|admission| admission as _);
        config.runtime_config = runtime_config.clone();
        config.parts = Arc::clone(&parts);
        config.backups = backups.clone().map(|keeper| keeper as _);
        Ok(apiserver::Server::start(config).await?)
    };
    let server = tokio::select! {
        server = start_patiently(start) => server?,
        name = signals.next() => {
            tracing::info!("{name}: stopped before the server was ready");
            opened.close().await;
            return Ok(());
        }
    };
    if options.https_port == 0 {
        write_kubeconfig(&data_dir, server.address, &keys, gates.serving.own.as_ref())?;
    }
    let (after, kubeconfig) = (started.elapsed().as_millis(), kubeconfig_file(&data_dir));
    let try_this = format!("kubectl --kubeconfig {} get namespaces", kubeconfig.display());
    tracing::info!("serving on https://{} after {after} ms; try: {try_this}", server.address);

    let mut components = Components::reporting(parts);
    let identities = Identities::InProcess(server.handler());
    let place = SocketAddr::new(advertise, server.address.port());
    start_parts(&mut components, &options, &identities, &keys, place);
    start_member(&mut components, &opened, admission.as_deref(), &identities);
    certificates::start(&mut components, certificates, (&data_dir, wanted), server.address, opened.member());
    start_balancer(&mut components, &options, &identities, place);
    start_backups(&mut components, &options.backups, backups);
    let cluster = agent_cluster(&options, service_address);
    let believed = gates.believed(&keys);
    start_addons(&mut components, &options, place, cluster.clone(), &identities, (&keys, believed))?;
    start_agent(&mut components, &options, advertise, cluster, &identities, &keys);
    crate::notify::ready();
    stop_when_told(signals, stop(components, server, opened, traces)).await;
    Ok(())
}

/// Waits for a signal, then for the stop; a second signal ends that too.
async fn stop_when_told(mut signals: Signals, stop: impl Future<Output = ()>) {
    let name = signals.next().await;
    tracing::info!("{name}: stopping");
    crate::notify::say("STOPPING=1");
    tokio::select! {
        () = stop => tracing::info!("stopped"),
        name = signals.next() => tracing::warn!("{name} again: leaving at once"),
    }
}

/// The address of the `kubernetes` Service, if the ranges are such that there can be one.
fn service_address(options: &Options) -> Result<IpAddr, Error> {
    let first = address::first_service_address(&options.service_cluster_ip_range)
        .map_err(|message| Error::Option { option: "service-cluster-ip-range", message })?;
    address::one_of_each_family(&options.controllers.cluster_cidr)
        .map_err(|message| Error::Option { option: "cluster-cidr", message })?;
    Ok(first)
}

/// The settings that come from the options alone.
fn configure(config: &mut apiserver::Config, options: &Options, advertise: IpAddr) {
    config.address = SocketAddr::new(options.bind_address, options.https_port);
    config.advertise = advertise;
    config.endpoint_reconciler = endpoint_reconciler(options);
    config.service_ranges = options.service_cluster_ip_range.iter().map(ToString::to_string).collect();
    config.node_ports = options.service_node_port_range.0..=options.service_node_port_range.1;
    config.event_ttl = options.event_ttl;
    if let Some(host) = &options.gates.serving.external_hostname {
        let place = if host.contains(':') { host.clone() } else { format!("{host}:{}", options.https_port) };
        let keys_at = &mut config.authentication.service_accounts.keys_at;
        keys_at.get_or_insert_with(|| format!("https://{place}/openid/v1/jwks"));
    }
    config.shutdown_delay = options.gates.shutdown.shutdown_delay_duration;
    config.figures = FIGURES.to_vec();
    config.component = crate::flagz::component("apiserver");
}

/// What the certificates say.
fn certificates_wanted(options: &Options, service_address: IpAddr, advertise: IpAddr) -> pki::Options {
    pki::Options {
        now: Timestamp::now(),
        service_address,
        cluster_domain: options.cluster_domain.clone(),
        hosts: address::host_names(options, advertise),
    }
}

/// Makes or renews the certificates, beside whatever else is to be done meanwhile.
fn make_keys(data_dir: &Path, wanted: &pki::Options) -> tokio::task::JoinHandle<Result<pki::Cluster, pki::Error>> {
    let (directory, wanted) = (data_dir.join("pki"), wanted.clone());
    tokio::task::spawn_blocking(move || pki::Cluster::ensure(&directory, &wanted))
}

/// The way of the start, backwards.
async fn stop(components: Components, server: apiserver::Server, opened: Opened, traces: Option<otlp::Sender>) {
    components.stop(PATIENCE).await;
    server.stop().await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    opened.close().await;
}

impl Opened {
    /// The member of etcd that this server looks after, and the store in it.
    fn member(&self) -> Option<(Directory, Arc<store::etcd::Etcd>)> {
        let directory = self.managed.as_ref().map(|managed| managed.directory.clone());
        directory.zip(self.etcd.clone())
    }

    async fn close(self) {
        if let Some(store) = self.embedded {
            store.close().await;
        }
        if let Some(managed) = self.managed {
            managed.stop().await;
        }
    }
}

/// The settings that come from the certificates.
fn base_config(store: Arc<dyn store::Store>, keys: &pki::Cluster) -> Result<apiserver::Config, Error> {
    let tls = pki::Reception::new(&keys.server, &keys.authority_pem(), &pki::Handshake::default())?;
    let kubelet_client = pki::client_config(&keys.kubelet_client, &keys.authority_pem())?;
    let token_key = pki::PrivateKey::from_pem(keys.service_account_key.to_pem())?;
    Ok(apiserver::Config::new(store, tls, kubelet_client, token_key))
}

/// Starts the API server. A store that is not there yet, as an etcd may be, is waited for: the machines of a cluster come up
/// in any order.
async fn start_patiently(
    start: impl AsyncFn() -> Result<apiserver::Server, Error>,
) -> Result<apiserver::Server, Error> {
    let mut delay = Duration::from_millis(100);
    loop {
        let error = match start().await {
            Err(Error::ApiServer(error)) if is_unavailable(&error) => error,
            outcome => return outcome,
        };
        tracing::warn!("{error}; trying again in {delay:?}");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(2));
    }
}

fn is_unavailable(error: &apiserver::Error) -> bool {
    match error {
        apiserver::Error::Load(error) => matches!(error, store::Error::Unavailable(_)),
        apiserver::Error::Bootstrap(error) => error.code == 503,
        _ => false,
    }
}

/// Starts what backs up the store by itself, if it shall.
fn start_backups(
    components: &mut Components,
    options: &crate::backup::Options,
    keeper: Option<Arc<crate::backup::Keeper>>,
) {
    let (Some(keeper), Some(schedule)) = (keeper, options.backup_schedule.clone()) else { return };
    let (keep, to) = (options.backup_keep, options.destination());
    components.start("backups", move |stop| {
        crate::backup::keep(Arc::clone(&keeper), schedule.clone(), keep, to.clone(), stop)
    });
}

/// The cluster's networks, as the node on this machine needs to know them.
fn agent_cluster(options: &Options, service_address: IpAddr) -> parts::agent::Cluster {
    let dns = options.cluster_dns.unwrap_or_else(|| address::tenth_service_address(service_address));
    parts::agent::Cluster {
        pods: options.controllers.cluster_cidr.clone(),
        services: options.service_cluster_ip_range.clone(),
        dns,
        domain: options.cluster_domain.clone(),
    }
}

/// Keeps the word whose certificates are believed, which is the API server's own.
fn start_authentication(components: &mut Components, identities: &Identities, believed: parts::addons::Believed) {
    let client = identities.administrator();
    components.start("authentication", move |stop| {
        let (client, believed) = (client.clone(), believed.clone());
        async move {
            loop {
                let changed = parts::addons::ensure_believed(&client, &believed).await?;
                tokio::select! {
                    () = changed => {}
                    () = stop.cancelled() => return Ok(()),
                }
            }
        }
    });
}

/// Makes what pods and new nodes expect of a cluster.
fn start_addons(
    components: &mut Components,
    options: &Options,
    place: SocketAddr,
    cluster: parts::agent::Cluster,
    identities: &Identities,
    (keys, believed): (&Arc<pki::Cluster>, parts::addons::Believed),
) -> Result<(), Error> {
    if options.disable_addons {
        start_authentication(components, identities, believed);
        return Ok(());
    }
    let manifests = options.manifests.clone().unwrap_or_else(|| options.data_dir.join("manifests"));
    let kubeconfig = kubeconfig_file(&options.data_dir);
    components.start("manifests", move |stop| crate::manifests::run(manifests.clone(), kubeconfig.clone(), stop));
    let token = parts::joining::own_token(&options.data_dir, &keys.authority.certificate().public_key.pin())?;
    let (client, authority) = (identities.administrator(), keys.authority_pem());
    let server = format!("https://{place}");
    components.start("addons", move |stop| {
        let (client, cluster, token) = (client.clone(), cluster.clone(), token.clone());
        let (server, authority, believed) = (server.clone(), authority.clone(), believed.clone());
        async move {
            let mut changed = parts::addons::ensure_kept(&client, &believed, cluster.dns).await?;
            parts::addons::ensure_network_policy(&client).await?;
            parts::addons::ensure_storage_class(&client).await?;
            parts::addons::ensure_local_path(&client).await?;
            parts::joining::ensure(&client, &server, &authority, &cluster, &token).await?;
            loop {
                tokio::select! {
                    () = changed => {
                        changed = parts::addons::ensure_kept(&client, &believed, cluster.dns).await?;
                    }
                    () = stop.cancelled() => return Ok(()),
                }
            }
        }
    });
    Ok(())
}

/// Starts this machine's node, if it is to have one.
fn start_agent(
    components: &mut Components,
    options: &Options,
    advertise: IpAddr,
    cluster: parts::agent::Cluster,
    identities: &Identities,
    keys: &Arc<pki::Cluster>,
) {
    if options.disable_agent {
        return;
    }
    let keys = Arc::clone(keys);
    let addresses = match options.agent.node_ip.as_slice() {
        [] => vec![address::of_node(advertise)],
        given => given.to_vec(),
    };
    let (identities, agent, data_dir) = (identities.clone(), options.agent.clone(), options.data_dir.clone());
    components.start("agent", move |stop| {
        let clients = parts::agent::Clients {
            kubelet: identities.node(&agent.name()),
            proxy: identities.component("kube-proxy"),
            dns: identities.component("coredns"),
            policies: identities.component("network-policy"),
        };
        let (agent, data_dir, cluster) = (agent.clone(), data_dir.clone(), cluster.clone());
        let (keys, addresses) = (Arc::clone(&keys), addresses.clone());
        async move {
            let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let (_renewed, certificate) = watch::channel(keys.node_server(&agent.name(), &names)?);
            let serving = kubelet::Serving {
                address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), agent.kubelet_port),
                certificate,
                client_authority: keys.authority_pem(),
            };
            parts::agent::run(agent, addresses, data_dir, cluster, clients, Some(serving), stop).await
        }
    });
}

async fn open_store(options: &StoreOptions, data_dir: &Path, managed: Option<Managed>) -> Result<Opened, Error> {
    match options.store {
        Engine::Embedded => {
            let directory = crate::store::directory(data_dir);
            let packed = apiserver::registry::packed();
            let (past_time, past_bytes) = (options.history, options.history_size);
            let options = store::embedded::Options {
                predecessor: PREDECESSOR,
                packed,
                past_time,
                past_bytes,
                ..Default::default()
            };
            let open = move || store::embedded::Embedded::open(&directory, options);
            let embedded = tokio::task::spawn_blocking(open).await.map_err(|_| Error::Panicked)??;
            Ok(Opened { store: embedded.clone(), embedded: Some(embedded), etcd: None, managed })
        }
        Engine::Etcd => {
            let options = store::etcd::Options {
                endpoints: options.etcd_servers.clone(),
                ca_file: options.etcd_cafile.clone(),
                cert_file: options.etcd_certfile.clone(),
                key_file: options.etcd_keyfile.clone(),
                prefix: options.etcd_prefix.clone(),
                compaction: Some(options.etcd_compaction_interval).filter(|interval| !interval.is_zero()),
                ..store::etcd::Options::default()
            };
            let etcd = store::etcd::Etcd::open(&options)?;
            Ok(Opened { store: etcd.clone(), embedded: None, etcd: Some(etcd), managed })
        }
    }
}

fn kubeconfig_file(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.kubeconfig")
}

/// Writes the administrator's kubeconfig, unless it already says the same.
fn write_kubeconfig(
    data_dir: &Path,
    address: SocketAddr,
    keys: &pki::Cluster,
    own: Option<&crate::tls::Files>,
) -> Result<(), Error> {
    let server = format!("https://{}", address::reachable(address));
    let mut authority = keys.authority_pem();
    // Whoever signed it is in the file, or the certificate itself is all that there is to believe.
    if let Some(pair) = own.and_then(|files| files.read().ok()) {
        authority.push_str(&pair.chain_pem);
    }
    let text = pki::kubeconfig(&server, &authority, "kubernetes-admin", &keys.admin);
    let file = kubeconfig_file(data_dir);
    if std::fs::read_to_string(&file).is_ok_and(|present| present == text) {
        return Ok(());
    }
    Ok(pki::write_private(&file, &text)?)
}
