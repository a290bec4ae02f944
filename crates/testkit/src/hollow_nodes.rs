//! Fake nodes for a test's cluster: their pods are Running and Ready without a container.

use client::Client;
use informer::clock;
use k8s_openapi::api::core::v1::Node;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::wait::objects;

/// Running hollow nodes. Dropping them is as if all of their machines lost power.
#[derive(Debug)]
pub struct HollowNodes {
    _stop: DropGuard,
}

impl HollowNodes {
    /// Starts so many nodes, named `hollow-0` and so on, and waits until they are ready.
    pub async fn start(client: &Client, count: usize) -> Self {
        let stop = CancellationToken::new();
        let options = hollow::Options::new(count);
        let names: Vec<String> = options.names().collect();
        tokio::spawn(hollow::run(options, client.clone(), clock::Real::shared(), stop.clone()));
        objects::<Node>(client, "", "ready hollow nodes", |nodes| {
            names.iter().all(|name| {
                nodes.iter().any(|node| node.metadata.name.as_ref() == Some(name) && rules::pods::is_node_ready(node))
            })
        })
        .await;
        Self { _stop: stop.drop_guard() }
    }
}
