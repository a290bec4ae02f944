//! What objects use.

use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use machinery::quantity::{Format, Quantity};
use serde_json::json;

use super::usage::{self, Usage};
use crate::testing::pod;

fn limits(names: &[&str]) -> Usage {
    names.iter().map(|name| ((*name).to_owned(), Quantity::new(0, Format::DecimalSi))).collect()
}

fn printed(used: &Usage) -> Vec<String> {
    used.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

#[test]
fn pods_use_what_their_containers_ask_for() {
    let containers = json!([
        {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}},
        {"name": "b", "resources": {"requests": {"cpu": "200m"}}},
    ]);
    let init = json!([{"name": "i", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}]);
    let pod = |phase: &str| {
        let (containers, init) = (containers.clone(), init.clone());
        pod("p")
            .phase(phase)
            .with(|pod| {
                let spec = pod.spec.get_or_insert_default();
                spec.containers = serde_json::from_value(containers).expect("containers");
                spec.init_containers = serde_json::from_value(init).expect("init containers");
            })
            .build()
    };
    let mut used = limits(&["count/pods", "limits.cpu", "pods", "requests.cpu", "requests.memory"]);
    usage::add_pod(&mut used, &pod("Running"));
    usage::add_pod(&mut used, &pod("Succeeded"));
    assert_eq!(printed(&used), ["count/pods=2", "limits.cpu=1", "pods=1", "requests.cpu=300m", "requests.memory=1Gi"]);
}

#[test]
fn services_and_claims_count_by_type_and_class() {
    let mut used = limits(&[
        "services",
        "services.nodeports",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
    ]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}});
    usage::add_service(&mut used, &serde_json::from_value(service).expect("a service"));
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}});
    usage::add_claim(&mut used, &serde_json::from_value(claim).expect("a claim"));
    assert_eq!(
        printed(&used),
        [
            "fast.storageclass.storage.k8s.io/requests.storage=5Gi",
            "requests.storage=5Gi",
            "services=1",
            "services.nodeports=2"
        ]
    );
}

#[test]
fn scopes_pick_pods() {
    let scoped = |value: serde_json::Value| -> ResourceQuotaSpec { serde_json::from_value(value).expect("a spec") };
    let plain = pod("p").build();
    assert!(usage::in_scope(&scoped(json!({})), &plain));
    assert!(usage::in_scope(&scoped(json!({"scopes": ["NotTerminating"]})), &plain));
    assert!(!usage::in_scope(&scoped(json!({"scopes": ["Terminating"]})), &plain));
    let high = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
    assert!(!usage::in_scope(&scoped(high.clone()), &plain));
    let urgent =
        pod("p").with(|pod| pod.spec.get_or_insert_default().priority_class_name = Some("high".to_owned())).build();
    assert!(usage::in_scope(&scoped(high), &urgent));
}
