//! A schema as a type of facts, by which server-side apply merges objects of a custom resource as it does those of built-in kinds.

use std::sync::Arc;

use facts::{Field, Gvk, List, Map, Opaque, Schema as Of, Str, Type};

use crate::{Additional, ListType, MapType, Schema};

/// The type of whole objects of a kind, given as group, version and kind.
pub(super) fn root(schema: &Schema, (group, version, kind): (String, String, String)) -> Type {
    let mut of = object(schema, true, schema.preserve_unknown);
    let reversed: Vec<&str> = group.rsplit('.').collect();
    of.name = Str::Owned(format!("{}.{version}.{kind}", reversed.join(".")));
    of.gvks = Box::new([Gvk { group: group.into(), version: version.into(), kind: kind.into() }]);
    of
}

/// An object with fields; a resource has those of every resource, whatever the schema says of them. `open` says that unknown fields are merged, too: here
/// or above they are kept. Whether they stay is not decided here.
fn object(schema: &Schema, resource: bool, open: bool) -> Type {
    let mut fields = Vec::new();
    if resource {
        fields.push(Field::new("apiVersion", Of::String));
        fields.push(Field::new("kind", Of::String));
        let metadata = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        fields.extend(metadata.map(|id| Field::new("metadata", Of::Ref(id))));
    }
    for (name, property) in &schema.properties {
        let field = Field::new(name.clone(), value(property, open));
        let default = property.default.as_deref().map(|default| Str::Owned(default.to_string()));
        fields.push(Field { nullable: property.nullable, required: schema.required.contains(name), default, ..field });
    }
    let mut of = Type::new("", fields);
    of.preserve_unknown = open;
    of.map_type = schema.map_type.map(map_type);
    of
}

fn map_type(of: MapType) -> facts::MapType {
    match of {
        MapType::Granular => facts::MapType::Granular,
        MapType::Atomic => facts::MapType::Atomic,
    }
}

fn value(schema: &Schema, open: bool) -> Of {
    let open = open || schema.preserve_unknown;
    if schema.int_or_string {
        return Of::IntOrString;
    }
    match schema.types.only() {
        // What has a format is any scalar to upstream, until it is validated.
        Some("string") if !matches!(schema.format(), "" | "byte") => Of::Quantity,
        Some("string") => Of::String,
        Some("integer") => Of::Int64,
        Some("number") => Of::Double,
        Some("boolean") => Of::Bool,
        Some("array") => list(schema, open),
        Some("object") if !schema.properties.is_empty() || schema.embedded_resource => {
            Of::Object(Arc::new(object(schema, schema.embedded_resource, open)))
        }
        Some("object") => {
            let values = match &schema.additional {
                Additional::Schema(values) => value(values, open),
                // An object of which nothing is said may have any field.
                Additional::Unsaid | Additional::Allowed(_) => Of::Any(Opaque::Preserved),
            };
            Of::Map(Box::new(Map { values, map_type: schema.map_type.map(map_type) }))
        }
        _ => Of::Any(Opaque::Preserved),
    }
}

fn list(schema: &Schema, open: bool) -> Of {
    let items = schema.items.as_deref().map_or(Of::Any(Opaque::Preserved), |items| value(items, open));
    let list_type = schema.list_type.map(|of| match of {
        ListType::Atomic => facts::ListType::Atomic,
        ListType::Set => facts::ListType::Set,
        ListType::Map => facts::ListType::Map,
    });
    let keys = schema.list_keys.iter().map(|key| Str::Owned(key.clone())).collect();
    Of::Array(Box::new(List { items, list_type, keys }))
}
