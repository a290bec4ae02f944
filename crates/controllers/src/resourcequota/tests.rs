//! What objects use.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rules::quota::Counted;
use serde_json::{Value, json};

use super::plan::{self, Count, Observed, plan};
use crate::testing::at;

fn quota(spec: Value) -> ResourceQuota {
    serde_json::from_value(json!({"spec": spec})).expect("a quota")
}

fn limits(names: &[&str]) -> Count {
    let hard: serde_json::Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!("9"))).collect();
    Count::new(&quota(json!({"hard": hard})), at(1000))
}

fn printed(count: &Count) -> Vec<String> {
    count.used.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

#[test]
fn pods_use_what_their_containers_ask_for_or_what_they_ask_for_as_a_whole() {
    let containers = json!([
        {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}},
        {"name": "b", "resources": {"requests": {"cpu": "200m"}}},
    ]);
    let init = json!([{"name": "i", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}]);
    let in_phase = |phase: &str| {
        pod(json!({"spec": {"containers": containers, "initContainers": init}, "status": {"phase": phase}}))
    };
    let names = ["count/pods", "limits.cpu", "pods", "requests.cpu", "requests.memory"];
    let mut count = limits(&names);
    count.add_pod(&in_phase("Running"));
    count.add_pod(&in_phase("Succeeded"));
    assert_eq!(printed(&count), ["count/pods=2", "limits.cpu=1", "pods=1", "requests.cpu=300m", "requests.memory=1Gi"]);
    let mut whole = in_phase("Running");
    whole.spec.get_or_insert_default().resources =
        serde_json::from_value(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}})).expect("resources");
    let mut count = limits(&names);
    count.add_pod(&whole);
    assert_eq!(printed(&count), ["count/pods=1", "limits.cpu=3", "pods=1", "requests.cpu=2", "requests.memory=1Gi"]);
}

#[test]
fn a_pod_counts_for_what_its_node_still_holds_for_it() {
    let shrinking = |running: &str| {
        pod(json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": running}},
            }]},
        }))
    };
    let mut count = limits(&["requests.cpu"]);
    count.add_pod(&shrinking("2"));
    assert_eq!(printed(&count), ["requests.cpu=2"], "it asks for less, and runs with two still");
    assert!(plan::pod_matters(&shrinking("2"), &shrinking("1")), "when it runs with one, the quota is counted again");
    assert!(!plan::pod_matters(&shrinking("1"), &shrinking("1")));
}

#[test]
fn a_pod_whose_grace_is_over_no_longer_counts_and_the_count_knows_when() {
    let deleted = |second: i64| {
        let time = machinery::time::format(at(second));
        pod(
            json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": 30}, "spec": {"containers": []}}),
        )
    };
    let mut count = limits(&["count/pods", "pods"]);
    count.add_pod(&deleted(100));
    assert_eq!((printed(&count), count.due), (vec!["count/pods=1".to_owned(), "pods=0".to_owned()], None));
    count.add_pod(&deleted(990));
    count.add_pod(&deleted(980));
    assert_eq!((printed(&count)[1].as_str(), count.due), ("pods=2", Some(at(1010))));
}

#[test]
fn services_and_claims_count_by_type_and_class() {
    let mut count = limits(&[
        "services",
        "services.nodeports",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
    ]);
    let service = json!({"spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}});
    count.add_service(&serde_json::from_value(service).expect("a service"));
    let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}});
    count.add_claim(&serde_json::from_value(claim).expect("a claim"));
    // One that grew beyond what it asks for now uses what it was given.
    let grown = json!({
        "spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"allocatedResources": {"storage": "2Gi"}},
    });
    count.add_claim(&serde_json::from_value(grown).expect("a claim"));
    assert_eq!(
        printed(&count),
        [
            "fast.storageclass.storage.k8s.io/requests.storage=5Gi",
            "requests.storage=7Gi",
            "services=1",
            "services.nodeports=2"
        ]
    );
}

#[test]
fn claims_of_devices_count_by_class() {
    let mut count = limits(&["count/resourceclaims.resource.k8s.io", "gold.deviceclass.resource.k8s.io/devices"]);
    let exactly = json!({"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2});
    let claim = json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}});
    count.add_device_claim(&serde_json::from_value(claim).expect("a claim"));
    assert_eq!(
        printed(&count),
        ["count/resourceclaims.resource.k8s.io=1", "gold.deviceclass.resource.k8s.io/devices=2"]
    );
    assert!(count.others().is_empty(), "they are measured, not only counted");
}

#[test]
fn scopes_choose_what_is_counted() {
    let urgent = pod(json!({"spec": {"containers": [], "priorityClassName": "high"}}));
    let high = json!([{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]);
    for (spec, expected) in [
        (json!({}), "1"),
        (json!({"scopes": ["NotTerminating"]}), "1"),
        (json!({"scopes": ["Terminating"]}), "0"),
        (json!({"scopeSelector": {"matchExpressions": high}}), "1"),
    ] {
        let mut spec = spec;
        spec["hard"] = json!({"pods": "9", "secrets": "9"});
        let mut count = Count::new(&quota(spec.clone()), at(0));
        count.add_pod(&urgent);
        assert_eq!(count.used["pods"].to_string(), expected, "{spec}");
        let scoped = spec.get("scopes").or(spec.get("scopeSelector")).is_some();
        assert_eq!(count.others().is_empty(), scoped, "secrets have no scope: {spec}");
    }
    let gold = json!([{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]);
    let spec = json!({"hard": {"persistentvolumeclaims": "9"}, "scopeSelector": {"matchExpressions": gold}});
    let mut count = Count::new(&quota(spec), at(0));
    for class in ["gold", "silver"] {
        let claim = json!({"spec": {"volumeAttributesClassName": class}});
        count.add_claim(&serde_json::from_value(claim).expect("a claim"));
    }
    assert_eq!(printed(&count), ["persistentvolumeclaims=1"]);
}

/// Amounts as users write them, some of them odd.
fn amounts(random: &mut StdRng) -> Value {
    let mut amounts = serde_json::Map::new();
    for name in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/odd"] {
        let text = ["0", "1", "100m", "1.5", "64Mi", "2Gi", "3e2", "7"][random.random_range(0..8)];
        if random.random_bool(0.5) {
            amounts.insert(name.to_owned(), json!(text));
        }
    }
    Value::Object(amounts)
}

fn resources(random: &mut StdRng) -> Value {
    let mut resources = json!({});
    for side in ["requests", "limits"] {
        if random.random_bool(0.7) {
            resources[side] = amounts(random);
        }
    }
    resources
}

/// A pod as the API server stores it.
fn generated(random: &mut StdRng) -> Value {
    let mut containers = |count: usize, sidecars: bool| -> Vec<Value> {
        (0..count)
            .map(|at| {
                let mut container = json!({"name": format!("c{at}"), "resources": resources(random)});
                if sidecars && random.random_bool(0.5) {
                    container["restartPolicy"] = json!("Always");
                }
                container
            })
            .collect()
    };
    let (plain, init) = (containers(2, false), containers(3, true));
    let mut pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": plain, "initContainers": init}, "status": {}});
    if random.random_bool(0.4) {
        pod["spec"]["resources"] = resources(random);
    }
    if random.random_bool(0.3) {
        pod["spec"]["overhead"] = amounts(random);
    }
    if random.random_bool(0.3) {
        pod["spec"]["activeDeadlineSeconds"] = json!(random.random_range(0..9));
    }
    if random.random_bool(0.5) {
        pod["spec"]["priorityClassName"] = json!(["high", "low"][random.random_range(0..2)]);
    }
    if random.random_bool(0.3) {
        let mut term = json!({"topologyKey": "zone"});
        match random.random_range(0..3) {
            0 => term["namespaces"] = json!(["other"]),
            1 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        pod["spec"]["affinity"] = match random.random_bool(0.5) {
            true => json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
            false => {
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}})
            }
        };
    }
    if random.random_bool(0.4) {
        pod["metadata"]["deletionTimestamp"] = json!(machinery::time::format(at(random.random_range(900..1100))));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(random.random_range(0..60));
    }
    if random.random_bool(0.5) {
        let status = |name: &str, random: &mut StdRng| json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "allocatedResources": amounts(random), "resources": resources(random)});
        pod["status"]["containerStatuses"] = json!([status("c0", random), status("c1", random)]);
        pod["status"]["initContainerStatuses"] = json!([status("c2", random)]);
        let reason = ["Infeasible", "Deferred"][random.random_range(0..2)];
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
    pod["status"]["phase"] = json!(["Pending", "Running", "Succeeded", "Failed"][random.random_range(0..4)]);
    pod
}

/// Admission is shown the whole pod, the count its parts: both must come to the same.
#[test]
fn the_count_agrees_with_what_admission_charges() {
    let scopes =
        ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"];
    for seed in 0..500 {
        let random = &mut StdRng::seed_from_u64(seed);
        let stored = generated(random);
        let counted = plan::shown(&pod(stored.clone()));
        let charged = Counted::Pods.usage(&stored, at(1000));
        assert_eq!(Counted::Pods.usage(&counted, at(1000)), charged, "seed {seed}: {stored}");
        for scope in scopes {
            let quota = json!({"spec": {"scopes": [scope]}});
            let expected = Counted::Pods.is_in_scope(&quota, &stored);
            assert_eq!(Counted::Pods.is_in_scope(&quota, &counted), expected, "seed {seed}, {scope}: {stored}");
        }
        let names: Vec<&str> = charged.keys().map(String::as_str).collect();
        let mut count = limits(&names);
        count.add_pod(&pod(stored.clone()));
        let used: Vec<String> = charged.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(printed(&count), used, "seed {seed}: {stored}");
    }
}

#[test]
fn a_plan_writes_only_what_changed_and_comes_back_for_what_is_not_there_yet() {
    let spec = json!({"hard": {"pods": "9", "count/widgets.example.com": "3"}});
    let mut observed = Observed {
        quota: std::sync::Arc::new(quota(spec)),
        services: Vec::new(),
        claims: Vec::new(),
        device_claims: Vec::new(),
        others: vec![("count/widgets.example.com".to_owned(), None)],
    };
    let pods = [std::sync::Arc::new(pod(json!({"spec": {"containers": []}})))];
    let first = plan(&observed, pods.clone(), at(0));
    let status = first.status.expect("nothing is known yet");
    let used = status.used.clone().unwrap_or_default();
    assert_eq!((used["pods"].0.as_str(), used["count/widgets.example.com"].0.as_str()), ("1", "0"));
    assert_eq!(first.again.map(|again| again.as_secs()), Some(300));
    std::sync::Arc::make_mut(&mut observed.quota).status = Some(status);
    observed.others[0].1 = Some(0);
    let second = plan(&observed, pods, at(0));
    assert_eq!((second.status, second.again), (None, None));
}
