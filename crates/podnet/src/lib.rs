//! The pod network across nodes: every node knows the way to every other node's pods, from the Node objects alone.
//!
//! [`plan`] decides and is pure; [`apply`] turns a plan into commands and runs them; [`Cni`] is how this node's own pods are
//! linked to it; [`run`] does so whenever a Node
//! changes, and whenever the kernel has lost something of it: routes go with their links, rules with a firewall's restart.
//! Pods reach pods and nodes reach pods without address translation; what pods send out of the cluster takes their node's
//! address.
//!
//! Deliberately absent: addresses for pods and their links to the node, which are made by the CNI plugins as configured here, and
//! any message between nodes.

pub mod apply;
mod cni;
pub mod plan;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use informer::{Informers, guard};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use node::{net, nft};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use apply::{Error, cleanup};
pub use cni::Cni;
use plan::{Here, Peer, Plan};
pub use plan::{Mode, pod_mtu};

/// First and longest wait before a refused plan is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// What an administrator configures of the pod network of a node.
#[derive(Debug, Clone)]
pub struct Config {
    pub node_name: String,
    /// How other nodes' pods are reached.
    pub mode: Mode,
    /// All pod addresses of the cluster.
    pub cluster_cidrs: Vec<IpNet>,
    /// How pods are linked to this node; nothing when somebody else sees to it.
    pub cni: Option<Cni>,
}

/// Keeps this node's routes until it is stopped. The routes stay.
pub async fn run(config: Config, informers: &Informers, shutdown: CancellationToken) -> Result<(), Error> {
    apply::switch_on()?;
    // Before anything else: pod addresses nobody claims yet must not leave the machine.
    let refused = Plan { refused: config.cluster_cidrs.iter().copied().collect(), ..Plan::default() };
    apply::refuse(&refused).await?;
    let nodes = informers.of::<Node>();
    let wake = Arc::new(Notify::new());
    let noted = wake.clone();
    // Most changes to Nodes are heartbeats; only what the plan is made of counts.
    nodes.subscribe(move |change| {
        let seen = |node: Option<&Arc<Node>>| node.and_then(|node| Peer::of(node));
        if seen(change.before()) != seen(change.after()) {
            noted.notify_one();
        }
    });
    tokio::select! {
        () = nodes.synced() => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    wake.notify_one();
    let disturbed = Arc::new(AtomicBool::new(false));
    // End with this function, however it ends.
    let mut listeners = JoinSet::new();
    listeners.spawn(watch_links(disturbed.clone(), wake.clone()));
    listeners.spawn(watch_rules(disturbed.clone(), wake.clone()));
    let mut applied = None;
    let mut wait = RETRY.0;
    loop {
        tokio::select! {
            () = wake.notified() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        if disturbed.swap(false, Ordering::Relaxed) {
            applied = None;
        }
        let mut peers: Vec<Peer> = nodes.list().iter().filter_map(|node| Peer::of(node)).collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        match guard::caught("pod network", &config.node_name, turn(&config, &peers, applied.as_ref())).await {
            Some(Ok(plan)) => {
                wait = RETRY.0;
                applied = Some(plan);
            }
            failed => {
                if let Some(Err(error)) = failed {
                    tracing::error!(%error, ?wait, "cannot set up the pod network");
                }
                let again = wake.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    again.notify_one();
                });
                wait = (wait * 2).min(RETRY.1);
            }
        }
    }
}

/// Notes whenever links, addresses or routes are not what they were: the kernel drops routes along with their link.
async fn watch_links(disturbed: Arc<AtomicBool>, wake: Arc<Notify>) {
    let watching = async {
        let mut changes = net::Changes::open()?;
        loop {
            changes.disturbing(apply::PROTOCOL).await?;
            disturbed.store(true, Ordering::Relaxed);
            wake.notify_one();
        }
    };
    let Err(error): std::io::Result<Infallible> = watching.await;
    tracing::warn!(%error, "nobody tells when routes go");
}

/// Notes whenever somebody else changes the masquerading rules.
async fn watch_rules(disturbed: Arc<AtomicBool>, wake: Arc<Notify>) {
    let watching = async {
        let noted = || {
            disturbed.store(true, Ordering::Relaxed);
            wake.notify_one();
        };
        nft::Changes::open()?.on_change(apply::TABLE, noted).await
    };
    let Err(error) = watching.await;
    tracing::warn!(%error, "nobody tells when masquerading rules go");
}

async fn turn(config: &Config, peers: &[Peer], applied: Option<&Plan>) -> Result<Plan, Error> {
    if let Some(cni) = &config.cni {
        cni.configure(&config.node_name, peers)?;
    }
    let here = Here {
        name: config.node_name.clone(),
        links: apply::links().await?,
        cluster_ranges: config.cluster_cidrs.clone(),
    };
    let plan = plan::plan(&here, peers, config.mode);
    if applied != Some(&plan) {
        for (node, why) in &plan.unreachable {
            tracing::warn!(%node, %why, "its pods cannot be reached");
        }
        apply::apply(&plan).await?;
    }
    Ok(plan)
}
