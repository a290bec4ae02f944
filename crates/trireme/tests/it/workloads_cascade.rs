//! Owners and dependents with a real kubectl: all three ways of deleting, a finalizer that holds, a namespace of a thousand objects.

use std::time::Instant;

use client::{DeleteOptions, Gvr};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::workloads::Hollow;

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_after_before_or_not_at_all() {
    let cluster = Hollow::start(2).await;
    for policy in ["background", "foreground"] {
        cluster.k("create deployment web --image=img:1 --replicas=3").await;
        cluster.k("rollout status deployment/web --timeout=50s").await;
        cluster.k(&format!("delete deployment/web --cascade={policy} --timeout=50s")).await;
        if policy == "foreground" {
            assert_eq!(cluster.k("get rs,pods -l app=web -o name").await, "", "they went first");
        }
        cluster.k("wait --for=delete rs,pods -l app=web --timeout=50s").await;
    }
    cluster.k("create deployment web --image=img:1 --replicas=3").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    cluster.k("delete deployment/web --cascade=orphan --timeout=50s").await;
    let owners = cluster.k("get rs -l app=web -o jsonpath={.items[*].metadata.ownerReferences}").await;
    assert_eq!(owners, "");
    assert_eq!(cluster.k("get pods -l app=web -o name").await.lines().count(), 3);
    // A Deployment of the same selector takes the orphan over instead of starting anew.
    let before = cluster.k("get rs -l app=web -o jsonpath={.items[*].metadata.uid}").await;
    cluster.k("create deployment web --image=img:1 --replicas=3").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert_eq!(cluster.k("get rs -l app=web -o jsonpath={.items[*].metadata.uid}").await, before);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_holds_and_lets_go() {
    let cluster = Hollow::start(1).await;
    cluster.k("create configmap owner").await;
    cluster
        .kubectl
        .run(&["patch", "configmap", "owner", "-p", r#"{"metadata":{"finalizers":["example.com/hold"]}}"#])
        .await;
    let uid = cluster.k("get configmap owner -o jsonpath={.metadata.uid}").await;
    let child = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: child, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: \"{uid}\"}}]}}\n"
    );
    cluster.apply(&child).await;
    cluster.k("delete configmap owner --wait=false").await;
    assert_ne!(cluster.k("get configmap owner -o jsonpath={.metadata.deletionTimestamp}").await, "");
    assert_eq!(cluster.k("get secret child -o name").await.trim(), "secret/child", "its owner is still there");
    cluster
        .kubectl
        .run(&["patch", "configmap", "owner", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
        .await;
    cluster.k("wait --for=delete configmap/owner secret/child --timeout=50s").await;
    cluster.end().await;
}

/// Twenty kinds that live in namespaces, and the least that each needs.
fn kinds() -> Vec<(Gvr, Value)> {
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"app": "x"}});
    let set = json!({"replicas": 0, "selector": selector, "template": template});
    let job = json!({"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}});
    let kind = |group: &str, version: &str, resource: &str, body: Value| (Gvr::new(group, version, resource), body);
    vec![
        kind("", "v1", "configmaps", json!({})),
        kind("", "v1", "secrets", json!({})),
        kind("", "v1", "serviceaccounts", json!({})),
        kind("", "v1", "services", json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}})),
        kind("", "v1", "endpoints", json!({})),
        kind("", "v1", "limitranges", json!({"spec": {"limits": []}})),
        kind("", "v1", "resourcequotas", json!({"spec": {"hard": {"pods": "1000"}}})),
        kind("", "v1", "podtemplates", json!({"template": template})),
        kind(
            "",
            "v1",
            "replicationcontrollers",
            json!({"spec": {"replicas": 0, "selector": {"app": "x"}, "template": template}}),
        ),
        kind("", "v1", "persistentvolumeclaims", json!({"spec": claim})),
        kind("apps", "v1", "deployments", json!({"spec": set})),
        kind("apps", "v1", "replicasets", json!({"spec": set})),
        kind(
            "apps",
            "v1",
            "statefulsets",
            json!({"spec": {"replicas": 0, "serviceName": "x", "selector": selector, "template": template}}),
        ),
        kind("apps", "v1", "controllerrevisions", json!({"revision": 1, "data": {"x": "y"}})),
        kind("batch", "v1", "jobs", json!({"spec": job})),
        kind("batch", "v1", "cronjobs", json!({"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}})),
        kind("coordination.k8s.io", "v1", "leases", json!({})),
        kind("networking.k8s.io", "v1", "networkpolicies", json!({"spec": {"podSelector": {}}})),
        kind("policy", "v1", "poddisruptionbudgets", json!({"spec": {"minAvailable": 1, "selector": selector}})),
        kind("rbac.authorization.k8s.io", "v1", "roles", json!({"rules": []})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_of_a_thousand_objects_of_twenty_kinds_goes_away() {
    let cluster = Hollow::start(1).await;
    let client = cluster.server.client();
    cluster.k("create namespace crowded").await;
    let kinds = kinds();
    assert_eq!(kinds.len(), 20);
    for (resource, body) in &kinds {
        let resource = client.dynamic(resource);
        let all = (0..50).map(|number| {
            let (mut body, resource) = (body.clone(), resource.clone());
            body["metadata"] = json!({"name": format!("o{number}"), "namespace": "crowded"});
            async move { resource.create("crowded", &body).await }
        });
        for made in futures::future::join_all(all).await {
            made.unwrap_or_else(|error| panic!("{}: {error}", resource.resource().resource));
        }
    }
    let started = Instant::now();
    client.delete::<Namespace>("", "crowded", &DeleteOptions::default()).await.expect("it is there");
    testkit::object::<Namespace>(&client, "", "crowded", "the namespace is gone", |found| found.is_none()).await;
    eprintln!("a namespace of 1,000 objects of 20 kinds was gone after {:?}", started.elapsed());
    for (resource, _) in &kinds {
        let left = client.dynamic(resource).list("crowded", &client::ListParams::default()).await.expect("a list");
        assert!(left.items.is_empty(), "{}", resource.resource);
    }
    cluster.end().await;
}
