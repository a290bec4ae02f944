//! `trireme proxy`: the service proxy of a node in a process of its own, against any API server: ours or upstream's.

use std::net::SocketAddr;
use std::path::PathBuf;

use informer::Informers;
use ipnet::IpNet;

use crate::component::Failure;
use crate::parts::host_name;
use crate::standalone::{connect, ended, stop_on_signal};

/// Options of `trireme proxy`. Their names are those of upstream's kube-proxy.
#[derive(Debug, clap::Args)]
pub struct Proxy {
    /// Whom to connect to, and as whom.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", required_unless_present = "cleanup")]
    kubeconfig: Option<PathBuf>,
    /// The node's name [default: the host's].
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Where the cluster's pods have their addresses [default: what the Node says of its own].
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// Which of the node's addresses take NodePort traffic: CIDRs, `primary` or `all` [default: all but loopback].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    nodeport_addresses: Vec<::proxy::NodePortAddress>,
    /// Masquerade all traffic to ClusterIPs.
    #[arg(long)]
    masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..32))]
    masquerade_bit: u8,
    /// Where /healthz is answered.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10256")]
    healthz_bind_address: SocketAddr,
    /// Where /metrics is answered.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10249")]
    metrics_bind_address: SocketAddr,
    /// Remove all rules of the proxy and exit.
    #[arg(long)]
    cleanup: bool,
}

/// Runs the proxy until a signal stops it. The rules stay.
pub async fn run(options: Proxy) -> Result<(), Failure> {
    if options.cleanup {
        return Ok(::proxy::cleanup().await?);
    }
    let kubeconfig = options.kubeconfig.ok_or("--kubeconfig is needed")?;
    let client = connect(&kubeconfig)?.with_user_agent(&format!("kube-proxy/{}", env!("CARGO_PKG_VERSION")));
    let name = options.hostname_override.or_else(host_name).ok_or("--hostname-override is needed")?;
    let stop = stop_on_signal()?;
    let config = ::proxy::Config {
        cluster_cidrs: options.cluster_cidr,
        node_port_addresses: options.nodeport_addresses,
        masquerade_all: options.masquerade_all,
        masquerade_bit: options.masquerade_bit,
        healthz_address: Some(options.healthz_bind_address),
        metrics_address: Some(options.metrics_bind_address),
        ..::proxy::Config::new(name)
    };
    ::proxy::run(config, &Informers::new(client), stop.clone()).await?;
    ended(&stop)
}
