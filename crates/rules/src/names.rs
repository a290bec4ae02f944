//! Names that two sides must agree on: headers, versions, namespaces, taints, resources.

use http::HeaderName;
use machinery::names::is_qualified_name;

/// The version of Kubernetes that every part speaks, as `/version` and a Node's `kubeletVersion` have it.
pub const VERSION: &str = "v1.37.0";

/// [`VERSION`], and which Trireme speaks it.
pub const GIT_VERSION: &str = concat!("v1.37.0+trireme-", env!("CARGO_PKG_VERSION"));

/// Names the lease that a write is made under: `namespace/name/holder`. Sent by `client`, judged by the API server.
pub const LEASE_HEADER: HeaderName = HeaderName::from_static("trireme-lease");

/// A token with which a node joins is a Secret of this type in `kube-system`.
pub const BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";
/// What its name has before the token's id.
pub const BOOTSTRAP_TOKEN_PREFIX: &str = "bootstrap-token-";

/// The group of tokens with which servers join. Whoever is in it gets the cluster's keys.
pub const SERVER_BOOTSTRAPPERS: &str = "system:bootstrappers:trireme:servers";
/// Where a server that joins asks for them.
pub const SERVERS_PATH: &str = "/trireme/servers";

/// The namespace in which every node renews a Lease of its own name.
pub const NODE_LEASES: &str = "kube-node-lease";

/// A node that says it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// A node that says nothing any more.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// A node that runs out of memory.
pub const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
/// A node that runs out of disk.
pub const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// A node that runs out of process ids.
pub const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";

/// What quotas write before the name of a resource that pods ask for.
pub const REQUESTS: &str = "requests.";
/// What the resources that are huge pages of one size begin with.
pub const HUGE_PAGES: &str = "hugepages-";

/// Whether a resource is counted in huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES)
}

/// Whether a resource belongs to Kubernetes: it has no domain, or one of Kubernetes'.
pub fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Whether a resource is somebody's device: it has a domain that is not the project's own, and a quota can name it.
pub fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with(REQUESTS)
        && is_qualified_name(&format!("{REQUESTS}{resource}")).is_empty()
}

/// Whether a pod as a whole may ask for a resource, instead of its containers.
pub fn is_of_whole_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || is_huge_page(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_resources_with_a_domain_of_their_own() {
        for (name, expect) in [
            ("example.com/gpu", true),
            ("cpu", false),
            ("requests.example.com/gpu", false),
            ("a.kubernetes.io/x", false),
            // A quota could not name it.
            ("example.com/gpu/2", false),
            ("example.com/-gpu", false),
        ] {
            assert_eq!(is_extended(name), expect, "{name}");
        }
        let longest = 253 - REQUESTS.len();
        assert!(is_extended(&format!("{}/gpu", "a".repeat(longest))));
        assert!(!is_extended(&format!("{}/gpu", "a".repeat(longest + 1))));
    }
}
