//! OpenAPI v3: a document per group version and per root.

use facts::Version;
use serde_json::{Map, Value, json};

use super::custom::{self, Customs};
use super::definitions;
use super::form::{Form, Trees};
use super::operation::{Operation, Parameter, PathItem};
use super::paths::Base;
use super::pieces::Piece;
use super::schemas::Dialect;

/// The release that documents of custom resources name, whatever the server's is.
const RELEASE_OF_CUSTOM: &str = "v0.1.0";

/// The groups, besides the core, whose kinds of objects clients of upstream's release know, with those of long ago. Documents of custom
/// resources say that options of deletions are kinds of these, and not that they are one of the custom group.
const KNOWN_TO_CLIENTS: &[(&str, &[&str])] = &[
    ("admissionregistration.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1", "v1beta1", "v1beta2", "v1beta3"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("lifecycle.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha3", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1", "v1beta1"]),
];

/// The document of a group version of built-in kinds.
pub(super) fn group_version(group: &str, version: &Version, release: &str) -> Value {
    let base = Base::new(group, &version.name);
    let mut items = vec![base.resources()];
    items.extend(version.resources.iter().flat_map(|resource| base.paths(resource)));
    let everywhere = (!group.is_empty()).then(|| (group.to_owned(), version.name.to_string()));
    let schemas = definitions(&items, Dialect::V3, everywhere.as_slice());
    document(&items, schemas, release)
}

/// The document of a group version of custom resources. Upstream does not describe the list of its resources.
pub(super) fn custom_group_version(form: Form, version: &Version, customs: &Customs) -> Vec<Piece> {
    let customs = customs.of(&version.resources);
    let known = |(group, versions): &(&str, &[&str])| -> Vec<(String, String)> {
        versions.iter().map(|version| ((*group).to_owned(), (*version).to_owned())).collect()
    };
    let everywhere: Vec<(String, String)> = KNOWN_TO_CLIENTS.iter().flat_map(known).collect();
    let schemas = definitions(&custom::kinds_of_operations(customs.clone()), Dialect::V3, &everywhere);
    let built_in = form.parts(&Trees::new(schemas, Map::new()));
    let frame =
        json!({ "openapi": "3.0.0", "info": { "title": "Kubernetes CRD Swagger", "version": RELEASE_OF_CUSTOM } });
    form.assemble(&frame, [&built_in].into_iter().chain(customs.map(|custom| custom.parts(form))))
}

/// Whether all resources of a group version are custom.
pub(super) fn is_custom(version: &Version) -> bool {
    version.resources.iter().all(|resource| resource.ty.is_none())
}

/// A document of one path outside of group versions.
pub(super) fn single(item: PathItem, release: &str) -> Value {
    let items = [item];
    let schemas = definitions(&items, Dialect::V3, &[]);
    document(&items, schemas, release)
}

fn document(items: &[PathItem], schemas: Map<String, Value>, release: &str) -> Value {
    let paths: Map<String, Value> = items.iter().map(|item| (item.path.clone(), path(item))).collect();
    let mut components = json!({
        "securitySchemes": {
            "BearerToken": { "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header" }
        }
    });
    if !schemas.is_empty() {
        components["schemas"] = Value::Object(schemas);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": release },
        "paths": paths,
        "components": components,
    })
}

pub(super) fn path(item: &PathItem) -> Value {
    item.shown(operation, parameter)
}

fn operation(operation: &Operation) -> Value {
    let mut value = json!({ "operationId": operation.id, "tags": [operation.tag] });
    if !operation.parameters.is_empty() {
        value["parameters"] = operation.parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &operation.body {
        let schema = json!({ "schema": Dialect::V3.reference(&body.schema) });
        let content: Map<String, Value> =
            body.consumes.iter().map(|media| ((*media).to_owned(), schema.clone())).collect();
        value["requestBody"] = json!({ "content": content });
        if body.required {
            value["requestBody"]["required"] = json!(true);
        }
    }
    operation.finish(&mut value, |content| {
        let schema = content.schema(Dialect::V3);
        let media = content.produces.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema })));
        ("content", media.collect::<Map<_, _>>().into())
    });
    value
}

pub(super) fn parameter(parameter: &Parameter) -> Value {
    let mut value = json!({
        "name": parameter.name,
        "in": parameter.place,
        "schema": { "type": parameter.kind, "uniqueItems": true },
    });
    parameter.finish(&mut value);
    value
}
