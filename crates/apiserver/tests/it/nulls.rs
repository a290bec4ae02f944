//! Every kind has a struct, and whatever is null in an object can be read into it.

use facts::{Schema, Type};
use machinery::Value;
use serde_json::json;

use crate::kinds::samples;
use crate::typed::decode;

#[test]
fn every_kind_has_a_struct() {
    for facts in facts::resources().filter(|facts| facts.verbs.has("watch")) {
        let object = json!({"apiVersion": facts.api_version(), "kind": facts.kind});
        let read =
            decode(facts, &object).unwrap_or_else(|| panic!("no struct for {} {}", facts.api_version(), facts.kind));
        read.unwrap_or_else(|error| panic!("an empty {}: {error}", facts.kind));
    }
}

/// From samples of every kind, with every field that their types have.
#[test]
fn whatever_is_null_can_be_read() {
    let mut read = 0;
    for sample in samples() {
        let kind = sample.object["kind"].as_str().expect("a kind").to_owned();
        let (group, version) =
            sample.object["apiVersion"].as_str().expect("a version").rsplit_once('/').unwrap_or(("", "v1"));
        let facts = facts::kind(group, version, &kind).expect("a built-in kind");
        let of = facts.ty.expect("a type").def();
        let mut whole = sample.object.clone();
        fill(&mut whole, of, 4);
        let mut paths = Vec::new();
        walk(&whole, &mut Vec::new(), &mut paths);
        for path in paths {
            let mut object = whole.clone();
            *at(&mut object, &path) = Value::Null;
            // Raw, as foreign servers may have it, and in the form in which ours would keep it.
            let raw = object.clone();
            let kept = machinery::schema::conform(&mut object, of).map(|_| {
                machinery::schema::complete(&mut object, of);
                object
            });
            for object in [Some(raw), kept.ok()].into_iter().flatten() {
                read += 1;
                if let Some(Err(error)) = decode(facts, &object) {
                    panic!("{kind} with a null at {path:?}: {error}");
                }
            }
        }
    }
    assert!(read > 10_000, "only {read} objects were read");
}

/// Puts in what is missing, one element into each list and map, so many levels deep.
fn fill(value: &mut Value, of: &Type, depth: usize) {
    let Some(fields) = value.as_object_mut() else { return };
    for field in of.fields() {
        if matches!(&*field.name, "apiVersion" | "kind") {
            continue;
        }
        let entry = fields.entry(field.name.to_string()).or_insert_with(|| sample_of(&field.schema, depth));
        if let Some(of) = field.schema.object().filter(|_| depth > 0) {
            fill(entry, of, depth - 1);
        }
    }
}

fn sample_of(schema: &Schema, depth: usize) -> Value {
    match schema {
        Schema::String | Schema::IntOrString => json!("a"),
        Schema::Bytes => json!("YQ=="),
        Schema::Int32 | Schema::Int64 => json!(1),
        Schema::Double => json!(0.5),
        Schema::Bool => json!(true),
        Schema::Time => json!("9999-12-30T21:59:59Z"),
        Schema::MicroTime => json!("9999-12-30T21:59:59.000000Z"),
        Schema::Quantity => json!("1"),
        Schema::Duration => json!("1m"),
        Schema::Any(facts::Opaque::SchemaOrArray | facts::Opaque::SchemaOrBool | facts::Opaque::SchemaOrStrings) => {
            json!({"type": "object"})
        }
        Schema::Any(_) => json!({"a": null}),
        Schema::Ref(_) | Schema::Object(_) => {
            let mut object = json!({});
            if let Some(of) = schema.object().filter(|_| depth > 0) {
                fill(&mut object, of, depth - 1);
            }
            object
        }
        Schema::Array(list) => json!([sample_of(&list.items, depth.saturating_sub(1))]),
        Schema::Map(map) => json!({"a": sample_of(&map.values, depth.saturating_sub(1))}),
    }
}

/// Every place in an object but what says what it is.
fn walk(value: &Value, here: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut step = |key: String, value: &Value| {
        here.push(key);
        if !(here.len() == 1 && matches!(here[0].as_str(), "apiVersion" | "kind")) {
            paths.push(here.clone());
        }
        walk(value, here, paths);
        here.pop();
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| step(key.clone(), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| step(at.to_string(), item)),
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(value, |value, key| match value {
        Value::Array(items) => &mut items[key.parse::<usize>().expect("a number")],
        value => &mut value[key.as_str()],
    })
}
