//! The proxy at work: changed Services in, transactions applied.
//!
//! Handlers only note which Services changed. One task takes all that were noted, computes what they are now and
//! applies the difference; what changes meanwhile is noted for the next turn. A transaction the kernel refuses, or word
//! of somebody else's, means that the tables are not what we think: then the whole is written anew, which always is one
//! transaction as well.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use informer::{Change, EventType, Filter, Informer, Informers, Key, Recorder, Turns, guard};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use node::{nft, run};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::conntrack::{self, Serving};
use crate::health::HealthServers;
use crate::http;
use crate::model::{Endpoints, Family, NodeView, ServiceName, ServicePort, health_check_port};
use crate::plan::family_word;
use crate::render;
use crate::rules::{Changed, Rules, Transaction};
use crate::state::State;
use crate::sysctls;
use crate::view::view;
use crate::{Config, Error};

/// The index of slices by their Service.
const BY_SERVICE: &str = "service";
/// First and longest wait before a refused full write is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How long listing a table may take.
const LISTING: Duration = Duration::from_secs(30);
/// How long `ip` may take.
const ROUTING: Duration = Duration::from_secs(10);

/// What changed since the last turn.
#[derive(Debug)]
struct Noted {
    state: Arc<State>,
    services: Mutex<HashSet<ServiceName>>,
    node: AtomicBool,
    /// The kernel's tables are not what we wrote.
    table: AtomicBool,
    wake: Notify,
}

impl Noted {
    fn new(state: Arc<State>) -> Self {
        let (services, node, table, wake) = Default::default();
        Self { state, services, node, table, wake }
    }

    fn service(&self, name: Option<ServiceName>) {
        if let Some(name) = name {
            self.services.lock().insert(name);
            self.wake();
        }
    }

    fn table(&self) {
        self.table.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn node(&self) {
        self.node.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        self.state.queued();
        self.wake.notify_one();
    }
}

/// A Service as the caches have it.
struct Current {
    name: ServiceName,
    service: Option<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
}

impl Current {
    fn changed(&self) -> Changed<'_> {
        Changed {
            name: self.name.clone(),
            service: self.service.as_deref(),
            slices: self.slices.iter().map(Arc::as_ref).collect(),
        }
    }
}

/// The proxy of one node.
pub(crate) struct Proxy {
    config: Config,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    ranges: Informer<ServiceCIDR>,
    noted: Arc<Noted>,
    recorder: Recorder,
    state: Arc<State>,
    health: HealthServers,
    rules: Rules,
    /// Deletions the kernel refused; harmless, and tried once more.
    unswept: String,
}

impl Turns for Proxy {
    /// After a panic the tables may be anything: after a while they are written anew.
    async fn take_turn(&mut self) {
        let node = self.config.node_name.clone();
        if guard::caught("service proxy", &node, self.turn()).await.is_none() {
            self.state.failed(true);
            tokio::time::sleep(RETRY.1).await;
            self.noted.table();
        }
    }
}

impl Proxy {
    pub(crate) async fn new(config: Config, informers: &Informers) -> Result<Self, Error> {
        let state = Arc::new(State::default());
        let noted = Arc::new(Noted::new(state.clone()));
        let services = informers.of::<Service>();
        let slices = informers.of::<EndpointSlice>();
        let nodes = informers.filtered::<Node>(Filter::fields(format!("metadata.name={}", config.node_name)));
        let ranges = informers.of::<ServiceCIDR>();
        slices.add_index(BY_SERVICE, |slice| {
            ServiceName::of_slice(slice).map(|name| name.to_string()).into_iter().collect()
        });
        let note = noted.clone();
        services.subscribe(move |change| note.service(ServiceName::of(change.object())));
        let note = noted.clone();
        slices.subscribe(move |change: &Change<EndpointSlice>| {
            note.service(change.before().and_then(|slice| ServiceName::of_slice(slice)));
            note.service(change.after().and_then(|slice| ServiceName::of_slice(slice)));
        });
        let note = noted.clone();
        nodes.subscribe(move |_| note.node());
        let note = noted.clone();
        ranges.subscribe(move |_| note.node());
        let recorder =
            Recorder::new(informers.client().clone(), "kube-proxy", Some(&config.node_name), informers.clock().clone());
        let view = view(&config, None, &[]).await?;
        let health = HealthServers::new(&config.node_name, state.clone());
        let rules = Rules::new(view);
        let unswept = String::new();
        Ok(Self { config, services, slices, nodes, ranges, noted, recorder, state, health, rules, unswept })
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        // Ends with this function, however it ends.
        let mut servers = JoinSet::new();
        if let Some(address) = self.config.healthz_address {
            let state = self.state.clone();
            servers.spawn(http::serve(listen(address).await?, move |path| state.health(path)));
        }
        if let Some(address) = self.config.metrics_address {
            let state = self.state.clone();
            servers.spawn(http::serve_at(address, move |path| state.metrics(path)));
        }
        servers.spawn(watch_tables(self.noted.clone()));
        // Until the Services are known, their addresses must not leave the machine; rules of an earlier run do better.
        if nft::list_table(nft::Family::Ip, render::TABLE).await?.is_empty() {
            nft::apply(&self.rules.replacement()).await?;
        }
        // Not before: the kernel has these settings once something tracks connections.
        sysctls::set(Path::new("/"), &self.config.conntrack);
        let synced = async {
            self.services.synced().await;
            self.slices.synced().await;
            self.nodes.synced().await;
        };
        tokio::select! {
            () = synced => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        self.noted.node();
        let noted = self.noted.clone();
        // A transaction is whole or not at all, so leaving in the middle of a turn harms nothing.
        informer::turns(&mut self, &noted.wake, &shutdown).await;
        Ok(())
    }

    async fn turn(&mut self) {
        let names: Vec<ServiceName> = self.noted.services.lock().drain().collect();
        let node_changed = self.noted.node.swap(false, Ordering::Relaxed);
        if self.noted.table.swap(false, Ordering::Relaxed) {
            tracing::warn!("somebody else changed the service rules; writing all of them");
            let view = self.view().await.unwrap_or_else(|| self.rules.node().clone());
            self.rewrite(view).await;
        } else if node_changed
            && let Some(view) = self.view().await.filter(|view| view != self.rules.node() || !self.state.is_written())
        {
            self.rewrite(view).await;
        } else {
            self.apply(&names).await;
        }
    }

    /// Applies what the named Services are now.
    async fn apply(&mut self, names: &[ServiceName]) {
        let (timer, begun) = (hops::stage(hops::Stage::Endpoint, "apply"), Instant::now());
        let current: Vec<Current> = names.iter().map(|name| self.current(name)).collect();
        let changed: Vec<Changed<'_>> = current.iter().map(Current::changed).collect();
        let transaction = self.rules.update(&changed);
        if !self.unswept.is_empty() {
            let again = std::mem::take(&mut self.unswept);
            if let Err(error) = nft::apply(&again).await {
                tracing::debug!(%error, "unused chains stay until the next full write");
            }
        }
        if !transaction.is_empty() {
            if let Err(error) = write(&transaction).await {
                tracing::warn!(%error, "the kernel's rules are not what they were; writing all of them");
                self.state.failed(false);
                self.rewrite(self.rules.node().clone()).await;
                return;
            }
            self.state.written(false, begun.elapsed());
            if let Some(service) = current.iter().find_map(|current| current.service.as_ref()) {
                let meta = &service.metadata;
                let revision = meta.resource_version.as_ref().and_then(|r| r.parse().ok()).unwrap_or(0);
                timer.end(meta.uid.as_deref().unwrap_or_default(), "", revision);
            }
        } else {
            self.state.settled();
        }
        let sweep = transaction.sweep();
        if !sweep.is_empty() && nft::apply(&sweep).await.is_err() {
            self.unswept = sweep;
        }
        self.follow_up(&current).await;
    }

    /// Computes everything from the caches and writes it as one transaction, until the kernel takes it.
    async fn rewrite(&mut self, view: NodeView) {
        let begun = Instant::now();
        let mut wait = RETRY.0;
        loop {
            self.noted.services.lock().clear();
            let services = self.services.list();
            let slices = self.slices.list();
            self.rules = Rules::build(services.iter().map(Arc::as_ref), slices.iter().map(Arc::as_ref), view.clone());
            self.unswept.clear();
            let replacement = self.rules.replacement_keeping(&self.listed().await);
            match nft::apply(&replacement).await {
                Ok(()) => break,
                Err(error) => tracing::error!(%error, ?wait, "cannot write the service rules"),
            }
            self.state.failed(true);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY.1);
        }
        self.state.written(true, begun.elapsed());
        self.route().await;
        let names: Vec<ServiceName> =
            self.services.list().iter().filter_map(|service| ServiceName::of(service)).collect();
        let current: Vec<Current> = names.iter().map(|name| self.current(name)).collect();
        let known: HashSet<&ServiceName> = names.iter().collect();
        self.health.keep(|name| known.contains(name));
        self.health.listen_on(self.rules.node().health_check_addresses());
        self.follow_up(&current).await;
    }

    /// The tables as they are, where a Service needs to know which clients it has. Not there is no error.
    async fn listed(&self) -> [Vec<u8>; 2] {
        let mut listed = [Vec::new(), Vec::new()];
        if self.rules.has_affinity() {
            for (listed, family) in listed.iter_mut().zip(Family::ALL) {
                let args = ["-j", "list", "table", family_word(family), render::TABLE];
                *listed = run::output("nft", &args, b"", LISTING).await.unwrap_or_default();
            }
        }
        listed
    }

    /// Gives Service addresses a route. A refusal is only a warning: where there is a default route, all goes on as before.
    async fn route(&self) {
        let batch = self.rules.routes();
        if !batch.is_empty()
            && let Err(error) = run::output("ip", &["-batch", "-"], batch.as_bytes(), ROUTING).await
        {
            tracing::warn!(%error, "Service addresses have no route of their own");
        }
    }

    /// Health checks and tracked flows of Services whose rules are written.
    async fn follow_up(&mut self, current: &[Current]) {
        let mut serving: [Serving; 2] = Default::default();
        for Current { name, service, slices } in current {
            let endpoints = Endpoints::of(slices.iter().map(Arc::as_ref), &self.config.node_name);
            let port = service.as_deref().and_then(health_check_port);
            if let Err(error) = self.health.set(name, port.map(|port| (port, endpoints.local_ready()))).await {
                tracing::error!(%error, "cannot serve a health check");
                if let Some(service) = service {
                    let reason = "FailedToStartServiceHealthcheck";
                    self.recorder.event(&**service, EventType::Warning, reason, error.to_string());
                }
            }
            for (serving, family) in serving.iter_mut().zip(Family::ALL) {
                let ports = service.as_deref().map(|s| ServicePort::of(s, family)).unwrap_or_default();
                let mine = ports.into_iter().filter(|p| !self.rules.node().served_here.contains(&p.cluster_ip));
                serving.add(&mine.collect::<Vec<_>>(), &endpoints);
            }
        }
        for (serving, family) in serving.iter().zip(Family::ALL).filter(|(serving, _)| !serving.is_empty()) {
            match conntrack::clear(serving, family).await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::debug!(count, ?family, "forgot stale datagram flows");
                    self.state.forgot(count);
                }
                Err(error) => tracing::warn!(%error, "cannot clear stale datagram flows"),
            }
        }
    }

    fn current(&self, name: &ServiceName) -> Current {
        Current {
            name: name.clone(),
            service: self.services.get(&Key::new(&name.namespace, &name.name)),
            slices: self.slices.by_index(BY_SERVICE, &name.to_string()),
        }
    }

    async fn view(&self) -> Option<NodeView> {
        let node = self.nodes.get(&Key::cluster(&self.config.node_name));
        self.state.observe(node.as_deref());
        let ranges: Vec<IpNet> = self
            .ranges
            .list()
            .iter()
            .flat_map(|range| range.spec.iter().flat_map(|spec| &spec.cidrs).flatten())
            .filter_map(|range| range.parse().ok())
            .collect();
        match view(&self.config, node.as_deref(), &ranges).await {
            Ok(view) => Some(view),
            Err(error) => {
                tracing::error!(%error, "cannot read the node's addresses; the rules stay as they are");
                None
            }
        }
    }
}

/// Makes the rules what they should be, but for what nothing leads to any more.
async fn write(transaction: &Transaction) -> Result<(), nft::Error> {
    let prepare = transaction.prepare();
    if !prepare.is_empty() {
        nft::apply(&prepare).await?;
    }
    match transaction.elements() {
        Some(elements) => nft::change(elements).await?,
        None => nft::apply(&transaction.update()).await?,
    }
    nft::change(transaction.last()).await
}

/// Notes whenever somebody else changes our tables: deletes one, flushes a chain, takes an element out.
async fn watch_tables(noted: Arc<Noted>) {
    let watched = async { nft::Changes::open()?.on_change(render::TABLE, || noted.table()).await };
    let Err(error): std::io::Result<Infallible> = watched.await;
    tracing::warn!(%error, "nobody tells when the service rules are changed");
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}
