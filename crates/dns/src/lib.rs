//! Cluster DNS: the names of Services and pods, on every node, and a forwarder for all other names.
//!
//! [`answer`] decides and is pure: a zone and a question in, records out. [`zone`] is the index it reads, kept by the
//! informers' handlers; `message` is the wire, `server` the sockets, `forward` and `cache` the names of others.
//!
//! Every node answers at the `kube-dns` Service's address itself: the address is put on the node's loopback interface,
//! the server listens there, and the service proxy leaves it alone (`served_here`). So a pod's question never leaves
//! its node, no endpoint has to be ready before the first pod asks, and names resolve while the node is cut off. An
//! administrator who runs another DNS server turns this one off, and the proxy treats the Service as any other.
//!
//! Deliberately absent: zone transfers, dynamic updates, recursion from the root, and any name that is not in the API.

pub mod answer;
mod cache;
mod forward;
mod message;
mod metrics;
mod resolv;
mod server;
mod watch;
pub mod zone;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hickory_proto::rr::Name;
use informer::Informers;
use ipnet::IpNet;
use parking_lot::RwLock;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use metrics::Metrics;
pub use resolv::nameservers;

/// What an administrator configures of the server of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the cluster's names end.
    pub domain: String,
    /// How long answers may be remembered, in seconds.
    pub ttl: u32,
    /// Where to answer: the `kube-dns` Service's addresses, port 53.
    pub listen: Vec<SocketAddr>,
    /// Put the addresses on the loopback interface first.
    pub claim: bool,
    /// Who knows all other names; none to answer SERVFAIL for them.
    pub upstreams: Vec<SocketAddr>,
    /// Who knows the names under a domain.
    pub stub_domains: Vec<(String, Vec<SocketAddr>)>,
    /// The cluster's own ranges: their reverse names are never asked elsewhere.
    pub ranges: Vec<IpNet>,
}

impl Config {
    /// The usual server of a cluster, answering at these addresses and knowing no other server.
    pub fn new(listen: Vec<SocketAddr>) -> Self {
        Self {
            domain: "cluster.local".to_owned(),
            ttl: 30,
            listen,
            claim: false,
            upstreams: Vec::new(),
            stub_domains: Vec::new(),
            ranges: Vec::new(),
        }
    }
}

/// Why the server cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A domain in the configuration is none.
    #[error("{0:?} is not a domain name")]
    Domain(String),
    /// The address could not be put on the loopback interface.
    #[error("claim {address}: {source}")]
    Claim { address: IpAddr, source: node::run::Error },
    /// A socket could not be opened, or broke.
    #[error("answer at {address}: {source}")]
    Socket {
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A server whose sockets are open.
pub struct Bound {
    server: Arc<server::Server>,
    sockets: Vec<(SocketAddr, UdpSocket, TcpListener)>,
}

/// How many ports of the system's choosing are tried.
const PORT_TRIES: u32 = 16;

/// Opens the sockets: from here on questions wait to be answered instead of being refused.
pub async fn bind(config: &Config) -> Result<Bound, Error> {
    let domain = |text: &str| Name::from_ascii(text).map_err(|_| Error::Domain(text.to_owned()));
    let origin = domain(&config.domain)?;
    let stubs = config.stub_domains.iter().map(|(name, servers)| Ok((domain(name)?, servers.clone())));
    let stubs = stubs.collect::<Result<Vec<_>, Error>>()?;
    let mut sockets = Vec::new();
    for address in &config.listen {
        if config.claim {
            claim(address.ip()).await?;
        }
        let pair = sockets_at(*address).await;
        sockets.push(pair.map_err(|source| Error::Socket { address: *address, source })?);
    }
    let ourselves: Vec<SocketAddr> = sockets.iter().map(|(address, ..)| *address).collect();
    let ips: Vec<IpAddr> = ourselves.iter().map(SocketAddr::ip).collect();
    let metrics = Arc::new(Metrics::default());
    let upstreams = resolv::Upstreams::new(config.upstreams.clone(), stubs, &ourselves);
    let forwarder = forward::Forwarder::new(upstreams, ips.clone(), metrics.clone());
    let zone = Arc::new(RwLock::new(zone::Zone::new(&origin, config.ttl, ips, config.ranges.clone())));
    let server = Arc::new(server::Server { zone, ready: AtomicBool::new(false), forwarder, metrics });
    Ok(Bound { server, sockets })
}

/// A socket of either protocol at one address. A port of the system's choosing (0) is free for datagrams and may be taken
/// for connections: then another one is.
async fn sockets_at(address: SocketAddr) -> io::Result<(SocketAddr, UdpSocket, TcpListener)> {
    let mut tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        let udp = UdpSocket::bind(address).await?;
        let at = udp.local_addr()?;
        tries -= 1;
        match TcpListener::bind(at).await {
            Ok(tcp) => return Ok((at, udp, tcp)),
            Err(error) if tries == 0 || error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
    }
}

impl Bound {
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(address, ..)| *address).collect()
    }

    /// The names it answers from.
    pub fn zone(&self) -> Arc<RwLock<zone::Zone>> {
        self.server.zone.clone()
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.server.metrics.clone()
    }

    /// Answers the cluster's names until it is stopped. Services with their slices may come from informers of others, who read
    /// them too; namespaces are nobody else's affair on a node.
    pub async fn run(
        self,
        services: &Informers,
        namespaces: &Informers,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        let sources = watch::Sources::feed(services, namespaces, self.zone());
        self.serve(async move { sources.synced().await }, shutdown).await
    }

    /// Answers until it is stopped, from a zone that `complete` finishes.
    pub async fn serve(self, complete: impl Future<Output = ()>, shutdown: CancellationToken) -> Result<(), Error> {
        let mut ready = pin!(async {
            complete.await;
            self.server.ready.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        });
        // A zone that is complete already is so for the first question, too.
        tokio::select! {
            biased;
            () = &mut ready => {}
            () = std::future::ready(()) => {}
        }
        let mut tasks = JoinSet::new();
        for (address, udp, tcp) in self.sockets {
            let server = self.server.clone();
            tasks.spawn(async move { (address, server.datagrams(udp).await) });
            let server = self.server.clone();
            tasks.spawn(async move { (address, server.streams(tcp).await) });
        }
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            () = &mut ready => Ok(()),
            Some(ended) = tasks.join_next() => {
                let (address, result) = ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                result.map_err(|source| Error::Socket { address, source })
            }
        }
    }
}

/// Answers the cluster's names until it is stopped.
pub async fn run(config: Config, informers: &Informers, shutdown: CancellationToken) -> Result<(), Error> {
    bind(&config).await?.run(informers, informers, shutdown).await
}

/// Puts an address on the loopback interface. Already there is no error.
async fn claim(address: IpAddr) -> Result<(), Error> {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let args = ["addr", "replace", &format!("{address}/{prefix}"), "dev", "lo"];
    let claimed = node::run::output("ip", &args, b"", Duration::from_secs(10)).await;
    claimed.map(drop).map_err(|source| Error::Claim { address, source })
}
