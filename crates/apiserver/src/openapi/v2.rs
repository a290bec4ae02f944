//! OpenAPI v2: one document of everything that is served.

use std::collections::BTreeMap;

use facts::Group;
use serde_json::{Map, Value, json};

use super::custom::Customs;
use super::operation::{ContentSchema, Operation, Parameter, PathItem};
use super::paths::{self, Base};
use super::schemas::{self, Dialect};
use super::{definitions, reason, v3};

/// The document of these groups.
pub(super) fn document(groups: &[Group], customs: &Customs, release: &str) -> Value {
    let mut items = vec![paths::api_root(), paths::apis_root(), paths::version(), paths::issuer(), paths::keys()];
    let mut everywhere = Vec::new();
    for group in groups {
        // Upstream describes the lists of versions and of resources of built-in kinds only.
        if !group.name.is_empty() && !group.versions.iter().all(v3::is_custom) {
            items.push(paths::group_root(&group.name));
        }
        for version in &group.versions {
            let base = Base::new(&group.name, &version.name);
            if !v3::is_custom(version) {
                items.push(base.resources());
            }
            items.extend(version.resources.iter().flat_map(|resource| base.paths(resource)));
            if !group.name.is_empty() {
                everywhere.push((group.name.to_string(), version.name.to_string()));
            }
        }
    }
    everywhere.sort();
    let paths: BTreeMap<&str, Value> = items.iter().map(|item| (&*item.path, path(item))).collect();
    let mut definitions = definitions(&items, Dialect::V2, &everywhere);
    for version in groups.iter().flat_map(|group| &group.versions) {
        definitions.extend(customs.definitions(&version.resources, Dialect::V2));
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": release },
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {
            "BearerToken": { "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header" }
        },
        "security": [{ "BearerToken": [] }],
    })
}

fn path(item: &PathItem) -> Value {
    let mut path: Map<String, Value> =
        item.operations.iter().map(|operation| (operation.method.to_owned(), self::operation(operation))).collect();
    if !item.parameters.is_empty() {
        path.insert("parameters".to_owned(), item.parameters.iter().map(parameter).collect());
    }
    Value::Object(path)
}

fn operation(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(body) = &operation.body {
        let mut parameter = json!({ "name": "body", "in": "body", "schema": Dialect::V2.reference(&body.schema) });
        if body.required {
            parameter["required"] = json!(true);
        }
        parameters.push(parameter);
    }
    parameters.extend(operation.parameters.iter().map(parameter));
    let consumes = operation.body.as_ref().map_or(operation.reads, |body| body.consumes);
    let produces = operation.responses.iter().find_map(|response| response.content.as_ref());
    let mut value = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "schemes": ["https"],
        "consumes": consumes,
        "produces": produces.map(|content| content.produces).unwrap_or_default(),
    });
    if !parameters.is_empty() {
        value["parameters"] = Value::Array(parameters);
    }
    let responses = operation.responses.iter().map(|response| {
        let mut answer = json!({ "description": reason(response.code) });
        if let Some(content) = &response.content {
            answer["schema"] = match &content.schema {
                ContentSchema::Type(name) => Dialect::V2.reference(name),
                ContentSchema::Text => json!({ "type": "string" }),
            };
        }
        (response.code.to_owned(), answer)
    });
    value["responses"] = responses.collect::<Map<_, _>>().into();
    if let Some((action, gvk)) = &operation.about {
        value["x-kubernetes-action"] = json!(action);
        value["x-kubernetes-group-version-kind"] = schemas::kind(gvk);
    }
    value
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value =
        json!({ "name": parameter.name, "in": parameter.place, "type": parameter.kind, "uniqueItems": true });
    if parameter.place == "path" {
        value["required"] = json!(true);
    }
    value
}
