//! `trireme netpol`: what network policies say, asked of the API.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use ::netpol::cluster_policy::ClusterPolicy;
use ::netpol::definition::read_cluster_policies;
use ::netpol::explain::{self, End, Side, doubts, explain};
use ::netpol::flow::{Reader, Verdicts};
use ::netpol::model::{self, Direction, NodeFacts, PodFacts, Policy};
use client::{Client, ListParams};
use informer::Informers;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use rules::protocol::Protocol;

use crate::component::Failure;
use crate::standalone::connect;

/// What to ask.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Say whether one end may connect to another, and by which policies.
    ///
    /// An end is a pod (`namespace/name`, or `name` for the default namespace) or an address. For a Service, name a pod behind it.
    Explain {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: PathBuf,
        /// Who connects.
        #[arg(value_name = "FROM")]
        from: String,
        /// Who is connected to.
        #[arg(value_name = "TO")]
        to: String,
        /// The port, as 80, 53/udp or 9/sctp [default: none, as for ICMP].
        #[arg(value_name = "PORT", value_parser = port)]
        port: Option<(Protocol, u16)>,
    },
    /// Follow verdicts on this node as they happen: connections of isolated pods that are allowed, and packets that are kept back.
    ///
    /// It has to run on the node, as root, and one at a time. Of more than a thousand verdicts a second some are not shown.
    Watch {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: PathBuf,
    },
    /// Say which policies select nothing, name ports that no pod has, or cannot be understood.
    Check {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: PathBuf,
    },
}

fn port(text: &str) -> Result<(Protocol, u16), String> {
    let (number, protocol) = text.split_once('/').map_or((text, None), |(number, protocol)| (number, Some(protocol)));
    let both = number
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .zip(Protocol::parse(protocol).filter(|_| protocol != Some("")));
    both.map(|(number, protocol)| (protocol, number)).ok_or_else(|| "give a port such as 80 or 53/udp".to_owned())
}

/// What the API has.
struct World {
    policies: Vec<Policy>,
    cluster: Vec<ClusterPolicy>,
    nodes: BTreeMap<String, NodeFacts>,
    namespaces: BTreeMap<String, model::Labels>,
    pods: Vec<Pod>,
}

async fn read(client: &Client) -> Result<World, Failure> {
    let all = ListParams::default();
    let cluster = read_cluster_policies(client).await?;
    let nodes = client.list::<Node>("", &all).await?;
    Ok(World {
        cluster: cluster.items.iter().filter_map(|policy| ClusterPolicy::of(policy)).collect(),
        nodes: nodes.items.iter().filter_map(|n| Some((n.metadata.name.clone()?, NodeFacts::of(n)))).collect(),
        policies: client.list::<NetworkPolicy>("", &all).await?.items.iter().filter_map(|p| Policy::of(p)).collect(),
        namespaces: client
            .list::<Namespace>("", &all)
            .await?
            .items
            .iter()
            .filter_map(|n| model::namespace(n))
            .collect(),
        pods: client.list::<Pod>("", &all).await?.items.iter().map(|pod| Pod::clone(pod)).collect(),
    })
}

impl World {
    fn known(&self) -> explain::World<'_> {
        explain::World {
            policies: &self.policies,
            cluster: &self.cluster,
            namespaces: &self.namespaces,
            nodes: &self.nodes,
        }
    }

    fn facts(&self) -> Vec<PodFacts> {
        self.pods.iter().filter_map(|pod| PodFacts::of(pod, &[])).collect()
    }

    /// A pod by name, or an address, which may be a pod's.
    fn end(&self, text: &str) -> Result<End, Failure> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            let owner =
                self.facts().into_iter().filter(|pod| pod.addresses.contains(&ip)).max_by_key(|pod| pod.created);
            return Ok(End { addresses: vec![ip], alike: owner.map(|pod| pod.alike) });
        }
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        let named = |pod: &&Pod| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        };
        let pod = self.pods.iter().find(named).ok_or_else(|| format!("pods {name:?} not found in {namespace}"))?;
        let shown = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
        let addresses = shown.filter_map(|ip| ip.ip.parse().ok()).collect();
        Ok(End { addresses, alike: PodFacts::of(pod, &[]).map(|facts| facts.alike) })
    }
}

fn row(direction: &str, who: &str, side: &Side) {
    let verdict = if side.allows() { "Allowed" } else { "Denied" };
    let by: Vec<String> = match (side.decided(), side.isolated.is_empty(), side.allowing.is_empty()) {
        (Some(matched), ..) => vec![matched.to_string()],
        (None, true, _) => vec!["<none>".to_owned()],
        (None, _, true) => side.isolated.iter().map(ToString::to_string).collect(),
        (None, _, false) => side.allowing.iter().map(|(name, rule)| format!("{name} (rule {rule})")).collect(),
    };
    println!("{direction:<11}{who:<40}{verdict:<10}{}", by.join(", "));
}

/// Prints verdicts until nobody reads them any more.
async fn watch(client: &Client) -> Result<(), Failure> {
    let informers = Informers::new(client.clone());
    let known = ::netpol::Known::new(&informers);
    known.synced().await;
    let opened = Verdicts::open(Reader::Follower).await;
    let mut verdicts = opened.map_err(|error| format!("cannot follow verdicts, or somebody does already: {error}"))?;
    let mut out = std::io::stdout();
    writeln!(out, "{:<9}{:<9}{:<40}{:<40}{:<12}POLICIES", "VERDICT", "OF", "FROM", "TO", "PORT")?;
    loop {
        for verdict in verdicts.next().await? {
            let told = known.tell(&verdict);
            let outcome = if verdict.allowed { "Allowed" } else { "Denied" };
            let direction = if verdict.direction == Direction::Ingress { "Ingress" } else { "Egress" };
            let port = verdict.port.map_or_else(|| "<none>".to_owned(), |(p, n)| format!("{n}/{}", p.as_str()));
            let policies: Vec<String> = told.policies.iter().map(ToString::to_string).collect();
            let (from, to) = (told.from, told.to);
            writeln!(out, "{outcome:<9}{direction:<9}{from:<40}{to:<40}{port:<12}{}", policies.join(", "))?;
        }
        out.flush()?;
    }
}

/// Asks.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Explain { kubeconfig, from, to, port } => {
            let world = read(&connect(&kubeconfig)?).await?;
            let said = explain(world.known(), &world.end(&from)?, &world.end(&to)?, port);
            println!("{:<11}{:<40}{:<10}POLICIES", "DIRECTION", "END", "VERDICT");
            row("Egress", &from, &said.egress);
            row("Ingress", &to, &said.ingress);
            println!("\n{from} to {to}: {}", if said.allows() { "allowed" } else { "denied" });
        }
        Command::Watch { kubeconfig } => watch(&connect(&kubeconfig)?).await?,
        Command::Check { kubeconfig } => {
            let world = read(&connect(&kubeconfig)?).await?;
            let pods = world.facts();
            for policy in &world.policies {
                for doubt in doubts(policy, &pods) {
                    println!("networkpolicy {}: {doubt}", policy.name);
                }
            }
            for policy in &world.cluster {
                for doubt in &policy.doubts {
                    println!("clusternetworkpolicy {}: {doubt}", policy.name);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_with_and_without_protocols() {
        assert_eq!(port("80"), Ok((Protocol::Tcp, 80)));
        assert_eq!(port("53/udp"), Ok((Protocol::Udp, 53)));
        for bad in ["", "0", "web", "80/icmp", "70000", "80/"] {
            assert!(port(bad).is_err(), "{bad}");
        }
    }
}
