//! What the server asks the rest of the kubelet about its pods, and small looks at a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use node::cgroups::Name;
use node::cri::v1::LinuxContainerResources;
use tokio::sync::watch;

/// The pods of this node.
pub trait Pods: Send + Sync + 'static {
    /// All of them, each with the newest status; static pods under the uid their containers carry.
    fn all(&self) -> Vec<Pod>;

    /// The pod with this name, with its newest status.
    fn find(&self, namespace: &str, name: &str) -> Option<Pod>;

    /// The status of a pod as it changes; closed when the pod is gone.
    fn status(&self, uid: &str) -> Option<watch::Receiver<Arc<PodStatus>>>;

    /// The cgroup of a pod, where there are cgroups.
    fn cgroup(&self, pod: &Pod) -> Option<Name>;

    /// What the runtime is told that a container of a pod may use.
    fn limits(&self, pod: &Pod, container: &Container) -> LinuxContainerResources;

    /// Whether pods are being looked after; otherwise why not.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Appends the kubelet's own figures for `/metrics`, in the Prometheus text format.
    fn metrics(&self, _out: &mut String) {}

    /// Appends what probes came to, for `/metrics/probes`, in the same format.
    fn probe_metrics(&self, _out: &mut String) {}
}

/// Whether the pod's specification has a container of this name, of any kind.
pub fn has_container(pod: &Pod, name: &str) -> bool {
    tty(pod, name).is_some()
}

/// Whether a container has a terminal; nothing when there is no such container.
pub fn tty(pod: &Pod, name: &str) -> Option<bool> {
    let spec = pod.spec.as_ref()?;
    let usual = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let usual = usual.map(|container| (container.name.as_str(), container.tty));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|container| (container.name.as_str(), container.tty));
    usual.chain(ephemeral).find(|(known, _)| *known == name).map(|(_, tty)| tty.unwrap_or(false))
}
