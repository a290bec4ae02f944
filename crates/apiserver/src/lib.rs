//! The API server: one front door, one gauntlet, one generic REST flow over every resource.
//!
//! A reader starts at [`gates`], whose one file is the way of a request, then [`rest`] (a file per verb) and [`cache`]
//! (where reads and watches are answered from). [`registry`] says which resources there are; what differs from kind to
//! kind is a strategy there. [`serve`] is the only part that knows HTTP on the wire.

pub mod admission;
pub mod audit;
pub mod bootstrap;
pub mod cache;
pub mod components;
mod convert;
pub mod discovery;
pub mod encryption;
pub mod gates;
mod health;
mod held;
mod messages;
pub mod metrics;
pub mod openapi;
pub mod proxy;
pub mod registry;
pub mod rest;
mod reviews;
mod route;
pub mod serve;
mod table;
pub mod version;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::query;
use machinery::rest::Handler;
use machinery::status::ApiError;
use store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use admission::Admission;
use cache::Caches;
use encryption::Encrypted;
use gates::authentication::{self, Authenticator, service_accounts::ServiceAccounts};
use gates::authorization;
use gates::flow_control::FlowControl;
use gates::{Chain, Documents};
use health::Health;
use proxy::Proxy;
use registry::{Registry, RuntimeConfig};
use rest::{Allocator, Api, Cidr, Clock};
use serve::{Listener, Tls};

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
    /// Its certificate and whom it trusts.
    pub tls: Tls,
    /// How it shows itself to kubelets, and whom it takes for one.
    pub kubelet_client: Arc<rustls::ClientConfig>,
    /// Signs the tokens of service accounts.
    pub service_account_key: pki::PrivateKey,
    /// Who is believed to be whom.
    pub authentication: authentication::Settings,
    /// Who decides what is allowed.
    pub authorization: authorization::Settings,
    /// Which admission plug-ins run, and what they are told.
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
    /// Node ports.
    pub node_ports: RangeInclusive<u16>,
    /// Seconds an Event lives.
    pub event_ttl: u64,
    /// The time.
    pub clock: Clock,
    /// Write the figures of the other parts in this process, for `/metrics`.
    pub figures: Vec<fn(&mut String)>,
    /// How those parts are.
    pub parts: Arc<components::Parts>,
}

impl Config {
    /// A server on this store and certificate, on any loopback port, otherwise as by default.
    pub fn new(
        store: Arc<dyn Store>,
        tls: Tls,
        kubelet_client: Arc<rustls::ClientConfig>,
        service_account_key: pki::PrivateKey,
    ) -> Self {
        Self {
            store,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: std::net::IpAddr::from([127, 0, 0, 1]),
            tls,
            kubelet_client,
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
            clock: Arc::new(Timestamp::now),
            figures: Vec::new(),
            parts: Arc::default(),
        }
    }
}

/// A running server.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    chain: Arc<Chain>,
    health: Arc<Health>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    keeper: JoinHandle<()>,
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

impl Server {
    /// Loads the store, makes what every cluster has from the beginning, and serves.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let service_ranges = service_ranges(&config.service_ranges)?;
        // Bound before anything slow, so that a taken port is said at once and early clients wait instead of failing.
        let listener = Listener::bind(config.address, config.tls).await;
        let listener = listener.map_err(|source| Error::Listen { address: config.address, source })?;
        let address = listener.address().map_err(|source| Error::Listen { address: config.address, source })?;

        let setting = |error: &dyn std::fmt::Display| Error::Setting(error.to_string());
        let (mut store, mut encryption) = (config.store, None);
        if let Some(settings) = config.encryption {
            let encrypted = Encrypted::open(store, settings).await.map_err(|error| setting(&error))?;
            encryption = Some(encrypted.encryption().clone());
            store = encrypted;
        }
        let caches = Caches::start(store.clone(), Registry::layout(&config.runtime_config)).await?;
        let registry = Registry::new(&config.runtime_config, &caches, config.event_ttl);
        let health = Arc::new(Health::new(caches.clone(), encryption.clone()));
        let authorizers = config.authorization.build(&registry, &caches, &config.clock);
        let authorizers = Arc::new(authorizers.map_err(|error| setting(&error))?);
        authorizers.follow().map_err(|error| setting(&error))?;
        let service_accounts = Arc::new(ServiceAccounts::new(
            config.service_account_key,
            config.authentication.service_accounts.clone(),
            config.clock.clone(),
        ));
        let authenticator = Authenticator::new(config.authentication, service_accounts.clone(), &config.clock);
        let authenticator = authenticator.map_err(|error| setting(&error))?;
        let flow_control = FlowControl::new(config.flow_control, &registry).map(Arc::new);
        let admission = Admission::new(&registry, authorizers.clone(), config.admission);
        let admission = admission.map_err(|error| setting(&error))?;
        let api = Arc::new(Api {
            service_accounts: service_accounts.clone(),
            registry,
            caches,
            store,
            admission,
            allocator: Allocator { service_ranges, node_ports: config.node_ports },
            clock: config.clock.clone(),
            metrics: metrics::Metrics::default(),
        });
        service_accounts.attach(api.clone());
        authenticator.attach(api.clone());
        let audit = config.audit.map(|audit| audit::Audit::open(audit, api.clock.clone())).transpose();
        let audit = audit.map_err(|error| setting(&error))?.map(Arc::new);
        let groups = discovery::built_in(|group, version| config.runtime_config.serves(group, version));
        let chain = Arc::new(Chain {
            authenticator,
            audit: audit.clone(),
            flow_control: flow_control.clone(),
            authorizers,
            api: api.clone(),
            proxy: Proxy::new(config.kubelet_client).map_err(|error| setting(&error))?,
            parts: config.parts,
            documents: Documents {
                openapi: openapi::OpenApi::new(groups.clone(), version::KUBERNETES),
                discovery: discovery::Discovery::new(groups),
                health: health.clone(),
                flow_control,
                audit,
                encryption,
                figures: config.figures,
                api: api.clone(),
                server_address: format!("{}:{}", config.advertise, address.port()),
            },
        });
        let holder = Arc::downgrade(&chain);
        chain.authenticator.follow(holder, |chain| &chain.authenticator).map_err(|error| setting(&error))?;
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listener.serve(chain.clone(), config.clock, stopped));
        let place = bootstrap::Place { advertise: config.advertise, port: address.port() };
        bootstrap::run(&api, place).await.map_err(Error::Bootstrap)?;
        let keeper = bootstrap::keeper::start(&api, place);
        let server = Self { address, chain, health, stop, serving, keeper };
        server.health.set_bootstrapped();
        Ok(server)
    }

    /// The whole chain, for clients in this process.
    pub fn handler(&self) -> Arc<dyn Handler> {
        self.chain.clone()
    }

    /// Takes no more requests, lets those under way finish, ends the watches.
    pub async fn stop(self) {
        self.health.set_stopping();
        self.keeper.abort();
        self.chain.api.caches.stop();
        self.stop.send_replace(true);
        // A failed join is a panic of the listener, which has been reported where it happened.
        let _ = self.serving.await;
        if let Some(audit) = &self.chain.audit {
            audit.close().await;
        }
    }
}
