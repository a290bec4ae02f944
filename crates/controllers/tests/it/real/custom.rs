//! Custom resources are collected with their owners, go with their namespace, and are counted, as all others are.

use client::{DeleteOptions, Dynamic, Gvr};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::Rig;

/// Defines ships, and waits until they are served.
async fn ships(rig: &Rig) -> Dynamic {
    rig.create::<CustomResourceDefinition>(json!({
        "metadata": {"name": "ships.harbour.example.com"},
        "spec": {"group": "harbour.example.com", "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
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
