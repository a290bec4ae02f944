//! `trireme cluster`: a cluster of several nodes on this machine, for development and tests, without virtual machines.
//!
//! Every node is a network namespace with a Trireme and a containerd of its own; the first one has the control plane too, or the first few, which share
//! an etcd (`--servers 3`).
//! What a cluster is made of is in its directory, what runs is known by pid files and by the kernel, so every command finds
//! what an earlier one made:
//!
//! ```text
//! DIR/NAME/cluster.json          how it was made
//! DIR/NAME/NAME-1/trireme.log    the first node's log, beside its pid file
//! DIR/NAME/NAME-1/data/          its data directory, with admin.kubeconfig
//! ```
//! Nothing leaves the machine: nodes have no default route, and the host refuses the cluster's ranges.

mod host;
mod ready;

use std::path::{Path, PathBuf};

use devnet::Layout;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::component::Failure;
use crate::parts::agent::PodNetwork;
use host::Host;

/// Where clusters are, by default.
const DIRECTORY: &str = "/var/lib/trireme/clusters";

/// What to do with a cluster.
#[derive(Debug, clap::Args)]
pub struct Cluster {
    /// Where clusters keep their data.
    #[arg(long, global = true, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a cluster and wait until all of its nodes are ready.
    Up {
        /// Its name: one to seven lower-case letters or digits.
        #[arg(long, value_name = "NAME", default_value = "dev")]
        name: String,
        /// How many nodes it has.
        #[arg(long, value_name = "NUMBER", default_value_t = 3)]
        nodes: u8,
        /// How many of them are servers: one, or several, which share an etcd.
        #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
        servers: u8,
        /// Where its nodes have their addresses.
        #[arg(long, value_name = "CIDR", default_value = "198.18.0.0/24")]
        range: Ipv4Net,
        /// Addresses for pods.
        #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
        cluster_cidr: Ipv4Net,
        /// Addresses for Services.
        #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16")]
        service_cluster_ip_range: Ipv4Net,
        /// How pods on other nodes are reached: host-gw, with all nodes on one link, or vxlan, with nodes that share none.
        #[arg(long, value_name = "HOW", default_value = "host-gw")]
        pod_network: PodNetwork,
        /// An image archive that every node shall have; may be given several times.
        #[arg(long = "image", value_name = "ARCHIVE")]
        images: Vec<PathBuf>,
        /// A further option for the server, as --server-arg=--event-ttl=60; may be given several times.
        #[arg(long = "server-arg", value_name = "OPTION", allow_hyphen_values = true)]
        server_arguments: Vec<String>,
        /// A further option for every node, as --node-arg=--network-policy-engine=ebpf; may be given several times.
        #[arg(long = "node-arg", value_name = "OPTION", allow_hyphen_values = true)]
        node_arguments: Vec<String>,
    },
    /// Stop a cluster and remove everything of it.
    Down {
        /// Its name.
        #[arg(long, value_name = "NAME", default_value = "dev")]
        name: String,
    },
    /// Show all clusters and their nodes.
    List,
    /// Stop a node as if it were switched off: its pods end.
    Stop {
        /// The node, as dev-2.
        node: String,
    },
    /// Start a node again.
    Start {
        /// The node, as dev-2.
        node: String,
    },
    /// Cut a node off from the others; everything on it goes on.
    Disconnect {
        /// The node, as dev-2.
        node: String,
    },
    /// Join a node that was cut off to the others again.
    Connect {
        /// The node, as dev-2.
        node: String,
    },
}

/// How a cluster was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Made {
    name: String,
    nodes: u8,
    #[serde(default = "one")]
    servers: u8,
    range: String,
    cluster_cidr: String,
    service_range: String,
    pod_network: String,
    server_arguments: Vec<String>,
    #[serde(default)]
    node_arguments: Vec<String>,
}

/// How many servers clusters of earlier versions have.
fn one() -> u8 {
    1
}

impl Made {
    fn layout(&self) -> Result<Layout, Failure> {
        let mut layout = Layout::new(&self.name, self.nodes, self.range.parse()?, false)?;
        // On a link that all share there would be no tunnel.
        layout.apart = self.pod_network == PodNetwork::Vxlan.to_string();
        layout.inside = vec![self.cluster_cidr.parse()?, self.service_range.parse()?];
        Ok(layout)
    }
}

pub async fn run(options: Cluster) -> Result<(), Failure> {
    let directory = options.directory;
    match options.command {
        Command::Up {
            name,
            nodes,
            servers,
            range,
            cluster_cidr,
            service_cluster_ip_range,
            pod_network,
            images,
            server_arguments,
            node_arguments,
        } => {
            let made = Made {
                name,
                nodes,
                servers: servers.min(nodes),
                range: range.to_string(),
                cluster_cidr: cluster_cidr.to_string(),
                service_range: service_cluster_ip_range.to_string(),
                pod_network: pod_network.to_string(),
                server_arguments,
                node_arguments,
            };
            up(&directory, made, &images).await
        }
        Command::Down { name } => match Host::open(&directory, &name)? {
            Some(host) => host.remove().await,
            None => Err(format!("there is no cluster {name} in {}", directory.display()).into()),
        },
        Command::List => list(&directory).await,
        Command::Stop { node } => Host::of_node(&directory, &node)?.halt(&node).await,
        Command::Start { node } => Host::of_node(&directory, &node)?.boot(&node).await,
        Command::Disconnect { node } => Host::of_node(&directory, &node)?.connect(&node, false).await,
        Command::Connect { node } => Host::of_node(&directory, &node)?.connect(&node, true).await,
    }
}

async fn up(directory: &Path, made: Made, images: &[PathBuf]) -> Result<(), Failure> {
    if Host::open(directory, &made.name)?.is_some() {
        return Err(format!("cluster {} is there already: `trireme cluster down` removes it", made.name).into());
    }
    let host = Host::new(directory, made)?;
    let outcome = async {
        println!("making {} machines", host.layout.machines.len());
        host.prepare(images).await?;
        for (number, machine) in host.layout.machines.iter().enumerate() {
            println!("starting {} at {}", machine.name, machine.address);
            if host.joins_as_server(machine) {
                host.invite(machine).await?;
            }
            host.boot(&machine.name).await?;
            if number == 0 {
                ready::control_plane(&host).await?;
            }
        }
        ready::nodes(&host).await
    };
    if let Err(error) = outcome.await {
        eprintln!("it did not come up; logs are in {}", host.directory.display());
        return Err(error);
    }
    println!("ready: kubectl --kubeconfig {} get nodes", host.kubeconfig().display());
    Ok(())
}

async fn list(directory: &Path) -> Result<(), Failure> {
    let mut names: Vec<String> = match std::fs::read_dir(directory) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("{}: {error}", directory.display()).into()),
    };
    names.sort();
    println!("{:<12} {:<16} {:<9} {:<13} DIRECTORY", "NODE", "ADDRESS", "TRIREME", "NETWORK");
    for name in names {
        let Some(host) = Host::open(directory, &name)? else { continue };
        let seen = devnet::list(&name).await?;
        for machine in &host.layout.machines {
            let network = match seen.iter().find(|seen| seen.namespace == machine.namespace) {
                None => "gone",
                Some(seen) if seen.connected => "connected",
                Some(_) => "disconnected",
            };
            let trireme = if host.program(machine).running().is_some() { "running" } else { "stopped" };
            let directory = host.directory.join(&machine.name);
            println!("{:<12} {:<16} {trireme:<9} {network:<13} {}", machine.name, machine.address, directory.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_cluster_was_made_is_remembered() {
        let directory = tempfile::tempdir().expect("a directory");
        let made = Made {
            name: "dev".to_owned(),
            nodes: 2,
            servers: 1,
            range: "198.18.9.0/24".to_owned(),
            cluster_cidr: "10.244.0.0/16".to_owned(),
            service_range: "10.96.0.0/16".to_owned(),
            pod_network: "vxlan".to_owned(),
            server_arguments: vec!["--event-ttl=60".to_owned()],
            node_arguments: vec!["--network-policy-engine=ebpf".to_owned()],
        };
        assert!(Host::open(directory.path(), "dev").expect("no error").is_none());
        let host = Host::new(directory.path(), made).expect("a cluster");
        let again = Host::open(directory.path(), "dev").expect("no error").expect("the cluster");
        assert_eq!(again.layout, host.layout);
        assert!(again.layout.inside.len() == 2 && again.layout.apart);
        assert_eq!(Host::of_node(directory.path(), "dev-2").expect("the cluster").layout, host.layout);
        std::fs::write(directory.path().join("file"), "").expect("a file");
        for unknown in ["dev-3", "dev", "other-1", "../dev-1", "file-1"] {
            assert!(Host::of_node(directory.path(), unknown).is_err(), "{unknown}");
        }

        let made = Made { nodes: 3, servers: 2, name: "ha".to_owned(), ..host.made().clone() };
        let several = Host::new(directory.path(), made).expect("a cluster");
        let arguments = |machine: usize| several.program(&several.layout.machines[machine]).arguments.join(" ");
        assert!(arguments(0).contains(" --cluster-init"), "{}", arguments(0));
        assert!(arguments(1).starts_with("server --join https://198.18.9.11:6443 --token-file "), "{}", arguments(1));
        assert!(arguments(2).starts_with("agent "), "{}", arguments(2));
        for machine in &host.layout.machines {
            let last = host.program(machine).arguments.pop();
            assert_eq!(last.as_deref(), Some("--network-policy-engine=ebpf"), "every node has it");
        }
        let arguments = host.program(&host.layout.machines[0]).arguments.join(" ");
        assert!(arguments.starts_with("server ") && arguments.contains(" --event-ttl=60 "), "{arguments}");
        let arguments = host.program(&host.layout.machines[1]).arguments.join(" ");
        assert!(arguments.starts_with("agent --server https://198.18.9.11:6443 "), "{arguments}");
        assert!(
            arguments.contains("--node-ip 198.18.9.12") && arguments.contains("--pod-network vxlan"),
            "{arguments}"
        );
    }
}
