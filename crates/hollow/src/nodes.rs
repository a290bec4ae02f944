//! What a hollow node says about itself.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use rules::names::NODE_LEASES;
use serde_json::{Value, json};

use crate::Options;

/// As a kubelet's: a quarter of how long the lease lasts.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;

/// The node as it registers, status included.
pub fn node(name: &str, options: &Options, now: Timestamp) -> Node {
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", std::env::consts::ARCH),
        ("trireme.io/hollow", "true"),
    ];
    let labels: BTreeMap<String, String> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let amounts: BTreeMap<String, Quantity> = [
        ("cpu", options.cpu.clone()),
        ("memory", options.memory.clone()),
        ("ephemeral-storage", "1Ti".to_owned()),
        ("pods", options.pods.to_string()),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
    .collect();
    let status = NodeStatus {
        capacity: Some(amounts.clone()),
        allocatable: Some(amounts),
        addresses: Some(vec![NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() }]),
        conditions: Some(conditions(now)),
        daemon_endpoints: Some(NodeDaemonEndpoints::default()),
        node_info: Some(NodeSystemInfo {
            architecture: std::env::consts::ARCH.to_owned(),
            operating_system: "linux".to_owned(),
            kubelet_version: "v1.37.0".to_owned(),
            kube_proxy_version: String::new(),
            os_image: "hollow".to_owned(),
            container_runtime_version: "hollow://1".to_owned(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    };
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Node { metadata, spec: None, status: Some(status) }
}

fn conditions(now: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    vec![
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
}

/// The node's lease, new.
pub fn lease(name: &str, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(NODE_LEASES.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// The change that renews the lease.
pub fn renewal(name: &str, now: Timestamp) -> Value {
    json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(now)}})
}
