//! The servers of the cluster, as a node knows them: those of the `kubernetes` Service, followed while it runs and kept on disk, so that a node which starts
//! while the server that it was told of is gone finds another one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Client, Event, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio_util::sync::CancellationToken;

use crate::component::Failure;

/// Before the servers are asked again who they are.
const AGAIN: Duration = Duration::from_secs(1);

/// Lets a client speak to the servers that were last seen.
pub fn recall(client: &Client, file: &Path) {
    let kept = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Vec<String>>(&bytes).ok());
    client.set_servers(&kept.unwrap_or_default());
}

/// Follows them until it is stopped.
pub async fn follow(client: Client, file: PathBuf, stop: CancellationToken) -> Result<(), Failure> {
    let follow = async {
        loop {
            if let Err(error) = follow_once(&client, &file).await {
                tracing::debug!("the cluster's servers cannot be followed: {error}");
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    stop.run_until_cancelled(follow).await.unwrap_or(Ok(()))
}

async fn follow_once(client: &Client, file: &Path) -> Result<(), Failure> {
    let params = WatchParams { field_selector: "metadata.name=kubernetes".to_owned(), ..WatchParams::default() };
    let mut changes = client.watch::<EndpointSlice>("default", &params).await?;
    while let Some(change) = changes.next().await {
        // A Service that is gone says nothing of its servers.
        if let Event::Added(slice) | Event::Modified(slice) = change?
            && let servers = addresses(&slice)
            && !servers.is_empty()
        {
            let text = serde_json::to_vec(&servers)?;
            if std::fs::read(file).ok().as_ref() != Some(&text) {
                node::private::write(file, text)?;
            }
            client.set_servers(&servers);
        }
    }
    Ok(())
}

/// `host:port` of every server.
fn addresses(slice: &EndpointSlice) -> Vec<String> {
    let Some(port) = slice.ports.iter().flatten().find_map(|port| port.port) else { return Vec::new() };
    let all = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    all.map(|address| if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_are_read_from_the_slice() {
        let slice = |endpoints: serde_json::Value, ports: serde_json::Value| -> EndpointSlice {
            let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports, "metadata": {}});
            serde_json::from_value(slice).expect("a slice")
        };
        let two = json!([{"addresses": ["192.0.2.1"]}, {"addresses": ["fd00::2"]}]);
        assert_eq!(addresses(&slice(two.clone(), json!([{"port": 6443}]))), ["192.0.2.1:6443", "[fd00::2]:6443"]);
        assert!(addresses(&slice(two, json!([]))).is_empty());
    }
}
