//! Network policies of a node: between the kubelet, which makes sandboxes, and the agent that keeps the rules.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use informer::Informers;
use k8s_openapi::api::core::v1::Pod;
use netpol::{Agent, Attachment, Kind, Network, Port, Served};
use node::cri::{Runtime, labels, v1};
use tokio_util::sync::CancellationToken;

use super::agent::BRIDGE;
use crate::component::Failure;

/// Where network policies tell their metrics, on loopback.
const METRICS_PORT: u16 = 10247;

/// The node's annotation that says who keeps policies on it.
const ENGINE: &str = "trireme.io/network-policy-engine";

/// What the node says of who keeps policies on it.
pub fn engine(agent: &Agent) -> (String, String) {
    (ENGINE.to_owned(), agent.engine().as_str().to_owned())
}

/// Who is to keep policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Rules, until programs have passed all of upstream's tests of policies as often.
    Auto,
    /// Whichever takes less time for a packet on this machine, as a moment of trying says.
    Quicker,
    /// Rules of nftables.
    Nftables,
    /// Programs of our own in the kernel, from Linux 6.4 on.
    Ebpf,
}

impl Engine {
    /// Which one it is. Trying goes on beside the rest of the node's start.
    pub fn chosen(self) -> impl Future<Output = Kind> {
        let tried = (self == Self::Quicker).then(|| tokio::task::spawn_blocking(netpol::probe::choose));
        async move {
            match (self, tried) {
                (Self::Ebpf, _) => Kind::Ebpf,
                (_, Some(tried)) => tried.await.unwrap_or(Kind::Nftables),
                _ => Kind::Nftables,
            }
        }
    }
}

/// The kubelet's way to the agent: what the runtime knows of a sandbox's links is added on the way.
pub struct Policies {
    network: Network,
    runtime: Arc<dyn Runtime>,
}

impl std::fmt::Debug for Policies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policies").finish_non_exhaustive()
    }
}

impl Policies {
    /// The agent of a node, and the kubelet's way to it; nothing where somebody else enforces policies.
    pub async fn of(
        node: &str,
        (engine, dns): (Option<impl Future<Output = Kind>>, IpAddr),
        informers: &Informers,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Option<(Agent, Arc<Self>)>, Failure> {
        let Some(engine) = engine else { return Ok(None) };
        let engine = engine.await;
        let served = vec![self::dns(dns)];
        let config = netpol::Config { node_name: node.to_owned(), served, engine };
        let agent = Agent::new(config, informers)?;
        let links = Arc::new(Self { network: agent.network(), runtime: runtime.clone() });
        Ok(Some((agent, links)))
    }

    /// The port of the bridge behind which a sandbox is; nothing where the runtime does not tell.
    async fn port(&self, sandbox: &str, addresses: &[IpAddr]) -> Result<Option<Port>, node::cri::Error> {
        let all = self.runtime.sandbox_interfaces(sandbox).await?;
        let inside =
            all.iter().find(|interface| interface.inside && !interface.mac.is_empty() && interface.name != "lo");
        let outside = all.iter().find(|interface| !interface.inside && interface.name != BRIDGE);
        let both = inside.zip(outside);
        Ok(both.and_then(|(inside, outside)| Port::parse(&outside.name, &inside.mac, addresses)))
    }

    /// Tells of the links of sandboxes that an earlier run made: their pods' addresses are in the API.
    async fn adopt(&self) -> Result<(), Failure> {
        for sandbox in self.runtime.list_sandboxes(v1::PodSandboxFilter::default()).await? {
            let Some(uid) = sandbox.labels.get(labels::POD_UID) else { continue };
            let status = match self.runtime.sandbox_status(&sandbox.id).await {
                Err(error) if error.is_not_found() => continue,
                status => status?,
            };
            let network = status.network.clone().unwrap_or_default();
            let addresses = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip));
            let addresses: Vec<IpAddr> = addresses.filter_map(|ip| ip.parse().ok()).collect();
            if status.state() == v1::PodSandboxState::SandboxReady
                && !addresses.is_empty()
                && let Some(port) = self.port(&sandbox.id, &addresses).await?
            {
                self.network.bind(uid, port);
            }
        }
        Ok(())
    }
}

impl kubelet::PodNetwork for Policies {
    fn attach<'a>(
        &'a self,
        pod: Arc<Pod>,
        sandbox: &'a str,
        addresses: Vec<IpAddr>,
    ) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let port = self.port(sandbox, &addresses).await.map_err(|error| error.to_string())?;
            if port.is_none() {
                tracing::debug!(
                    sandbox,
                    "the runtime does not tell how the sandbox is linked: its sources are not checked"
                );
            }
            let attached = self.network.attach(Attachment { pod, addresses, port }).await;
            attached.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn detach(&self, uid: &str) {
        self.network.detach(uid);
    }
}

/// Keeps policies in force until told to stop; where somebody else enforces them, nothing of ours is left.
pub async fn keep(policies: Option<(Agent, Arc<Policies>)>, stop: CancellationToken) -> Result<(), Failure> {
    let Some((agent, links)) = policies else { return Ok(netpol::cleanup().await?) };
    if let Err(error) = links.adopt().await {
        tracing::warn!(%error, "sources of pods that were there are not checked");
    }
    let page = |path: &str| match path {
        "/metrics" => {
            let mut text = String::new();
            netpol::figures::write(&mut text);
            proxy::http::figures(text)
        }
        _ => proxy::http::not_found(),
    };
    tokio::select! {
        ended = agent.run(stop) => Ok(ended?),
        () = proxy::http::serve_at(SocketAddr::from(([127, 0, 0, 1], METRICS_PORT)), page) => {
            unreachable!("pages are served for ever")
        }
    }
}

/// Cluster DNS, which every node answers itself: policies speak of it as of the pods that answer elsewhere.
fn dns(address: IpAddr) -> Served {
    let ports = [("dns", "UDP", 53), ("dns-tcp", "TCP", 53)];
    Served {
        address,
        namespace: "kube-system".to_owned(),
        labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
        ports: ports
            .into_iter()
            .filter_map(|(name, protocol, number)| {
                Some(((name.to_owned(), rules::protocol::Protocol::parse(Some(protocol))?), vec![number]))
            })
            .collect(),
    }
}
