//! Custom resources: definitions come, and what they define is served by the same code as built-in kinds.

mod admission;
mod bad_input;
mod conversion;
mod definitions;
mod lifecycle;
mod objects;
mod published;
mod recorded;
mod type_meta;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::server::Server;

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of `Ship` in `harbour.example.com` with these versions.
pub fn ships(versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.harbour.example.com"},
        "spec": {
            "group": "harbour.example.com", "scope": "Namespaced",
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList", "shortNames": ["sh"], "categories": ["fleet"]},
            "versions": versions,
        },
    })
}

/// A served version with this schema.
pub fn version(name: &str, storage: bool, schema: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

/// A schema whose `spec` has these properties, and whose `status` is whatever it is.
pub fn spec(properties: Value) -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

/// A server with a definition that is established.
pub async fn serving(definition: &Value) -> Server {
    let server = Server::default().await;
    define(&server, definition).await;
    server
}

/// Makes a definition and waits until it is established.
pub async fn define(server: &Server, definition: &Value) {
    let made = server.post(DEFINITIONS, definition).await;
    assert_eq!(made.status, 201, "{}", made.text());
    established(server, definition).await;
}

/// Waits until a definition is established.
pub async fn established(server: &Server, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let is_true = |definition: &CustomResourceDefinition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    testkit::object::<CustomResourceDefinition>(&server.admin(), "", name, "the definition is established", |found| {
        found.is_some_and(is_true)
    })
    .await;
}

/// Waits until a definition is gone.
pub async fn gone(server: &Server, name: &str) {
    let there = |found: Option<&CustomResourceDefinition>| found.is_none();
    testkit::object::<CustomResourceDefinition>(&server.admin(), "", name, "the definition is gone", there).await;
}

/// A condition of a definition.
pub fn condition(definition: &Value, kind: &str) -> Option<Value> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Where ships of a version are.
pub fn fleet(version: &str) -> String {
    format!("/apis/harbour.example.com/{version}/namespaces/default/ships")
}

/// A ship of `v1` with this spec.
pub fn ship(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": name}, "spec": spec})
}
