//! Which engine costs packets less on this machine: both judge the same packets, in a network of their own, and the quicker one is it.
//!
//! It takes some tens of milliseconds, beside whatever else a node does to start. Packets are UDP over loopback to an address that stands for pods, so
//! they pass the very rules and programs that Services of the node are judged by. Of many short runs the shortest counts: others were interrupted.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compile::{Compiler, Input};
use crate::engine::{Engine, Kind};
use crate::model::{Alike, Labels, PodFacts, Policy, PolicyName};
use crate::model::{Namespaces, Peer, PeerPods, Rule};
use crate::ports::Ports;

const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SERVED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const RUNS: usize = 40;
const PACKETS: u32 = 32;
/// How long `ip` may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a packet takes with each engine, judged and delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub nftables: Duration,
    pub ebpf: Duration,
}

impl Measured {
    /// The quicker one.
    pub fn best(&self) -> Kind {
        if self.ebpf < self.nftables { Kind::Ebpf } else { Kind::Nftables }
    }
}

/// The engine for this machine: the quicker one, or rules where programs cannot be had.
pub fn choose() -> Kind {
    match measure() {
        Ok(measured) => {
            let (kind, Measured { nftables, ebpf }) = (measured.best(), measured);
            tracing::info!(engine = kind.as_str(), ?nftables, ?ebpf, "chosen by what a packet takes");
            kind
        }
        Err(error) => {
            tracing::info!(%error, "network policies are kept by nftables");
            Kind::Nftables
        }
    }
}

/// Asks both. An error where one of them cannot be had, or no network to try it in.
pub fn measure() -> io::Result<Measured> {
    let thread = node::net::alone(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            node::run::output("ip", &["link", "set", "lo", "up"], b"", PATIENCE).await.map_err(io::Error::other)?;
            let outcome = both().await;
            // What is pinned would hold the namespace.
            crate::ebpf::cleanup().map_err(io::Error::other)?;
            outcome
        })
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

async fn both() -> io::Result<Measured> {
    // Rules that judge take away what programs had.
    let nftables = packet(Kind::Nftables).await?;
    Ok(Measured { nftables, ebpf: packet(Kind::Ebpf).await? })
}

/// What a packet takes, with one engine.
async fn packet(kind: Kind) -> io::Result<Duration> {
    let mut engine = Engine::open(kind).map_err(io::Error::other)?;
    let mut compiler = Compiler::new("here");
    compiler.update(inputs());
    engine.replace(&compiler, &[SERVED.into()], &[]).await.map_err(io::Error::other)?;
    let server = UdpSocket::bind((SERVED, 0))?;
    let client = UdpSocket::bind((POD, 0))?;
    client.connect(server.local_addr()?)?;
    server.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut best = Duration::MAX;
    let mut buffer = [0; 64];
    for _ in 0..RUNS {
        let begun = Instant::now();
        for _ in 0..PACKETS {
            client.send(&[0; 64])?;
            server.recv(&mut buffer)?;
        }
        best = best.min(begun.elapsed());
    }
    Ok(best / PACKETS)
}

/// A pod that may send to those that the address stands for.
fn inputs() -> Vec<Input> {
    let pod = |name: &str, ip: Ipv4Addr, node: &str| {
        let labels: Labels = [("app".to_owned(), name.to_owned())].into();
        let alike = Alike { namespace: name.to_owned(), labels, ports: BTreeMap::new() };
        let addresses = [IpAddr::from(ip)].into();
        let facts =
            PodFacts { name: name.to_owned(), alike: Arc::new(alike), addresses, node: node.to_owned(), created: 0 };
        Input::Pod(name.to_owned(), Some(facts))
    };
    let others = PeerPods { namespaces: Namespaces::Any, pods: rules::selectors::LabelSelector::default() };
    let rule = Rule { peers: Some(vec![Peer::Pods(others)]), ports: Ports::all(), named: Vec::new() };
    let name = PolicyName { namespace: "pod".to_owned(), name: "out".to_owned() };
    let pods = rules::selectors::LabelSelector::default();
    let policy = Policy { name: name.clone(), pods, ingress: None, egress: Some(vec![rule]) };
    vec![pod("pod", POD, "here"), pod("served", SERVED, ""), Input::Policy(name, Some(policy))]
}
