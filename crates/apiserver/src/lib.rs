//! The API server: one front door, one gauntlet, one generic REST flow over every resource.
//!
//! A reader starts at [`gates`], where every request passes a list of gates, then `router` here, which sends it to whoever
//! answers it: mostly to [`rest`], a file per verb. Reads and watches are answered from [`cache`]. [`serve`] is the only part
//! that knows HTTP on the wire; [`Server::start`] ties everything together.

mod aggregation;
pub mod backups;
mod bootstrap;
pub mod components;
mod dialer;
pub mod discovery;
mod documents;
mod extension;
mod health;
pub mod joining;
mod loopback;
mod messages;
pub mod metrics;
pub mod openapi;
mod page;
mod past;
mod peers;
pub mod proxy;
mod resource_metrics;
mod reviews;
mod router;
pub mod serve;
mod servers;
pub mod version;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use ::{gates, rest};
pub use common::Clock;
pub use gates::audit;
use gates::authentication::{self, Authenticator, service_accounts::ServiceAccounts, tracking};
use gates::authorization;
use gates::flow_control::FlowControl;
use gates::{Fence, Gates};
use jiff::Timestamp;
use machinery::rest::Handler;
use machinery::status::ApiError;
use rest::Api;
use rest::admission::Admission;
use rest::allocation::{Allocator, Cidr};
use rest::registry::{Registry, RuntimeConfig};
pub use rest::{admission, registry};
use storage::Lookup;
use storage::cache::Caches;
use storage::encryption::{Encrypted, Layout};
pub use storage::{cache, encryption};
use store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use aggregation::Aggregation;
use aggregator::{Aggregator, GroupVersion};
use documents::Documents;
use extension::Published;
use health::Health;
use loopback::Loopback;
use peers::Peers;
use proxy::Proxy;
use resource_metrics::ResourceMetrics;
use router::Router;
use serve::Listener;
pub use servers::EndpointReconciler;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store could not be read.
    #[error("cannot load the store: {0}")]
    Load(#[from] store::Error),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The first objects could not be made.
    #[error("cannot create the first objects: {0}")]
    Bootstrap(ApiError),
}

/// What a server needs to know.
pub struct Config {
    /// Where it keeps everything.
    pub store: Arc<dyn Store>,
    /// Where it listens; port 0 takes any.
    pub address: SocketAddr,
    /// The address that clients inside the cluster reach it at.
    pub advertise: std::net::IpAddr,
    /// How the endpoints of the `kubernetes` Service come about.
    pub endpoint_reconciler: EndpointReconciler,
    /// Its certificate and whom it trusts.
    pub tls: pki::Reception,
    /// How it shows itself to kubelets, and whom it takes for one.
    pub kubelet_client: Arc<rustls::ClientConfig>,
    /// How it shows itself to the servers of other groups, whom it tells on whose behalf it asks.
    pub front_proxy_client: Option<pki::Pair>,
    /// Who vouches for the other servers of the cluster, in PEM: they are asked for what this one does not have. None asks nobody.
    pub peer_authority: Option<String>,
    /// Where the other servers reach this one, if not where everybody does.
    pub peer_advertise: Option<SocketAddr>,
    /// Signs the tokens of service accounts.
    pub service_account_key: pki::PrivateKey,
    /// Who is believed to be whom.
    pub authentication: authentication::Settings,
    /// Who decides what is allowed.
    pub authorization: authorization::Settings,
    /// Which admission plug-ins run, and their configuration.
    pub admission: admission::Settings,
    /// What is written about requests; nothing without a policy.
    pub audit: Option<audit::Settings>,
    /// How objects are sealed in the store; not at all without a configuration.
    pub encryption: Option<encryption::Settings>,
    /// How many requests may be under way.
    pub flow_control: gates::flow_control::Settings,
    /// `--runtime-config`.
    pub runtime_config: RuntimeConfig,
    /// Cluster IPs: a range, or one of each family, that of the default family first.
    pub service_ranges: Vec<String>,
    pub node_ports: RangeInclusive<u16>,
    /// Seconds an Event lives.
    pub event_ttl: u64,
    /// How long it goes on answering after it was told to stop, not ready any more.
    pub shutdown_delay: Duration,
    /// How connections are served.
    pub listener: serve::Settings,
    /// How long a request may take until its answer begins.
    pub request_timeout: Duration,
    /// The shortest time, in seconds, that a watch lives when the client does not say how long.
    pub min_request_timeout: u64,
    /// Which addresses of nodes kubelets are asked at, those of the first type that a node has.
    pub kubelet_addresses: Vec<String>,
    pub clock: Clock,
    /// Write the figures of the other parts in this process, for `/metrics`.
    pub figures: Vec<fn(&mut String)>,
    /// What it says of itself at `/statusz` and `/flagz`; the paths are added here.
    pub component: rules::zpages::Component,
    /// How those parts are.
    pub parts: Arc<components::Parts>,
    /// Makes backups on request, where the store is this process's own.
    pub backups: Option<Arc<dyn backups::Backups>>,
    /// Lets other servers join, where the store is one that they can share.
    pub joining: Option<Arc<dyn joining::Joining>>,
}

impl Config {
    /// A server on this store and certificate, on any loopback port, otherwise as by default.
    pub fn new(
        store: Arc<dyn Store>,
        tls: pki::Reception,
        kubelet_client: Arc<rustls::ClientConfig>,
        service_account_key: pki::PrivateKey,
    ) -> Self {
        Self {
            store,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: std::net::IpAddr::from([127, 0, 0, 1]),
            endpoint_reconciler: EndpointReconciler::default(),
            tls,
            kubelet_client,
            front_proxy_client: None,
            peer_authority: None,
            peer_advertise: None,
            service_account_key,
            authentication: authentication::Settings::default(),
            authorization: authorization::Settings::default(),
            admission: admission::Settings::default(),
            audit: None,
            flow_control: gates::flow_control::Settings::default(),
            encryption: None,
            runtime_config: RuntimeConfig::default(),
            service_ranges: vec!["10.96.0.0/16".to_owned()],
            node_ports: 30000..=32767,
            event_ttl: 3600,
            shutdown_delay: Duration::ZERO,
            listener: serve::Settings::default(),
            request_timeout: gates::exchange::REQUEST_TIMEOUT,
            min_request_timeout: 1800,
            kubelet_addresses: proxy::ADDRESSES.map(str::to_owned).to_vec(),
            clock: Arc::new(Timestamp::now),
            figures: Vec::new(),
            component: rules::zpages::Component::default(),
            parts: Arc::default(),
            backups: None,
            joining: None,
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    gates: Arc<Gates>,
    caches: Arc<Caches>,
    health: Arc<Health>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    /// What looks after the server's own objects.
    keeping: Vec<JoinHandle<()>>,
    presence: servers::Presence,
    shutdown_delay: Duration,
}

/// The ranges of cluster IPs: one, or one of each family.
fn service_ranges(texts: &[String]) -> Result<Vec<Cidr>, Error> {
    let parse = |text: &String| {
        let usage = || format!("{text:?} is no service range: give one such as 10.96.0.0/16 or fd96::/108");
        Cidr::parse(text).ok_or_else(|| Error::Setting(usage()))
    };
    let ranges: Vec<Cidr> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    match ranges.as_slice() {
        [_] => Ok(ranges),
        [first, second] if first.family() != second.family() => Ok(ranges),
        _ => Err(Error::Setting("give one service range, or one of each IP family".to_owned())),
    }
}

fn setting(error: impl std::fmt::Display) -> Error {
    Error::Setting(error.to_string())
}

impl Server {
    /// Loads the store, makes what every cluster has from the beginning, and serves.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let service_ranges = service_ranges(&config.service_ranges)?;
        // Bound before anything slow, so that a taken port is said at once and early clients wait instead of failing.
        let listener = Listener::bind(config.address, config.tls.clone(), config.listener.clone()).await;
        let listener = listener.map_err(|source| Error::Listen { address: config.address, source })?;
        let address = listener.address().map_err(|source| Error::Listen { address: config.address, source })?;
        let place = bootstrap::Place { advertise: config.advertise, port: address.port() };
        let (clock, reconciler) = (config.clock.clone(), config.endpoint_reconciler);
        let identity = servers::Identity::new(SocketAddr::new(place.advertise, place.port), config.peer_advertise);
        let shutdown_delay = config.shutdown_delay;
        let Wired { gates, api, health, aggregator, uses, published, peers } =
            wire(config, service_ranges, place).await?;

        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listener.serve(gates.clone(), clock, stopped));
        let loopback = Loopback::new(&gates);
        let mut presence = servers::Presence::begin(&api, &loopback, place, reconciler, identity).await?;
        bootstrap::run(&api, &loopback, place, &presence.at_start()).await.map_err(Error::Bootstrap)?;
        let following = extension::start(&api, loopback.clone(), published, aggregator.clone()).await;
        let aggregating = aggregator.start(Arc::new(loopback.clone())).await;
        let keeper = bootstrap::keeper::start(&api, loopback.clone(), place, presence.servers());
        let mut keeping = vec![keeper, following, aggregating, tokio::spawn(loopback.note_uses(uses))];
        keeping.extend(peers.map(|peers| tokio::spawn(peers.run(Arc::downgrade(&api)))));
        health.set_bootstrapped();
        // Not before it is ready: those who find it here send it requests.
        presence.enter().await.map_err(Error::Bootstrap)?;
        let caches = api.caches.clone();
        Ok(Self { address, gates, caches, health, stop, serving, keeping, presence, shutdown_delay })
    }

    /// The whole server, for clients in this process.
    pub fn handler(&self) -> Arc<dyn Handler> {
        self.gates.clone()
    }

    /// Goes in this order, so that nobody who looks first is turned away: it is not ready, is not to be found, waits until that has got around, takes no more
    /// requests, ends the watches, and lets everything else that is under way finish.
    pub async fn stop(self) {
        self.health.set_stopping();
        self.presence.leave().await;
        tokio::time::sleep(self.shutdown_delay).await;
        self.stop.send_replace(true);
        self.caches.end_watches();
        // A failed join is a panic of the listener, which has been reported where it happened.
        let _ = self.serving.await;
        self.keeping.iter().for_each(JoinHandle::abort);
        self.caches.stop();
        if let Some(audit) = &self.gates.audit {
            audit.close().await;
        }
    }
}

/// Everything between a listener and the store, tied together.
struct Wired {
    gates: Arc<Gates>,
    api: Arc<Api>,
    health: Arc<Health>,
    aggregator: Arc<Aggregator>,
    /// Uses of old tokens that are to be noted.
    uses: mpsc::Receiver<tracking::Use>,
    published: Arc<Published>,
    peers: Option<Arc<Peers>>,
}

/// Ties it together, from the store upwards: what is made later is handed what was made before, and never the other way round.
async fn wire(config: Config, service_ranges: Vec<Cidr>, place: bootstrap::Place) -> Result<Wired, Error> {
    let clock = config.clock;
    let (mut store, mut encryption) = (config.store, None);
    if let Some(settings) = config.encryption {
        let encrypted = Encrypted::open(store, settings, Layout::new(registry::prefixes())).await.map_err(setting)?;
        encryption = Some(encrypted.encryption().clone());
        store = encrypted;
    }
    let caches = Caches::start(store.clone(), Registry::layout(&config.runtime_config)).await?;
    let registry = Arc::new(Registry::new(&config.runtime_config, &caches, config.event_ttl));
    let health = Arc::new(Health::new(caches.clone(), encryption.clone()));

    let authorizers = Arc::new(config.authorization.build(&*registry, &caches, &clock).map_err(setting)?);
    authorizers.follow().map_err(setting)?;
    let (tracking, uses) = tracking::tracking();
    let (key, accounts) = (config.service_account_key, config.authentication.service_accounts.clone());
    let service_accounts = Arc::new(ServiceAccounts::new(key, accounts, clock.clone(), registry.clone(), tracking));
    let (settings, accounts) = (config.authentication, service_accounts.clone());
    let authenticator = Authenticator::new(settings, accounts, registry.clone(), caches.clone(), &clock);
    let authenticator = Arc::new(authenticator.map_err(setting)?);
    authenticator.follow().map_err(setting)?;
    let flow_control = FlowControl::new(config.flow_control, &*registry).map(Arc::new);
    let audit = config.audit.map(|audit| audit::Audit::open(audit, clock.clone())).transpose();
    let audit = audit.map_err(setting)?.map(Arc::new);

    let fence = Fence { caches: caches.clone(), leases: registry.objects("coordination.k8s.io", "leases") };
    let admission = Admission::new(&registry, authorizers.clone(), config.admission).map_err(setting)?;
    let api = Arc::new(Api {
        service_accounts,
        registry,
        caches,
        store,
        admission,
        allocator: Allocator { service_ranges, node_ports: config.node_ports },
        clock,
        shortest_watch: config.min_request_timeout.max(1),
        metrics: rest::metrics::Metrics::default(),
    });
    let groups = discovery::built_in(|group, version| config.runtime_config.serves(group, version));
    let aggregator = aggregator(&api, config.front_proxy_client.clone(), &groups)?;
    let shares = config.endpoint_reconciler == EndpointReconciler::Lease;
    let peers = match (&config.peer_authority, &config.front_proxy_client) {
        (Some(authority), Some(identity)) if shares => {
            Some(Arc::new(Peers::new(place, authority, identity, aggregator.clone()).map_err(setting)?))
        }
        _ => None,
    };
    let published = Arc::new(Published::new(groups));
    let documents = Documents {
        published: published.clone(),
        aggregation: Aggregation::new(aggregator.clone()),
        peers: peers.clone(),
        health: health.clone(),
        flow_control: flow_control.clone(),
        audit: audit.clone(),
        encryption,
        figures: config.figures,
        component: config.component,
        api: api.clone(),
        server_address: format!("{}:{}", place.advertise, place.port),
    };
    let proxy = Arc::new(Proxy::new(config.kubelet_client, config.kubelet_addresses).map_err(setting)?);
    let destination = Arc::new(Router {
        api: api.clone(),
        resource_metrics: ResourceMetrics::new(api.clone(), proxy.clone()).map_err(setting)?,
        proxy,
        parts: config.parts,
        backups: config.backups,
        joining: config.joining,
        documents,
        authenticator: authenticator.clone(),
        authorizers: authorizers.clone(),
    });
    let request_timeout = config.request_timeout;
    let gates = Gates { authenticator, audit, flow_control, authorizers, fence, destination, request_timeout };
    let gates = Arc::new(gates);
    Ok(Wired { gates, api, health, aggregator, uses, published, peers })
}

/// What answers for other servers, and keeps the APIServices of this one's groups.
fn aggregator(api: &Api, identity: Option<pki::Pair>, groups: &[facts::Group]) -> Result<Arc<Aggregator>, Error> {
    let cache = |group: &str, plural: &str| {
        api.registry.objects(group, plural).ok_or_else(|| setting(format!("{plural} must be served")))
    };
    let built_in = groups
        .iter()
        .flat_map(|group| group.versions.iter().map(|version| GroupVersion::new(&*group.name, &*version.name)));
    Ok(Aggregator::new(aggregator::Settings {
        sources: aggregator::Sources {
            caches: api.caches.clone(),
            store: api.store.clone(),
            api_services: cache("apiregistration.k8s.io", "apiservices")?,
            services: cache("", "services")?,
            slices: cache("discovery.k8s.io", "endpointslices")?,
        },
        transport: Arc::new(dialer::Dialer::default()),
        identity,
        built_in: built_in.collect(),
        offered: vec![resource_metrics::offered()],
        clock: api.clock.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_store_name_their_resource() {
        let layout = Layout::new(registry::prefixes());
        for (key, expect) in [
            ("/registry/secrets/default/a", ("", "secrets")),
            ("/registry/services/specs/default/a", ("", "services")),
            ("/registry/services/endpoints/default/a", ("", "endpoints")),
            ("/registry/minions/n1", ("", "nodes")),
            ("/registry/deployments/default/a", ("apps", "deployments")),
            ("/registry/ingress/default/a", ("networking.k8s.io", "ingresses")),
            ("/registry/apiregistration.k8s.io/apiservices/v1.", ("apiregistration.k8s.io", "apiservices")),
        ] {
            assert_eq!(layout.resource_of(key), Some(expect), "{key}");
        }
    }
}
