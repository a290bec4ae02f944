//! The workloads: their nodes and pods.

use std::time::Duration;

use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Pods that are there before the measurement.
pub struct Init {
    pub count: usize,
    pub pod: fn(usize) -> Value,
    pub is_schedulable: bool,
}

pub struct Workload {
    pub name: &'static str,
    pub nodes: usize,
    pub pods: usize,
    /// Pods per second, where upstream has a threshold to compare with.
    pub wanted: Option<f64>,
    /// Others that come meanwhile, one every [`CHURN`].
    pub churn: Option<fn(usize) -> Value>,
    /// By the number of nodes.
    pub init: fn(usize) -> Init,
    pub pod: fn(usize) -> Value,
}

fn none(_: usize) -> Init {
    Init { count: 0, pod: plain, is_schedulable: true }
}

/// How often a pod of the churn comes, as upstream's does.
pub const CHURN: Duration = Duration::from_millis(200);

/// All of them. Two are about preemption: upstream's threshold is that of its PreemptionAsync, where ordinary pods are measured
/// and some others preempt meanwhile. In its PreemptionBasic, for which it has no threshold, every pod that is measured
/// preempts three: that is fourteen writes a pod instead of three.
pub const WORKLOADS: &[Workload] = &[
    workload("plain", 10_000, 3_000.0, none, plain),
    workload("node_affinity", 10_000, 2_700.0, none, node_affinity),
    workload("topology_spread", 5_000, 2_300.0, none, spread),
    workload("preferred_affinity", 5_000, 800.0, none, preferred_affinity),
    workload("pod_affinity", 5_000, 350.0, none, affinity),
    workload("anti_affinity", 2_000, 900.0, none, anti_affinity),
    Workload { churn: Some(important), ..workload("preemption", 5_000, 2_850.0, crowd, plain) },
    Workload { wanted: None, ..workload("preemption_basic", 5_000, 0.0, crowd, important) },
    Workload { churn: Some(important_misfit), ..workload("unschedulable_mix", 10_000, 2_950.0, misfits, plain) },
    Workload { nodes: 100_000, ..workload("large", 100_000, 100_000.0 / 60.0, none, plain) },
];

const fn workload(
    name: &'static str,
    pods: usize,
    wanted: f64,
    init: fn(usize) -> Init,
    pod: fn(usize) -> Value,
) -> Workload {
    Workload { name, nodes: 5_000, pods, wanted: Some(wanted), churn: None, init, pod }
}

/// Four pods of low priority per node, which leave too little for one of high priority.
fn crowd(nodes: usize) -> Init {
    Init { count: nodes * 4, pod: unimportant, is_schedulable: true }
}

/// Pods that fit nowhere.
fn misfits(_: usize) -> Init {
    Init { count: 200, pod: misfit, is_schedulable: false }
}

/// A node of four cores, in one of three zones.
pub fn node(name: &str, number: usize) -> Value {
    let zone = format!("zone-{}", number % 3);
    let room = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { ZONE: zone, HOST: name } },
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
        },
    })
}

fn pod(number: usize, cpu: &str, labels: Value, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("pod-{number}"), "labels": labels },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "pause", "image": "pause:3.10",
                "ports": [{ "containerPort": 80 }],
                "resources": { "requests": { "cpu": cpu, "memory": "500Mi" } },
            }],
        },
    });
    if let (Some(spec), Value::Object(more)) = (pod["spec"].as_object_mut(), more) {
        spec.extend(more);
    }
    pod
}

fn plain(number: usize) -> Value {
    pod(number, "100m", json!({}), json!({}))
}

fn node_affinity(number: usize) -> Value {
    let zones = json!({ "key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"] });
    let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": [zones] }] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    pod(number, "100m", json!({}), json!({ "affinity": affinity }))
}

fn blue() -> Value {
    json!({ "color": "blue" })
}

fn spread(number: usize) -> Value {
    let constraint = json!({
        "maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": blue() },
    });
    pod(number, "100m", blue(), json!({ "topologySpreadConstraints": [constraint] }))
}

fn term(labels: Value, key: &str) -> Value {
    json!({ "labelSelector": { "matchLabels": labels }, "topologyKey": key })
}

fn preferred_affinity(number: usize) -> Value {
    let weighted = json!([{ "weight": 1, "podAffinityTerm": term(blue(), HOST) }]);
    let affinity = json!({ "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": weighted } });
    pod(number, "100m", blue(), json!({ "affinity": affinity }))
}

fn affinity(number: usize) -> Value {
    let terms = json!([term(blue(), ZONE)]);
    let affinity = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    pod(number, "100m", blue(), json!({ "affinity": affinity }))
}

fn anti_affinity(number: usize) -> Value {
    let green = || json!({ "color": "green" });
    let terms = json!([term(green(), HOST)]);
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    pod(number, "100m", green(), json!({ "affinity": affinity }))
}

fn unimportant(number: usize) -> Value {
    pod(number, "900m", json!({}), json!({}))
}

fn important(number: usize) -> Value {
    pod(number, "3", json!({}), json!({ "priorityClassName": "high" }))
}

fn misfit(number: usize) -> Value {
    pod(number, "9", json!({}), json!({}))
}

fn important_misfit(number: usize) -> Value {
    pod(number, "9", json!({}), json!({ "priorityClassName": "high" }))
}

/// The pod of a workload as scheduling sees it.
pub fn typed(pod: &Value, uid: usize) -> k8s_openapi::api::core::v1::Pod {
    let mut pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).expect("it is a pod");
    pod.metadata.uid = Some(format!("00000000-0000-4000-8000-{uid:012}"));
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.resource_version = Some("1".to_owned());
    if pod.spec.as_ref().is_some_and(|s| s.priority_class_name.is_some()) {
        pod.spec.get_or_insert_default().priority = Some(1000);
    }
    pod
}
