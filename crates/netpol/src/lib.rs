//! Network policy: what pods of this node may send and be sent, kept by the kernel of every node.
//!
//! [`compile`] decides and is pure: policies, namespaces, nodes and pods in, a [`decision`] out. `model` and [`cluster_policy`] are what it depends on,
//! `ruleset` what the same policies allow, [`definition`] where the cluster's policies come from, whose definition users install or do not. An [`engine`] puts the decision into the kernel. There are two, which judge at the same place and pass the same tests: nftables rules
//! (`table`: rules that never change, and the text and bytes of their [`elements`]; `blocks`: how ranges of addresses become parts) and programs
//! of our own ([`ebpf`]); [`probe`] finds out which of them costs packets less. `sync` watches and applies. `explain` says why, `flow` reads the kernel's log of verdicts, and
//! `telling` says which policies those follow from, `drops` which of them become Events. [`status`] says in a policy of the cluster
//! whether it was understood.
//!
//! Rules, programs and maps live in the kernel: they outlive this process, and the next one replaces them without a gap.
//!
//! Deliberately absent: a rule per pod or policy (a packet costs the same look-ups however many there are), a memory of connections beside the
//! kernel's, and any state that is not in the kernel, the API or the kubelet's sandboxes.

pub mod blocks;
pub mod cluster_policy;
pub mod compile;
pub mod decision;
pub mod definition;
mod drops;
pub mod ebpf;
pub mod elements;
pub mod engine;
mod exact;
pub mod explain;
pub mod figures;
pub mod flow;
pub mod model;
mod port;
pub mod ports;
pub mod probe;
mod ruleset;
pub mod status;
mod sync;
pub mod table;
mod telling;

use std::net::IpAddr;

pub use compile::{Compiler, Input};
pub use engine::{Engine, Kind};
pub use port::{Port, Quiet};
pub use sync::{Agent, Attachment, Network};
pub use telling::{Known, Told};

/// What the agent of a node is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's name: pods that carry it are judged here.
    pub node_name: String,
    /// Services that the node answers itself.
    pub served: Vec<Served>,
    /// Who keeps policies; [`probe::choose`] says who does it best.
    pub engine: Kind,
}

/// A Service whose address is the node's own: it is judged as if pods with these labels answered.
#[derive(Debug, Clone)]
pub struct Served {
    pub address: IpAddr,
    pub namespace: String,
    pub labels: model::Labels,
    pub ports: ports::NamedPorts,
}

/// Why policies are not in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rules(#[from] node::nft::Error),
    #[error(transparent)]
    Programs(#[from] node::bpf::Error),
    /// Pods of one node would pass by the rules.
    #[error("network policies need the kernel's br_netfilter (--disable-network-policy does without them): {0}")]
    Bridge(#[source] std::io::Error),
    /// The agent ended before the kernel knew the pod.
    #[error("network policies are not kept on this node any more")]
    Stopped,
}

/// Removes everything the agent ever made on this node.
pub async fn cleanup() -> Result<(), Error> {
    node::nft::apply(&table::remove()).await?;
    Ok(ebpf::cleanup()?)
}
