//! How custom resources go: with their namespace of their own, and with the definition that made them.

use http::Method;
use serde_json::json;

use super::{DEFINITIONS, condition, define, fleet, gone, serving, ship, ships, spec, version};

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
    let refused = server.post(&fleet("v1"), &ship("late", json!({}))).await;
    assert_eq!(
        (refused.status, refused.message().as_str()),
        (405, "create not allowed while custom resource definition is terminating")
    );
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
