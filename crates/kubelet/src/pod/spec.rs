//! Reading a pod as the kubelet does: what everybody reads alike ([`rules::pod_spec`]), and what only a node asks.

use k8s_openapi::api::core::v1::{Container, Pod};

pub use rules::pod_spec::*;

/// Whether deletion was asked for.
pub fn is_deleting(pod: &Pod) -> bool {
    rules::pods::is_deleting(pod)
}

/// Whether the API says the pod has run to its end.
pub fn is_finished(pod: &Pod) -> bool {
    rules::pods::is_terminal(pod)
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// What tells whether a running container is still the one the specification wants: changing its image restarts it.
pub fn hash(container: &Container) -> String {
    // FNV-1a: short, stable over versions of the compiler, and nobody gains anything from a collision.
    let mut hash: u32 = 0x811c_9dc5;
    let image = container.image.as_deref().unwrap_or_default();
    for byte in container.name.bytes().chain([0]).chain(image.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{hash:x}")
}
