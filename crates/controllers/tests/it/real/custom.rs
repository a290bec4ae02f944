//! Custom resources are collected with their owners, go with their namespace, are counted, and are scaled, as all others are.

use client::{DeleteOptions, Dynamic, Gvr};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::{Rig, pod};

/// Defines ships, and waits until they are served.
async fn ships(rig: &Rig) -> Dynamic {
    ships_with(rig, json!({})).await
}

/// Ships with these subresources.
async fn ships_with(rig: &Rig, subresources: Value) -> Dynamic {
    rig.create::<CustomResourceDefinition>(json!({
        "metadata": {"name": "ships.harbour.example.com"},
        "spec": {"group": "harbour.example.com", "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": subresources,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        }]},
    }))
    .await;
    rig.until::<CustomResourceDefinition>("", "ships.harbour.example.com", "ships are served", |definition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    rig.client.dynamic(&Gvr::new("harbour.example.com", "v1", "ships"))
}

fn ship(name: &str, owners: Value) -> Value {
    json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": name, "ownerReferences": owners}})
}

async fn gone(ships: &Dynamic, namespace: &str, name: &str) {
    let wait = async {
        while !ships.get(namespace, name).await.is_err_and(|error| error.is_not_found()) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually(&format!("{name} is gone"), wait).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_go_with_their_owners() {
    let rig = Rig::start().await;
    let _running = rig.run("garbage-collector-controller");
    let ships = ships(&rig).await;
    let owner = ships.create("default", &ship("owner", json!([]))).await.expect("an owner");
    let owned = json!([{"apiVersion": "harbour.example.com/v1", "kind": "Ship", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    ships.create("default", &ship("owned", owned.clone())).await.expect("a dependent");
    rig.create::<ConfigMap>(json!({"metadata": {"name": "cargo", "namespace": "default", "ownerReferences": owned}}))
        .await;
    ships.delete("default", "owner", &DeleteOptions::default()).await.expect("it can be deleted");
    gone(&ships, "default", "owned").await;
    rig.gone::<ConfigMap>("default", "cargo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_go_with_their_namespace() {
    let rig = Rig::start().await;
    let _running = rig.run("namespace-controller");
    let ships = ships(&rig).await;
    rig.create::<Namespace>(json!({"metadata": {"name": "harbour"}})).await;
    ships.create("harbour", &ship("argo", json!([]))).await.expect("a ship");
    rig.delete::<Namespace>("", "harbour").await;
    rig.gone::<Namespace>("", "harbour").await;
    gone(&ships, "harbour", "argo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_are_counted() {
    const COUNT: &str = "count/ships.harbour.example.com";
    let rig = Rig::start().await;
    let ships = ships(&rig).await;
    ships.create("default", &ship("argo", json!([]))).await.expect("a ship");
    let _running = rig.run("resourcequota-controller");
    rig.create::<ResourceQuota>(
        json!({"metadata": {"name": "fleet", "namespace": "default"}, "spec": {"hard": {COUNT: "1"}}}),
    )
    .await;
    rig.until::<ResourceQuota>("default", "fleet", "the ship is counted", |quota| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
        used.and_then(|used| used.get(COUNT)).is_some_and(|used| used.0 == "1")
    })
    .await;
    let refused = ships.create("default", &ship("second", json!([]))).await.expect_err("the quota is used up");
    assert!(refused.to_string().contains("exceeded quota: fleet"), "{refused}");
}

/// What a ship with `masts` pods wants and has.
fn scale() -> Value {
    json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.masts", "statusReplicasPath": ".status.masts", "labelSelectorPath": ".status.selector"}})
}

fn masts(name: &str, masts: i32) -> Value {
    json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": name}, "spec": {"masts": masts}})
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_scale_custom_resources() {
    let rig = Rig::start().await;
    let ships = ships_with(&rig, scale()).await;
    ships.create("default", &masts("argo", 1)).await.expect("a ship");
    rig.create::<HorizontalPodAutoscaler>(json!({
        "metadata": {"name": "argo", "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "harbour.example.com/v1", "kind": "Ship", "name": "argo"},
                 "minReplicas": 3, "maxReplicas": 5},
    }))
    .await;
    let _running = rig.run("horizontal-pod-autoscaler-controller");
    let scaler = rig
        .until::<HorizontalPodAutoscaler>("default", "argo", "the ship has the least that it may have", |scaler| {
            scaler.status.as_ref().is_some_and(|status| status.desired_replicas == 3)
        })
        .await;
    let conditions = scaler.status.as_ref().and_then(|status| status.conditions.as_ref()).expect("conditions");
    let able = conditions.iter().find(|condition| condition.type_ == "AbleToScale").expect("it says whether it can");
    assert_eq!(able.reason.as_deref(), Some("SucceededRescale"), "{able:?}");
    let scaled = ships.get("default", "argo").await.expect("the ship");
    assert_eq!((&scaled["spec"]["masts"], &scaled["metadata"]["generation"]), (&json!(3), &json!(2)));
}

/// A pod of a ship.
async fn sailor(rig: &Rig, name: &str, uid: &Value) {
    let owner = json!([{"apiVersion": "harbour.example.com/v1", "kind": "Ship", "name": "argo", "uid": uid, "controller": true}]);
    let metadata = json!({"labels": {"app": "argo"}, "ownerReferences": owner});
    rig.create::<Pod>(pod(name, metadata, json!({"nodeName": "n1"}))).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    rig.patch_status::<Pod>("default", name, ready).await;
}

async fn budget(rig: &Rig) {
    rig.create::<PodDisruptionBudget>(json!({
        "metadata": {"name": "argo", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "argo"}}},
    }))
    .await;
}

/// Waits until the budget's failure is told.
async fn told(rig: &Rig, message: &str) {
    let what = format!("{message:?} is told");
    testkit::objects::<Event>(&rig.client, "default", &what, |all| {
        all.iter().any(|event| event.message.as_deref() == Some(message))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_ask_custom_resources_how_many_pods_there_should_be() {
    let rig = Rig::start().await;
    let ships = ships_with(&rig, scale()).await;
    let argo = ships.create("default", &masts("argo", 3)).await.expect("a ship");
    for name in ["a", "b"] {
        sailor(&rig, name, &argo["metadata"]["uid"]).await;
    }
    let _running = rig.run("disruption-controller");
    budget(&rig).await;
    rig.until::<PodDisruptionBudget>("default", "argo", "three are expected and two are there", |budget| {
        let status = budget.status.as_ref();
        status.is_some_and(|status| {
            (status.expected_pods, status.current_healthy, status.desired_healthy) == (Some(3), Some(2), Some(2))
        })
    })
    .await;
    // A pod of a ship of that name that is gone belongs to nobody.
    sailor(&rig, "stray", &json!("11111111-2222-3333-4444-555555555555")).await;
    told(&rig, "Failed to calculate the number of expected pods: found no controllers for pod \"stray\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_say_when_a_custom_resource_has_no_scale() {
    let rig = Rig::start().await;
    let argo = ships(&rig).await.create("default", &masts("argo", 3)).await.expect("a ship");
    sailor(&rig, "a", &argo["metadata"]["uid"]).await;
    let _running = rig.run("disruption-controller");
    budget(&rig).await;
    let why = "ships.harbour.example.com does not implement the scale subresource";
    told(&rig, &format!("Failed to calculate the number of expected pods: {why}")).await;
}
