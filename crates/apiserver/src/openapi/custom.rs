//! The schemas of custom resources, which their definitions bring along.
//!
//! Version 3 publishes a schema as it is, completed by what every object has. Version 2 has no words for some
//! of it, and kubectl of old refuses what it does not understand, so such parts are left out there.

use std::collections::BTreeMap;

use facts::Resource;
use serde_json::{Map, Value, json};

use super::paths::{list_type_name, type_name};
use super::schemas::Dialect;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Where upstream says what lists are.
const CONVENTIONS: &str =
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The built-in types that schemas of custom resources refer to.
pub(super) const REFERRED: [&str; 2] = [OBJECT_META, LIST_META];

/// What a definition says about a version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct Custom {
    /// `openAPIV3Schema`; without one (or with one that is not structural) objects may hold anything.
    pub schema: Option<Value>,
    /// `spec.preserveUnknownFields`.
    pub preserve_unknown: bool,
    /// The paths of `selectableFields`, without the leading dot.
    pub selectable: Vec<String>,
    /// What tells it from what was or will be said: the definition, and its generation.
    pub source: String,
}

/// What is known of custom resources, by the name of their type (see [`type_name`]).
#[derive(Clone, Debug, Default)]
pub struct Customs(BTreeMap<String, Custom>);

impl Customs {
    /// Adds what is known of a resource.
    pub fn insert(&mut self, resource: &Resource, custom: Custom) {
        self.0.insert(type_name(resource).into_owned(), custom);
    }

    /// What the custom ones among these resources are made from.
    pub(super) fn source(&self, resources: &[Resource]) -> String {
        let custom = resources.iter().filter(|resource| resource.ty.is_none());
        let sources = custom.filter_map(|resource| self.0.get(&*type_name(resource)));
        sources.map(|custom| custom.source.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// The schemas of the custom ones among these resources, and of lists of them.
    pub(super) fn definitions(&self, resources: &[Resource], dialect: Dialect) -> Map<String, Value> {
        let mut definitions = Map::new();
        for resource in resources.iter().filter(|resource| resource.ty.is_none()) {
            let name = type_name(resource);
            let nothing = Custom::default();
            let custom = self.0.get(&*name).unwrap_or(&nothing);
            definitions.insert(list_type_name(resource).into_owned(), list(resource, custom, dialect));
            definitions.insert(name.into_owned(), object(resource, custom, dialect));
        }
        definitions
    }
}

fn object(resource: &Resource, custom: &Custom, dialect: Dialect) -> Value {
    let preserves = |schema: &Value| custom.preserve_unknown || schema[PRESERVE] == true;
    let mut schema = match &custom.schema {
        // Properties, even those that every object has, would make clients refuse all others.
        None => json!({ "type": "object" }),
        Some(schema) if dialect == Dialect::V2 && preserves(schema) => json!({ "type": "object" }),
        Some(schema) => {
            let mut schema = schema.clone();
            if dialect == Dialect::V2 {
                to_v2(&mut schema);
            }
            embed(&mut schema, dialect);
            add_object_fields(&mut schema, dialect);
            schema
        }
    };
    add_kind(&mut schema, resource, &resource.kind, custom);
    schema
}

fn list(resource: &Resource, custom: &Custom, dialect: Dialect) -> Value {
    let mut schema = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": described(LIST_META, dialect),
            "items": { "type": "array", "items": dialect.reference(&type_name(resource)) },
        },
    });
    describe_object_fields(&mut schema["properties"]);
    schema["properties"]["metadata"]["description"] =
        json!(format!("Standard list metadata. {CONVENTIONS}#types-kinds"));
    schema["properties"]["items"]["description"] = json!(format!("List of {}. {CONVENTIONS}", resource.plural));
    schema["description"] = json!(format!("{} is a list of {}", resource.list_kind, resource.kind));
    add_kind(&mut schema, resource, &resource.list_kind, custom);
    schema
}

fn add_kind(schema: &mut Value, resource: &Resource, kind: &str, custom: &Custom) {
    let gvk = json!({ "group": resource.group, "kind": kind, "version": resource.version });
    schema["x-kubernetes-group-version-kind"] = json!([gvk]);
    if !custom.selectable.is_empty() {
        let fields = custom.selectable.iter().map(|path| json!({ "fieldPath": path }));
        schema["x-kubernetes-selectable-fields"] = fields.collect();
    }
}

/// A reference in a place that also has a description, or may get one.
fn described(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => dialect.reference(name),
        Dialect::V3 => json!({ "allOf": [dialect.reference(name)] }),
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

fn add_object_fields(schema: &mut Value, dialect: Dialect) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({ "type": "string" });
    properties["kind"] = json!({ "type": "string" });
    properties["metadata"] = described(OBJECT_META, dialect);
    describe_object_fields(properties);
}

/// Says what the fields are for that every object has. Any kind's own words will do: they are the same everywhere.
fn describe_object_fields(properties: &mut Value) {
    let fields = prose::of("io.k8s.api.core.v1.Pod").into_iter().flat_map(prose::Prose::fields);
    for (field, text) in fields.filter(|(field, _)| ["apiVersion", "kind", "metadata"].contains(field)) {
        properties[field]["description"] = Value::from(text);
    }
}

/// Gives whole objects inside of objects the fields that every object has.
fn embed(schema: &mut Value, dialect: Dialect) {
    for child in children(schema) {
        embed(child, dialect);
    }
    // Clients of version 2 would refuse the unknown fields that are meant to be kept.
    if schema[EMBEDDED] != true || (dialect == Dialect::V2 && schema[PRESERVE] == true) {
        return;
    }
    add_object_fields(schema, dialect);
    let mut required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(json!(name));
        }
    }
    schema["required"] = Value::Array(required);
}

/// Leaves out what version 2 cannot say.
fn to_v2(schema: &mut Value) {
    let nullable = |schema: &Value| schema["nullable"] == true;
    let optional: Vec<String> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, property)| nullable(property))
        .map(|(name, _)| name.clone())
        .collect();
    let untyped = nullable(schema);
    let nothing_required = nullable(&schema["additionalProperties"]);
    let Some(object) = schema.as_object_mut() else { return };
    for keyword in ["allOf", "oneOf", "anyOf", "not", "nullable", "default"] {
        object.remove(keyword);
    }
    let preserves = object.get(PRESERVE) == Some(&Value::Bool(true));
    if untyped || preserves {
        object.remove("items");
        object.remove("properties");
    }
    let is = |object: &Map<String, Value>, kind: &str| object.get("type").is_some_and(|found| found == kind);
    if untyped || (is(object, "array") && !object.contains_key("items")) || (preserves && is(object, "object")) {
        object.remove("type");
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !nothing_required && !optional.iter().any(|optional| name == optional));
        if required.is_empty() {
            object.remove("required");
        }
    }
    for child in children(schema) {
        to_v2(child);
    }
}

/// The schemas directly inside of a schema.
fn children(schema: &mut Value) -> Vec<&mut Value> {
    let Some(object) = schema.as_object_mut() else { return Vec::new() };
    let mut children = Vec::new();
    for (keyword, value) in object {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => children.extend(properties.values_mut()),
            ("items" | "additionalProperties", value @ Value::Object(_)) => children.push(value),
            _ => {}
        }
    }
    children
}
