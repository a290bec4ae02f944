//! Objects of our own making for tests: of any type, with all of its fields.

use facts::{Opaque, Schema, Type};
use serde_json::{Value, json};

/// How deep objects are filled: schemas of schemas have no end.
pub(crate) const DEPTH: usize = 7;

/// A value that fits a schema. Items of lists and keys of maps carry the mark, so that two authors never share one.
pub(crate) fn fill(schema: &Schema, mark: &str, depth: usize) -> Option<Value> {
    Some(match schema {
        Schema::String => json!(mark),
        Schema::Bytes => json!("aGVsbG8="),
        Schema::Int32 | Schema::Int64 | Schema::IntOrString => json!(7 + mark.len()),
        Schema::Double => json!(1.5),
        Schema::Bool => json!(true),
        Schema::Time => json!("2026-01-01T00:00:00Z"),
        Schema::MicroTime => json!("2026-01-01T00:00:00.000000Z"),
        Schema::Quantity => json!("1"),
        Schema::Duration => json!("1s"),
        Schema::Any(Opaque::SchemaOrBool) => json!(true),
        Schema::Any(Opaque::SchemaOrArray) => json!({"type": mark}),
        Schema::Any(Opaque::SchemaOrStrings) => json!([mark]),
        Schema::Any(_) => json!({"key": mark}),
        Schema::Ref(_) | Schema::Object(_) if depth == 0 => return None,
        Schema::Ref(_) | Schema::Object(_) => object(schema.object()?, |_| Some(mark), depth),
        Schema::Array(list) => json!([fill(&list.items, mark, depth)?]),
        Schema::Map(map) => json!({mark: fill(&map.values, mark, depth)?}),
    })
}

/// An object with the fields for which there is a mark.
pub(crate) fn object<'m>(of: &Type, marks: impl Fn(usize) -> Option<&'m str>, depth: usize) -> Value {
    let mut filled = crate::value::Object::new();
    for (at, field) in of.fields().iter().enumerate() {
        if let Some(value) = marks(at).and_then(|mark| fill(&field.schema, mark, depth - 1)) {
            filled.insert(field.name.to_string(), value);
        }
    }
    Value::Object(filled)
}

/// An object of every kind, with its name and its type, completed as it would be stored: what lies too deep to be filled has its zeros.
pub(crate) fn every_kind() -> impl Iterator<Item = (String, &'static Type, Value)> {
    facts::resources().filter_map(|resource| {
        let of = resource.ty?.def();
        // Only schemas of schemas have no end.
        let depth = if resource.kind == "CustomResourceDefinition" { DEPTH } else { 2 * DEPTH };
        let mut tree = object(of, |_| Some("mark"), depth);
        tree["apiVersion"] = json!(resource.api_version());
        tree["kind"] = json!(&*resource.kind);
        crate::schema::complete(&mut tree, of);
        Some((format!("{} {}", resource.api_version(), resource.kind), of, tree))
    })
}
