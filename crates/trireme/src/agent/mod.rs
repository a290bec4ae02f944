//! `trireme agent`: this machine as a node of a cluster elsewhere.
//!
//! It joins once with a token ([`membership`]), then it is the node: runtime, kubelet, proxy, DNS and pod network run as in the
//! server's process, over HTTPS and with the node's certificate, which is renewed in time. The cluster's networks are asked of
//! the cluster and remembered, so that a node can start while the control plane is away.

pub mod membership;
mod renewal;
pub mod requests;
mod servers;
pub mod token;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use pki::San;

use crate::component::{Components, Failure};
use crate::parts;
use crate::parts::agent::Cluster;
use crate::parts::joining;
use crate::signals::Signals;
use membership::{Invitation, Membership};
use token::Token;

/// The servers that were last seen, below the node's directory.
const SERVERS: &str = "servers.json";
/// How long the parts may take to stop before they are cut off.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `trireme agent`.
#[derive(Debug, clap::Args)]
pub struct Agent {
    /// A file with options, each by its name; those of the command line come first [default: /etc/trireme/config.yaml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the cluster's API server is, for example https://10.0.0.1:6443.
    #[arg(long, value_name = "URL")]
    server: String,
    /// The token to join with: the server's DIR/token, or one of `trireme token create`. Needed only once.
    #[arg(long, value_name = "TOKEN", env = "TRIREME_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    token: Option<String>,
    /// A file with the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The cluster's authority, for a token that does not name it.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Where certificates, containers and volumes live.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    node: parts::agent::Options,
}

impl Agent {
    fn invitation(&self) -> Result<Invitation, Failure> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| Failure::from(format!("{}: {error}", path.display())))
        };
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.parse::<Token>()?),
            (None, Some(file)) => Some(read(file)?.parse::<Token>()?),
            (None, None) => None,
        };
        let authority = self.ca_file.as_deref().map(read).transpose()?;
        Ok(Invitation { server: self.server.clone(), token, authority })
    }
}

/// Runs the node until a signal stops it.
pub async fn run(options: Agent) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let invitation = options.invitation()?;
    let directory = options.data_dir.join("agent");
    let addresses = match options.node.node_ip.as_slice() {
        [] => vec![own_address(&options.server)?],
        given => given.to_vec(),
    };
    let start = async {
        let name = options.node.name();
        let member = Membership::ensure(directory.join("pki"), &name, &invitation).await?;
        servers::recall(&member.client, &directory.join(SERVERS));
        // Not before: a machine that is no member has nothing to keep.
        crate::data_dir::prepare(&options.data_dir, true)
            .map_err(|error| format!("cannot use the data directory {}: {error}", options.data_dir.display()))?;
        let cluster = networks(&member, &directory.join("cluster.json")).await?;
        Ok::<_, Failure>((member, cluster))
    };
    let (member, cluster) = tokio::select! {
        started = start => started?,
        name = signals.next() => {
            tracing::info!("{name}: stopped before this machine joined");
            return Ok(());
        }
    };
    let mut components = Components::default();
    let of_client = member.clone();
    let sans: Vec<San> = [San::host(&member.node)].into_iter().chain(addresses.iter().copied().map(San::Ip)).collect();
    components.start("client certificate", move |stop| {
        let member = of_client.clone();
        async move { renewal::keep_client(&member, stop).await }
    });
    let (client, file) = (member.client.clone(), directory.join(SERVERS));
    components.start("servers", move |stop| servers::follow(client.clone(), file.clone(), stop));
    let serving = renewal::Serving::begin(&member, &sans)?;
    let certificate = serving.certificate();
    let of_serving = member.clone();
    components.start("serving certificate", move |stop| {
        let (member, sans, serving) = (of_serving.clone(), sans.clone(), serving.clone());
        async move { serving.keep(&member, &sans, stop).await }
    });
    let (node, data_dir) = (options.node, options.data_dir);
    components.start("agent", move |stop| {
        let with_agent = |agent: &str| member.client.clone().with_user_agent(&format!("{agent}/{VERSION}"));
        let clients = parts::agent::Clients {
            kubelet: with_agent("kubelet"),
            proxy: with_agent("kube-proxy"),
            dns: with_agent("coredns"),
            policies: with_agent("trireme-netpol"),
        };
        let serving = kubelet::Serving {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), node.kubelet_port),
            certificate: certificate.clone(),
            client_authority: member.authority.clone(),
        };
        parts::agent::run(
            node.clone(),
            addresses.clone(),
            data_dir.clone(),
            cluster.clone(),
            clients,
            Some(serving),
            stop,
        )
    });
    crate::notify::ready();
    let name = signals.next().await;
    tracing::info!("{name}: stopping");
    crate::notify::say("STOPPING=1");
    tokio::select! {
        () = components.stop(PATIENCE) => tracing::info!("stopped"),
        name = signals.next() => tracing::warn!("{name} again: leaving at once"),
    }
    Ok(())
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The cluster's networks: as it says, or, while it cannot be asked, as it said before.
async fn networks(member: &Membership, file: &Path) -> Result<Cluster, Failure> {
    let kept = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<ConfigMap>(&bytes).ok());
    let map = match (joining::read_networks(&member.client).await, kept) {
        (Ok(map), _) => {
            ::node::private::write(file, serde_json::to_vec(&map)?)?;
            map
        }
        (Err(error), Some(kept)) if error.code().is_none() => {
            tracing::warn!("{error}; starting with what is known of the cluster");
            kept
        }
        (Err(error), _) => return Err(error.into()),
    };
    joining::cluster_of(&map)
}

/// The address by which this machine reaches the server. Connecting a datagram socket asks the routing table and sends nothing.
fn own_address(server: &str) -> Result<IpAddr, Failure> {
    let unknown = |why: &dyn std::fmt::Display| format!("--node-ip is needed: no way to {server} is known: {why}");
    let uri: http::Uri = server.parse()?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let mut addresses = (host, uri.port_u16().unwrap_or(443)).to_socket_addrs().map_err(|error| unknown(&error))?;
    let to = addresses.next().ok_or_else(|| unknown(&"it has no address"))?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(from)?;
    socket.connect(to).map_err(|error| unknown(&error))?;
    Ok(socket.local_addr()?.ip())
}
