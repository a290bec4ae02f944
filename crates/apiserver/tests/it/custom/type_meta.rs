//! Objects that say that they are something else, or nothing at all, and metadata that is wrong: each is answered as upstream was seen to answer it.

use http::Method;
use serde_json::{Value, json};

use super::{fleet, serving, ship, ships, spec, version};
use crate::http::Answer;
use crate::server::Server;

/// Ships with a rule, a status and a scale.
fn definition() -> Value {
    let mut schema = spec(json!({"name": {"type": "string"}, "masts": {"type": "integer"}}));
    schema["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name != 'x'"}]);
    let mut version = version("v1", true, schema);
    version["subresources"] =
        json!({"status": {}, "scale": {"specReplicasPath": ".spec.masts", "statusReplicasPath": ".status.masts"}});
    ships(json!([version]))
}

/// A server with one ship.
async fn harbour() -> Server {
    let server = serving(&definition()).await;
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.status, 201);
    server
}

/// A new ship, with something else in one place.
fn odd(field: &str, value: Value) -> Value {
    let mut ship = ship("other", json!({"name": "Argo"}));
    ship[field] = value;
    ship
}

fn said(answer: &Answer) -> (u16, String) {
    (answer.status, answer.message())
}

#[tokio::test]
async fn who_sends_an_object_of_another_kind_is_told_so() {
    let server = harbour().await;
    let other = r#"Other.harbour.example.com "other" is invalid: kind: Invalid value: "Other": must be Ship"#;
    assert_eq!(said(&server.post(&fleet("v1"), &odd("kind", json!("Other"))).await), (422, other.to_owned()));
    let version = "the API version in the data (v1) does not match the expected API version (harbour.example.com/v1)";
    assert_eq!(said(&server.post(&fleet("v1"), &odd("apiVersion", json!("v1"))).await), (400, version.to_owned()));
    // Metadata is read before anybody looks at these.
    for (field, value, shown) in [("kind", "Other", ("Other", "v1")), ("apiVersion", "h/v9", ("Ship", "v9"))] {
        let mut unreadable = odd(field, json!(value));
        unreadable["metadata"]["name"] = json!(1);
        let (kind, version) = shown;
        let why = format!(
            "{kind} in version {version:?} cannot be handled as a Ship: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
        );
        assert_eq!(said(&server.post(&fleet("v1"), &unreadable).await), (400, why));
    }
    let strict = format!("{}?fieldValidation=Strict", fleet("v1"));
    let unknown = r#"Ship in version "v9" cannot be handled as a Ship: strict decoding error: unknown field "spec""#;
    let of_another = odd("apiVersion", json!("harbour.example.com/v9"));
    assert_eq!(said(&server.post(&strict, &of_another).await), (400, unknown.to_owned()));
    let ignore = format!("{}?fieldValidation=Ignore", fleet("v1"));
    for (path, begins) in [
        (&ignore, r#"Ship in version "v1" cannot be handled as a Ship: Object 'Kind' is missing in '{"#),
        (&strict, "the object provided is unrecognized (must be of type Ship): Object 'Kind' is missing in '{"),
    ] {
        let answer = server.post(path, &odd("kind", json!(""))).await;
        assert!(answer.status == 400 && answer.message().starts_with(begins), "{}", answer.text());
    }
    let mut status = server.get(&format!("{}/argo", fleet("v1"))).await.json();
    (status["kind"], status["status"]) = (json!("Other"), json!({"masts": 2}));
    let written = server.put(&format!("{}/argo/status", fleet("v1")), &status).await;
    assert_eq!((written.status, &written.json()["kind"]), (200, &json!("Ship")), "{}", written.text());
    server.stop().await;
}

#[tokio::test]
async fn what_a_patch_makes_of_an_objects_kind_is_judged() {
    let server = harbour().await;
    let path = format!("{}/argo", fleet("v1"));
    let merge =
        async |patch: Value| said(&server.patch(&path, "application/merge-patch+json", &patch.to_string()).await);
    let other = r#"Other.harbour.example.com "argo" is invalid: kind: Invalid value: "Other": must be Ship"#;
    assert_eq!(merge(json!({"kind": "Other"})).await, (422, other.to_owned()));
    let version = r#"Ship "argo" is invalid: apiVersion: Invalid value: "v1": must be harbour.example.com/v1"#;
    assert_eq!(merge(json!({"apiVersion": "v1"})).await, (422, version.to_owned()));
    let missing = "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'";
    assert_eq!(merge(json!({"apiVersion": ""})).await, (500, missing.to_owned()));
    let patch = r#"[{"op": "remove", "path": "/kind"}]"#;
    let kindless = server.patch(&path, "application/json-patch+json", patch).await;
    assert!(
        kindless.message().contains(r#"": Object 'Kind' is missing in '{"apiVersion":"harbour.example.com/v1""#),
        "{}",
        kindless.text()
    );
    assert_eq!(kindless.status, 422);
    server.stop().await;
}

#[tokio::test]
async fn wrong_metadata_is_told_as_upstream_tells_it() {
    let server = harbour().await;
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let nameless = server.post(&fleet("v1"), &odd("metadata", json!({}))).await;
    assert!(nameless.status == 422 && nameless.message().contains(unchecked), "{}", nameless.text());
    let owner = json!([{"uid": "1", "name": "a", "kind": "Event", "controller": true, "apiVersion": "v1"}]);
    let owned = server.post(&fleet("v1"), &odd("metadata", json!({"name": "b", "ownerReferences": owner}))).await;
    let shown =
        r#"{"apiVersion":"v1","kind":"Event","name":"a","uid":"1","controller":true}: /v1, Kind=Event is disallowed"#;
    assert!(owned.message().contains(shown), "{}", owned.text());
    // A record without an entry is no wish to forget the owners.
    let path = format!("{}/argo", fleet("v1"));
    let patch = r#"{"metadata": {"managedFields": []}, "spec": {"masts": null}}"#;
    let kept = server.patch(&path, "application/merge-patch+json", patch).await.json();
    assert_eq!(kept["metadata"]["managedFields"].as_array().map(Vec::len), Some(1), "{kept}");
    let other = json!({"metadata": {"name": "argo", "uid": "zz"}, "spec": {}, "apiVersion": "harbour.example.com/v1", "kind": "Ship"});
    let conflict = server.put(&path, &other).await;
    assert!(
        conflict.message().contains("Key: /registry/harbour.example.com/ships/default/argo, "),
        "{}",
        conflict.text()
    );
    let scale = server.get(&format!("{path}/scale")).await;
    let lacks = r#"Internal error occurred: the spec replicas field ".spec.masts" does not exist"#;
    assert_eq!(said(&scale), (500, lacks.to_owned()));
    let null =
        json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "argo"}, "status": null})
            .to_string();
    let status = format!("{path}/status?fieldManager=m");
    assert_eq!(server.patch(&status, "application/apply-patch+yaml", &null).await.status, 200, "nothing is as it was");
    server.send(Method::DELETE, &path, &[], "").await;
    server.stop().await;
}
