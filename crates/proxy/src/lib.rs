//! The service proxy: traffic to a Service's addresses reaches its endpoints, by nftables rules on every node.
//!
//! [`rules`] decides and is pure: Services and EndpointSlices in, nftables transactions out. `model` is what the rules
//! depend on, `choose` which endpoints a node uses, `plan` what one Service adds, `table` how the additions of all
//! Services make one table and what an update changes in it, `render` the text of it, `elements` the bytes of what
//! changes all day. `sync` watches and applies, for
//! the node as `view` sees it; `health` and `conntrack` are what a Service needs besides rules.
//!
//! The rules live in the kernel: they outlive this process, and the next one replaces them in one transaction.
//!
//! Deliberately absent: `route_localnet` (node ports do not answer on loopback), a rule per Service (a packet costs the
//! same look-ups however many Services there are), and any state that is not in the kernel's table or the API.

mod choose;
mod clients;
mod conntrack;
mod elements;
mod health;
pub mod http;
mod model;
mod plan;
mod render;
pub mod rules;
mod state;
mod sync;
mod sysctls;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use informer::Informers;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

pub use model::{Family, NodeView, ServiceName};
pub use sysctls::Conntrack;
pub use view::{NodePortAddress, NodePortAddressError};

/// What an administrator configures of the proxy of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's name: endpoints that carry it are local.
    pub node_name: String,
    /// Where the cluster's pods have their addresses; empty to take the Node's own ranges.
    pub cluster_cidrs: Vec<IpNet>,
    /// Where ClusterIPs come from, besides what ServiceCIDR objects say.
    pub service_cidrs: Vec<IpNet>,
    /// Which of the node's addresses take NodePort traffic; empty for all but loopback.
    pub node_port_addresses: Vec<NodePortAddress>,
    /// Service addresses a process on this node answers itself, such as cluster DNS.
    pub served_here: BTreeSet<IpAddr>,
    /// Masquerade all traffic to ClusterIPs.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: u8,
    /// Where `/healthz` and `/livez` are answered, usually on port 10256.
    pub healthz_address: Option<SocketAddr>,
    /// Where `/metrics` is answered, usually on loopback, port 10249.
    pub metrics_address: Option<SocketAddr>,
    /// What the kernel remembers of connections.
    pub conntrack: Conntrack,
}

impl Config {
    /// The usual proxy of a node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            node_port_addresses: Vec::new(),
            served_here: BTreeSet::new(),
            masquerade_all: false,
            masquerade_bit: 14,
            healthz_address: None,
            metrics_address: None,
            conntrack: Conntrack::default(),
        }
    }
}

/// Why the proxy cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// nftables does not work here.
    #[error(transparent)]
    Rules(#[from] node::nft::Error),
    /// The node's addresses cannot be read.
    #[error(transparent)]
    Addresses(#[from] node::net::Error),
    /// Health or metrics cannot be served.
    #[error("listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Keeps the rules of this node until it is stopped. The rules stay.
pub async fn run(config: Config, informers: &Informers, shutdown: CancellationToken) -> Result<(), Error> {
    sync::Proxy::new(config, informers).await?.run(shutdown).await
}

/// Removes everything the proxy ever made on this node.
pub async fn cleanup() -> Result<(), Error> {
    let text: String = Family::ALL.map(render::remove).concat();
    Ok(node::nft::apply(&text).await?)
}
