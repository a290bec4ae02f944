//! A schema as a type of facts, by which server-side apply merges objects of a custom resource as it does those of built-in kinds.

use std::sync::Arc;

use facts::{Field, Gvk, List, Map, Opaque, Schema as Of, Str, Type};

use crate::{Additional, ListType, MapType, Schema};

/// The type of whole objects of a kind, given as group, version and kind.
pub(super) fn root(schema: &Schema, (group, version, kind): (String, String, String)) -> Type {
    let mut of = object(schema, true);
    let reversed: Vec<&str> = group.rsplit('.').collect();
    of.name = Str::Owned(format!("{}.{version}.{kind}", reversed.join(".")));
    of.gvks = Box::new([Gvk { group: group.into(), version: version.into(), kind: kind.into() }]);
    of
}

/// An object with fields; a resource has those of every resource, whatever the schema says of them.
fn object(schema: &Schema, resource: bool) -> Type {
    let mut fields = Vec::new();
    if resource {
        fields.push(Field::new("apiVersion", Of::String));
        fields.push(Field::new("kind", Of::String));
        let metadata = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        fields.extend(metadata.map(|id| Field::new("metadata", Of::Ref(id))));
    }
    for (name, property) in &schema.properties {
        let field = Field::new(name.clone(), value(property));
        let default = property.default.as_deref().map(|default| Str::Owned(default.to_string()));
        fields.push(Field { nullable: property.nullable, required: schema.required.contains(name), default, ..field });
    }
    let mut of = Type::new("", fields);
    of.preserve_unknown = schema.preserve_unknown;
    of.map_type = schema.map_type.map(map_type);
    of
}

fn map_type(of: MapType) -> facts::MapType {
    match of {
        MapType::Granular => facts::MapType::Granular,
        MapType::Atomic => facts::MapType::Atomic,
    }
}

fn value(schema: &Schema) -> Of {
    if schema.int_or_string {
        return Of::IntOrString;
    }
    match schema.types.only() {
        Some("string") => Of::String,
        Some("integer") => Of::Int64,
        Some("number") => Of::Double,
        Some("boolean") => Of::Bool,
        Some("array") => list(schema),
        Some("object") if !schema.properties.is_empty() || schema.embedded_resource => {
            Of::Object(Arc::new(object(schema, schema.embedded_resource)))
        }
        Some("object") => match &schema.additional {
            Additional::Schema(values) => {
                Of::Map(Box::new(Map { values: value(values), map_type: schema.map_type.map(map_type) }))
            }
            _ if schema.map_type == Some(MapType::Atomic) => {
                let values = Of::Any(Opaque::Preserved);
                Of::Map(Box::new(Map { values, map_type: Some(facts::MapType::Atomic) }))
            }
            _ => Of::Any(Opaque::Preserved),
        },
        _ => Of::Any(Opaque::Preserved),
    }
}

fn list(schema: &Schema) -> Of {
    let items = schema.items.as_deref().map_or(Of::Any(Opaque::Preserved), value);
    let list_type = schema.list_type.map(|of| match of {
        ListType::Atomic => facts::ListType::Atomic,
        ListType::Set => facts::ListType::Set,
        ListType::Map => facts::ListType::Map,
    });
    let keys = schema.list_keys.iter().map(|key| Str::Owned(key.clone())).collect();
    Of::Array(Box::new(List { items, list_type, keys }))
}
