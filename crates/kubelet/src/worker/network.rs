//! Nothing starts in a pod before the node's packet rules know its addresses.
//!
//! A sandbox has a network and no process that uses it. So whoever keeps the rules is told of the sandbox after it was made, and has
//! to answer before the first container starts. A kubelet that begins anew tells of sandboxes again before it starts anything in them.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use super::Worker;

/// A pod waits so long for the answer before it says why it waits.
const LIMIT: Duration = Duration::from_secs(10);

/// Whoever keeps the packet rules of this node's pods.
pub trait PodNetwork: Debug + Send + Sync {
    /// Returns when the rules know the pod by its addresses.
    fn attach<'a>(
        &'a self,
        pod: Arc<Pod>,
        sandbox: &'a str,
        addresses: Vec<IpAddr>,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// The pod has no sandbox any more.
    fn detach(&self, uid: &str);
}

impl Worker {
    /// Waits for the rules to know the pod's present sandbox; says why they do not.
    pub(super) async fn attach(&mut self) -> Result<(), String> {
        let (Some(network), Some(sandbox)) = (&self.shared.pod_network, self.state.sandbox()) else { return Ok(()) };
        if sandbox.host_network || self.attached.as_ref() == Some(&sandbox.id) {
            return Ok(());
        }
        let addresses = sandbox.ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        let answer = network.attach(self.pod.clone(), &sandbox.id, addresses);
        let answer = tokio::time::timeout(LIMIT, answer).await;
        answer.unwrap_or_else(|_| Err("network policies are not known yet".to_owned()))?;
        self.attached = Some(sandbox.id.clone());
        Ok(())
    }

    pub(super) fn detach(&self) {
        if let Some(network) = &self.shared.pod_network {
            network.detach(self.uid());
        }
    }
}
