//! OpenAPI v2: one document of everything that is served.

use facts::Group;
use serde_json::{Map, Value, json};

use super::operation::{Operation, Parameter, PathItem};
use super::paths::{self, Base};
use super::schemas::{self, Dialect};
use super::{EVERYWHERE, definitions, is_everywhere, shared};

/// What is around the two long sections: among it the parameters that these groups share, which are all that custom resources have.
pub(super) fn frame(groups: &[Group], release: &str) -> Value {
    let items = items(groups);
    let operations = items.iter().flat_map(|item| &item.operations);
    let bodies = operations.clone().filter_map(body);
    let lists = operations.map(|operation| &operation.parameters).chain(items.iter().map(|item| &item.parameters));
    json!({
        "parameters": shared::section(bodies.chain(lists.flatten().map(own_parameter))),
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": release },
        "securityDefinitions": {
            "BearerToken": { "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header" }
        },
        "security": [{ "BearerToken": [] }],
    })
}

/// The sections of these groups, without types that are kinds of every group version: these change with the custom resources.
pub(super) fn built_in(groups: &[Group]) -> (Map<String, Value>, Map<String, Value>) {
    let items = items(groups);
    let paths = items.iter().map(|item| (item.path.clone(), path(item))).collect();
    let mut definitions = definitions(&items, Dialect::V2, &[]);
    definitions.retain(|name, _| !is_everywhere(name));
    (definitions, paths)
}

/// All paths of these groups.
fn items(groups: &[Group]) -> Vec<PathItem> {
    let mut items = vec![paths::api_root(), paths::apis_root(), paths::version(), paths::issuer(), paths::keys()];
    for group in groups {
        if !group.name.is_empty() {
            items.push(paths::group_root(&group.name));
        }
        for version in &group.versions {
            let base = Base::new(&group.name, &version.name);
            items.push(base.resources());
            items.extend(version.resources.iter().flat_map(|resource| base.paths(resource)));
        }
    }
    items
}

/// The types that are kinds of every group version.
pub(super) fn everywhere(groups: &[Group]) -> Map<String, Value> {
    let versions = groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .flat_map(|group| group.versions.iter().map(|version| (group.name.to_string(), version.name.to_string())));
    let mut versions: Vec<(String, String)> = versions.collect();
    versions.sort();
    let types = EVERYWHERE.iter().filter_map(|name| facts::type_named(name)).map(facts::TypeId::def);
    types.map(|of| (of.name.to_string(), schemas::of_type(of, Dialect::V2, &versions))).collect()
}

pub(super) fn path(item: &PathItem) -> Value {
    item.shown(operation, parameter)
}

fn operation(operation: &Operation) -> Value {
    let body_parameter = body(operation).map(shared::referred);
    let parameters: Vec<Value> = body_parameter.into_iter().chain(operation.parameters.iter().map(parameter)).collect();
    let consumes = operation.body.as_ref().map_or(operation.reads, |body| body.consumes);
    let produces = operation.responses.iter().find_map(|response| response.content.as_ref());
    let mut value = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "schemes": ["https"],
        "produces": produces.map(|content| content.produces).unwrap_or_default(),
    });
    if !consumes.is_empty() {
        value["consumes"] = json!(consumes);
    }
    if !parameters.is_empty() {
        value["parameters"] = Value::Array(parameters);
    }
    operation.finish(&mut value, |content| ("schema", content.schema(Dialect::V2)));
    value
}

/// The body, as a parameter.
fn body(operation: &Operation) -> Option<Value> {
    let body = operation.body.as_ref()?;
    let mut parameter = json!({ "name": "body", "in": "body", "schema": Dialect::V2.reference(&body.schema) });
    if body.required {
        parameter["required"] = json!(true);
    }
    Some(parameter)
}

fn parameter(parameter: &Parameter) -> Value {
    shared::known(parameter, own_parameter)
}

fn own_parameter(parameter: &Parameter) -> Value {
    let mut value =
        json!({ "name": parameter.name, "in": parameter.place, "type": parameter.kind, "uniqueItems": true });
    parameter.finish(&mut value);
    value
}
