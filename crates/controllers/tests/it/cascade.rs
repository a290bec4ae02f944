//! Owners and dependents: all three ways of deleting, finalizers, namespaces.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use serde_json::json;

use crate::workloads::deployment;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_the_dependents_along() {
    let world = World::start();
    world.nodes(2);
    world.put::<Deployment>(deployment("web", 4, "v1"));
    world.settle().await;
    assert_eq!(world.list::<Pod>("default").len(), 4);
    world.delete::<Deployment>("default", "web", "Background");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.get::<Deployment>("default", "web").is_none());
    assert!(world.list::<ReplicaSet>("default").is_empty());
    assert!(world.list::<Pod>("default").is_empty());
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_lets_the_owner_go_last() {
    let mut world = World::start();
    world.nodes(2);
    world.put::<Deployment>(deployment("web", 2, "v1"));
    world.settle().await;
    world.kubelets = false;
    world.delete::<Deployment>("default", "web", "Foreground");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.get::<Deployment>("default", "web").is_some(), "its pods are still going");
    world.kubelets = true;
    world.pass(Duration::from_secs(5)).await;
    assert!(world.list::<Pod>("default").is_empty());
    assert!(world.list::<ReplicaSet>("default").is_empty());
    assert!(world.get::<Deployment>("default", "web").is_none());
}

#[tokio::test(start_paused = true)]
async fn orphaning_leaves_the_dependents() {
    let world = World::start();
    world.nodes(2);
    world.put::<Deployment>(deployment("web", 2, "v1"));
    world.settle().await;
    world.delete::<Deployment>("default", "web", "Orphan");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.get::<Deployment>("default", "web").is_none());
    let sets = world.list::<ReplicaSet>("default");
    assert_eq!(sets.len(), 1);
    assert!(sets[0].metadata.owner_references.as_ref().is_none_or(Vec::is_empty));
    assert_eq!(world.list::<Pod>("default").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_does_not_hold_anything() {
    let world = World::start();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "gone"});
    world.put::<Secret>(json!({"metadata": {"name": "a", "ownerReferences": [owner]}}));
    let living = world.put::<ConfigMap>(json!({"metadata": {"name": "somebody"}}));
    let solid = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": living["metadata"]["uid"]});
    world.put::<Secret>(json!({"metadata": {"name": "b", "ownerReferences": [owner, solid]}}));
    world.pass(Duration::from_secs(5)).await;
    assert!(world.get::<Secret>("default", "a").is_none());
    let kept = world.get::<Secret>("default", "b").expect("a living owner holds it");
    assert_eq!(kept.metadata.owner_references.map(|owners| owners.len()), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_everything_in_it() {
    let world = World::start();
    world.nodes(1);
    world.put::<Namespace>(json!({"metadata": {"name": "work"}}));
    world.settle().await;
    for number in 0..50 {
        world.put::<ConfigMap>(json!({"metadata": {"name": format!("c{number}"), "namespace": "work"}}));
        world.put::<Secret>(json!({"metadata": {"name": format!("s{number}"), "namespace": "work"}}));
    }
    let mut web = deployment("web", 3, "v1");
    web["metadata"]["namespace"] = json!("work");
    world.put::<Deployment>(web);
    world.put::<ConfigMap>(
        json!({"metadata": {"name": "held", "namespace": "work", "finalizers": ["example.com/hold"]}}),
    );
    world.settle().await;
    world.delete::<Namespace>("", "work", "Background");
    world.pass(Duration::from_secs(20)).await;
    let held = world.get::<Namespace>("", "work").expect("a finalizer holds it");
    let conditions = held.status.and_then(|status| status.conditions).unwrap_or_default();
    let finalizers =
        conditions.iter().find(|condition| condition.type_ == "NamespaceFinalizersRemaining").expect("a condition");
    assert_eq!(
        finalizers.message.as_deref(),
        Some("Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances")
    );
    world.edit::<ConfigMap>("work", "held", |map| map["metadata"]["finalizers"] = json!([]));
    world.pass(Duration::from_secs(20)).await;
    assert!(world.get::<Namespace>("", "work").is_none());
    assert!(world.list::<Pod>("work").is_empty());
}
