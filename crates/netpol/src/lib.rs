//! Network policy: what pods of this node may send and be sent, by nftables rules on every node.
//!
//! [`compile`] decides and is pure: policies, namespaces and pods in, [`elements`] of the kernel's maps out. `model` is what it
//! depends on, `ruleset` what the same policies allow, `blocks` how ranges of addresses become parts. `table` is the kernel's side: rules that
//! never change, and the text and bytes of elements. `sync` watches and applies. `explain` says why, `flow` reads the kernel's log of verdicts, and
//! `telling` says which policies those follow from.
//!
//! The rules live in the kernel: they outlive this process, and the next one replaces them in one transaction.
//!
//! Deliberately absent: a rule per pod or policy (a packet costs the same look-ups however many there are), and any state that is not in
//! the kernel's tables, the API or the kubelet's sandboxes.

pub mod blocks;
pub mod compile;
pub mod elements;
pub mod explain;
pub mod figures;
pub mod flow;
pub mod model;
mod port;
pub mod ports;
mod ruleset;
mod sync;
pub mod table;
mod telling;

use std::net::IpAddr;

pub use compile::{Compiler, Input};
pub use port::Port;
pub use sync::{Agent, Attachment, Network};
pub use telling::{Known, Told};

/// What the agent of a node is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's name: pods that carry it are judged here.
    pub node_name: String,
    /// Services that the node answers itself.
    pub served: Vec<Served>,
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
    /// Pods of one node would pass by the rules.
    #[error("network policies need the kernel's br_netfilter (--disable-network-policy does without them): {0}")]
    Bridge(#[source] std::io::Error),
    /// The agent ended before the kernel knew the pod.
    #[error("network policies are not kept on this node any more")]
    Stopped,
}

/// Removes everything the agent ever made on this node.
pub async fn cleanup() -> Result<(), Error> {
    Ok(node::nft::apply(&table::remove()).await?)
}
