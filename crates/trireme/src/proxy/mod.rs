//! `trireme proxy`: the service proxy of a node in a process of its own, against any API server: ours or upstream's.

mod file;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use informer::Informers;
use ipnet::IpNet;

use crate::component::Failure;
use crate::parts::host_name;
use crate::server::flags::duration;
use crate::standalone::{connect, ended, stop_on_signal};

/// Options of `trireme proxy`. Their names are those of upstream's kube-proxy.
#[derive(Debug, clap::Args)]
pub struct Proxy {
    /// A KubeProxyConfiguration; what it says comes before other options, as upstream has it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Whom to connect to, and as whom.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", required_unless_present_any = ["cleanup", "config"])]
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
    #[command(flatten)]
    conntrack: Conntrack,
    /// Remove all rules of the proxy and exit.
    #[arg(long)]
    cleanup: bool,
}

/// What the kernel remembers of connections; a zero leaves a setting as it is.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection tracking")]
struct Conntrack {
    /// Connections for each processor.
    #[arg(long, value_name = "NUMBER", default_value_t = 32 << 10)]
    conntrack_max_per_core: u64,
    /// Connections at least.
    #[arg(long, value_name = "NUMBER", default_value_t = 128 << 10)]
    conntrack_min: u64,
    /// How long an established connection may be silent.
    #[arg(long, value_name = "DURATION", default_value = "24h0m0s", value_parser = duration)]
    conntrack_tcp_timeout_established: Duration,
    /// How long a connection may wait for its end.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration)]
    conntrack_tcp_timeout_close_wait: Duration,
    /// Let packets out of a connection's window through.
    #[arg(long)]
    conntrack_tcp_be_liberal: bool,
    /// How long an exchange over UDP is remembered that nobody answered.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    conntrack_udp_timeout: Duration,
    /// How long one is remembered that was answered.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    conntrack_udp_timeout_stream: Duration,
}

impl Conntrack {
    fn read(&self) -> ::proxy::Conntrack {
        ::proxy::Conntrack {
            max_per_core: self.conntrack_max_per_core,
            min: self.conntrack_min,
            tcp_established: self.conntrack_tcp_timeout_established.as_secs(),
            tcp_close_wait: self.conntrack_tcp_timeout_close_wait.as_secs(),
            udp: self.conntrack_udp_timeout.as_secs(),
            udp_stream: self.conntrack_udp_timeout_stream.as_secs(),
            be_liberal: self.conntrack_tcp_be_liberal,
        }
    }
}

/// Runs the proxy until a signal stops it. The rules stay.
pub async fn run(options: Proxy) -> Result<(), Failure> {
    if options.cleanup {
        return Ok(::proxy::cleanup().await?);
    }
    let file = options.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let kubeconfig = file.kubeconfig.clone().or(options.kubeconfig);
    let client = match kubeconfig {
        Some(kubeconfig) => connect(&kubeconfig)?,
        None => client::Client::https(client::Config::in_cluster()?)?,
    };
    let client = client.with_user_agent(&format!("kube-proxy/{}", env!("CARGO_PKG_VERSION")));
    let name = options
        .hostname_override
        .or_else(|| file.hostname_override.clone())
        .or_else(host_name)
        .ok_or("--hostname-override is needed")?;
    let stop = stop_on_signal()?;
    let mut config = ::proxy::Config {
        cluster_cidrs: options.cluster_cidr,
        node_port_addresses: options.nodeport_addresses,
        masquerade_all: options.masquerade_all,
        masquerade_bit: options.masquerade_bit,
        healthz_address: Some(options.healthz_bind_address),
        metrics_address: Some(options.metrics_bind_address),
        conntrack: options.conntrack.read(),
        ..::proxy::Config::new(name)
    };
    file.set(&mut config);
    ::proxy::run(config, &Informers::new(client), stop.clone()).await?;
    ended(&stop)
}
