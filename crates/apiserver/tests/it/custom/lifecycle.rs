//! How custom resources go: with their namespace of their own, and with the definition that made them.

use client::{Event, Gvr, WatchParams};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::Method;
use serde_json::{Value, json};

use super::{DEFINITIONS, condition, define, fleet, gone, serving, ship, ships, spec, version};
use crate::server::Server;

const NAME: &str = "ships.harbour.example.com";

#[tokio::test]
async fn a_definition_takes_its_objects_with_it() {
    let definition = ships(json!([version("v1", true, spec(json!({"name": {"type": "string"}})))]));
    let server = serving(&definition).await;
    for number in 0..3 {
        assert_eq!(server.post(&fleet("v1"), &ship(&format!("s{number}"), json!({}))).await.status, 201);
    }
    let mut held = ship("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(server.post(&fleet("v1"), &held).await.status, 201);
    let deleted = server.send(Method::DELETE, &format!("{DEFINITIONS}/{NAME}"), &[], "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    let marked = deleted.json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&marked, "Terminating").expect("the condition")["reason"], "InstanceDeletionPending");

    // What is held keeps the definition, and nothing new is made meanwhile.
    let left = async {
        while server.get(&fleet("v1")).await.json()["items"].as_array().is_none_or(|items| items.len() != 1) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("all but one are gone", left).await;
    let late = ship("late", json!({}));
    let posted = server.post(&fleet("v1"), &late).await;
    let path = format!("{}/late?fieldManager=m", fleet("v1"));
    let applied = server.patch(&path, "application/apply-patch+yaml", &late.to_string()).await;
    for refused in [posted, applied] {
        let message = "ships.harbour.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating";
        assert_eq!((refused.status, refused.message().as_str()), (403, message));
    }
    let freed = server
        .patch(&format!("{}/held", fleet("v1")), "application/merge-patch+json", r#"{"metadata":{"finalizers":null}}"#)
        .await;
    assert_eq!(freed.status, 200, "{}", freed.text());
    gone(&server, NAME).await;

    // It can come back, another one, without what was there before.
    define(&server, &definition).await;
    assert_eq!(server.get(&fleet("v1")).await.json()["items"], json!([]));
    server.stop().await;
}

type Watch = BoxStream<'static, Result<Event<Value>, client::Error>>;

/// A watch of ships, of those that are there and of all changes.
async fn watch(server: &Server) -> Watch {
    let ships = server.admin().dynamic(&Gvr::new("harbour.example.com", "v1", "ships"));
    ships.watch("default", &WatchParams::default()).await.expect("a watch")
}

/// What a watch says until it ends: the names of objects, and `-` before those that go.
async fn until_the_end(mut events: Watch) -> Vec<String> {
    let mut seen = Vec::new();
    let read = async {
        while let Some(event) = events.next().await {
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match event.expect("an event") {
                Event::Deleted(object) => seen.push(format!("-{}", name(&object))),
                Event::Added(object) | Event::Modified(object) => seen.push(name(&object)),
                _ => {}
            }
        }
    };
    testkit::eventually("the watch ends", read).await;
    seen
}

#[tokio::test]
async fn watches_end_when_what_they_watch_becomes_another_thing() {
    let definition = ships(json!([version("v1", true, spec(json!({"name": {"type": "string"}})))]));
    let server = serving(&definition).await;
    let path = format!("{DEFINITIONS}/{NAME}");
    let merge = "application/merge-patch+json";
    let open = watch(&server).await;
    // What is not about what is served ends nothing.
    assert_eq!(server.patch(&path, merge, r#"{"metadata":{"labels":{"a":"b"}}}"#).await.status, 200);
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({}))).await.status, 201);
    let more = json!({"spec": {"versions": [version("v1", true, spec(json!({"oars": {"type": "integer"}})))]}});
    assert_eq!(server.patch(&path, merge, &more.to_string()).await.status, 200);
    assert_eq!(until_the_end(open).await, ["argo"]);
    // Whoever comes back finds the new schema.
    let open = watch(&server).await;
    let made = server.post(&fleet("v1"), &ship("pinta", json!({"oars": 3, "name": "x"}))).await;
    assert_eq!(made.json()["spec"], json!({"oars": 3}));

    // A definition that goes is watched to the last object.
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.status, 200);
    let mut seen = until_the_end(open).await;
    seen[2..].sort();
    assert_eq!(seen, ["argo", "pinta", "-argo", "-pinta"]);
    server.stop().await;
}
