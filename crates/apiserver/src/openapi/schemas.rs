//! The schemas of built-in types, in either version of OpenAPI, and which types a document needs.
//!
//! What a type is made of comes from the facts, what it is for (in the descriptions) from [`prose`].

use std::collections::BTreeSet;

use facts::{Field, Gvk, ListType, MapType, Opaque, PatchStrategy, Schema, Shape, Type, TypeId};
use serde_json::{Map, Value, json};

use super::operation::PathItem;
use super::{custom, v2, v3};

/// The versions of OpenAPI, which differ in what a schema may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub const ALL: [Self; 2] = [Self::V2, Self::V3];

    /// A reference to the type of this name.
    pub fn reference(self, name: &str) -> Value {
        let at = match self {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{at}{name}") })
    }

    /// What can be done at a path.
    pub fn path(self, item: &PathItem) -> Value {
        match self {
            Dialect::V2 => v2::path(item),
            Dialect::V3 => v3::path(item),
        }
    }
}

/// These types and all that they refer to.
pub(super) fn closure(roots: impl IntoIterator<Item = TypeId>) -> BTreeSet<TypeId> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<TypeId> = roots.into_iter().collect();
    while let Some(id) = waiting.pop() {
        if found.insert(id) && id.def().shape == Shape::Object {
            waiting.extend(id.def().fields().iter().filter_map(|field| type_in(&field.schema)));
        }
    }
    found
}

/// The type that a schema refers to, whether it is an object or a scalar with a type of its own.
fn type_in(schema: &Schema) -> Option<TypeId> {
    match schema {
        Schema::Ref(id) => Some(*id),
        Schema::Array(list) => type_in(&list.items),
        Schema::Map(map) => type_in(&map.values),
        other => facts::type_named(facts::shape_name(shape(other)?)?),
    }
}

fn shape(schema: &Schema) -> Option<Shape> {
    Some(match schema {
        Schema::Time => Shape::Time,
        Schema::MicroTime => Shape::MicroTime,
        Schema::Quantity => Shape::Quantity,
        Schema::IntOrString => Shape::IntOrString,
        Schema::Duration => Shape::Duration,
        Schema::Any(opaque) => Shape::Opaque(*opaque),
        _ => return None,
    })
}

/// The schema of a type. `everywhere` has the kinds of the types that belong to every group version, when
/// this is one of them.
pub(super) fn of_type(of: &Type, dialect: Dialect, everywhere: &[(String, String)]) -> Value {
    let mut schema = match (of.shape, dialect) {
        (Shape::Object, _) => object(of, dialect),
        (Shape::Time | Shape::MicroTime, _) => json!({ "type": "string", "format": "date-time" }),
        (Shape::Quantity, Dialect::V3) => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        (Shape::IntOrString, Dialect::V3) => {
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
        }
        (Shape::Quantity | Shape::Duration, _) => json!({ "type": "string" }),
        (Shape::IntOrString, Dialect::V2) => json!({ "type": "string", "format": "int-or-string" }),
        (Shape::Strings, _) => json!({ "type": "array", "items": { "type": "string" } }),
        (Shape::Opaque(Opaque::RawExtension | Opaque::FieldsV1 | Opaque::Patch), _) => json!({ "type": "object" }),
        (Shape::Opaque(_), _) => json!({}),
    };
    describe(&mut schema, of);
    let kinds = of.gvks.iter().map(kind).chain(
        everywhere
            .iter()
            .map(|(group, version)| json!({ "group": group, "kind": of.short_name(), "version": version })),
    );
    let kinds: Vec<Value> = kinds.collect();
    if !kinds.is_empty() {
        schema["x-kubernetes-group-version-kind"] = Value::Array(kinds);
    }
    schema
}

/// Adds what the type and its fields are for.
fn describe(schema: &mut Value, of: &Type) {
    let Some(prose) = prose::of(&of.name) else {
        // Of lists nothing is said anywhere: they are all alike.
        let list = of.gvks.first().and_then(|gvk| Some((gvk, gvk.kind.strip_suffix("List")?)));
        if let Some((gvk, kind)) = list
            && let Some(resource) = facts::kind(&gvk.group, &gvk.version, kind)
        {
            custom::describe_list(schema, &gvk.kind, kind, &resource.plural);
        }
        return;
    };
    if let Some(text) = prose.text() {
        schema["description"] = Value::from(text);
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (field, text) in prose.fields() {
        if let Some(property) = properties.get_mut(field) {
            property["description"] = Value::from(text);
        }
    }
}

/// A kind as extensions name it.
pub(super) fn kind(gvk: &Gvk) -> Value {
    json!({ "group": gvk.group, "kind": gvk.kind, "version": gvk.version })
}

fn object(of: &Type, dialect: Dialect) -> Value {
    let mut schema = json!({ "type": "object" });
    if !of.fields().is_empty() {
        let properties: Map<String, Value> =
            of.fields().iter().map(|field| (field.name.to_string(), property(field, dialect))).collect();
        schema["properties"] = Value::Object(properties);
    }
    if of.required().len() > 0 {
        schema["required"] = of.required().map(|field| Value::from(&*field.name)).collect();
    }
    if let Some(map_type) = of.map_type {
        schema["x-kubernetes-map-type"] = json!(map_word(map_type));
    }
    if !of.unions.is_empty() {
        let unions = of.unions.iter().map(|union| {
            let members: Map<String, Value> =
                union.members.iter().map(|(field, value)| (field.to_string(), Value::from(&**value))).collect();
            let mut entry = json!({ "fields-to-discriminateBy": members });
            if let Some(discriminator) = &union.discriminator {
                entry["discriminator"] = json!(discriminator);
            }
            entry
        });
        schema["x-kubernetes-unions"] = unions.collect();
    }
    schema
}

/// The schema of a field.
fn property(field: &Field, dialect: Dialect) -> Value {
    let mut schema = of_schema(&field.schema, dialect);
    // A reference stands alone in version 3: whatever is said beside it needs `allOf` around it.
    if dialect == Dialect::V3 && schema["$ref"].is_string() && !field.bare_ref {
        schema = json!({ "allOf": [schema] });
    }
    if let Some(extra) = &field.extra {
        let mut extra: Map<String, Value> = serde_json::from_str(extra).expect("the table holds JSON objects");
        // The values that a list or a map may have are those of what is in it.
        let of = match schema["type"].as_str() {
            Some("array") => Some("items"),
            Some("object") => Some("additionalProperties"),
            _ => None,
        };
        if let Some(of) = of
            && let Some(values) = extra.remove("enum")
        {
            schema[of]["enum"] = values;
        }
        schema.as_object_mut().expect("a schema is an object").extend(extra);
    }
    // Version 2 has no defaults: clients of old would apply them.
    if let (Some(default), Dialect::V3) = (&field.default, dialect) {
        schema["default"] = serde_json::from_str(default).expect("the table holds JSON");
    }
    if let Some(map_type) = field.map_type {
        schema["x-kubernetes-map-type"] = json!(map_word(map_type));
    }
    if let Some(key) = &field.patch_merge_key {
        schema["x-kubernetes-patch-merge-key"] = json!(key);
    }
    if let Some(strategy) = strategy_word(field.patch_strategy) {
        schema["x-kubernetes-patch-strategy"] = json!(strategy);
    }
    schema
}

fn of_schema(schema: &Schema, dialect: Dialect) -> Value {
    match schema {
        Schema::String => json!({ "type": "string" }),
        Schema::Bytes => json!({ "type": "string", "format": "byte" }),
        Schema::Int32 => json!({ "type": "integer", "format": "int32" }),
        Schema::Int64 => json!({ "type": "integer", "format": "int64" }),
        Schema::Double => json!({ "type": "number", "format": "double" }),
        Schema::Bool => json!({ "type": "boolean" }),
        Schema::Array(list) => {
            let mut array = json!({ "type": "array", "items": of_schema(&list.items, dialect) });
            if let Some(list_type) = list.list_type {
                array["x-kubernetes-list-type"] = json!(list_word(list_type));
            }
            if !list.keys.is_empty() {
                array["x-kubernetes-list-map-keys"] = json!(list.keys);
            }
            array
        }
        Schema::Map(map) => {
            let mut object = json!({ "type": "object", "additionalProperties": of_schema(&map.values, dialect) });
            if let Some(map_type) = map.map_type {
                object["x-kubernetes-map-type"] = json!(map_word(map_type));
            }
            object
        }
        Schema::Object(of) => object(of, dialect),
        other => match type_in(other) {
            Some(id) => dialect.reference(&id.def().name),
            None => json!({}),
        },
    }
}

fn list_word(list_type: ListType) -> &'static str {
    match list_type {
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map => "map",
    }
}

fn map_word(map_type: MapType) -> &'static str {
    match map_type {
        MapType::Atomic => "atomic",
        MapType::Granular => "granular",
    }
}

fn strategy_word(strategy: PatchStrategy) -> Option<&'static str> {
    match (strategy.merge, strategy.retain_keys, strategy.replace) {
        (true, true, _) => Some("merge,retainKeys"),
        (true, false, _) => Some("merge"),
        (false, true, _) => Some("retainKeys"),
        (false, false, true) => Some("replace"),
        (false, false, false) => None,
    }
}
