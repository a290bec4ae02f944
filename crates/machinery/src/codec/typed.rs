//! From JSON into the structs of `k8s-openapi`, as Go fills its own.
//!
//! Their `Deserialize` believes the schema: what is required is there, and nothing is null. The API serves more than that,
//! because Go has a zero for everything: a time that nobody set is `null`, and so may be an element of a list. Whatever the
//! API server can serve, its clients must be able to read. So a document is read plainly first, which is enough for nearly
//! all and costs nothing more. Where that fails it is read as a tree, brought into a form that the structs can hold by what
//! `facts` say of its kind, and read again.
//!
//! An adapter between `serde_json` and the structs could do the same in one pass; it would also double the code of every
//! struct, which every idle server would hold in memory.

use facts::{Opaque, Schema, Type};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Limits, json};
use crate::gvk::GroupVersion;
use crate::schema::json_schema;
use crate::time;
use crate::value::{self, Object};

/// Reads one document. Its kind is taken from `hint` (`apiVersion` and `kind`) where it does not say it itself, as items of
/// lists do not.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8], hint: (&str, &str)) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes).or_else(|error| match json::decode(bytes, Limits::default()) {
        // The depth of a tree that was read is within the limit.
        Ok(tree) => json::decode_own(fitted(tree.value, hint).to_string().as_bytes()),
        Err(_) => Err(error),
    })
}

/// The time that Go's `time.Time` is before anybody set it, and of which it says that it is not set.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// The form in which structs can hold an object: no nulls, and a time wherever one is required.
fn fitted(mut tree: Value, hint: (&str, &str)) -> Value {
    let own = (value::text(&tree, "apiVersion"), value::text(&tree, "kind"));
    let (version, kind) = if own.1.is_empty() { hint } else { own };
    let version = GroupVersion::parse(version);
    let of = version.and_then(|version| facts::type_of(&version.group, &version.version, kind));
    match (&mut tree, of) {
        (Value::Object(fields), Some(of)) => fit_object(fields, of.def()),
        // Of an object of any other kind the metadata is known.
        (Value::Object(fields), None) => {
            fields.retain(|_, value| !value.is_null());
            let meta = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            if let (Some(Value::Object(fields)), Some(of)) = (fields.get_mut("metadata"), meta) {
                fit_object(fields, of.def());
            }
        }
        _ => {}
    }
    tree
}

fn fit_object(fields: &mut Object, of: &Type) {
    fields.retain(|name, value| match of.field(name).map(|field| &field.schema) {
        None => true,
        Some(Schema::Any(kind)) if !is_schema(*kind) => true,
        Some(_) if value.is_null() => false,
        Some(schema) => {
            fit(value, schema);
            true
        }
    });
    for field in of.fields().iter().filter(|field| field.required) {
        if matches!(field.schema, Schema::Time | Schema::MicroTime) && !fields.contains_key(&*field.name) {
            fields.insert(field.name.to_string(), Value::from(ZERO_TIME));
        }
    }
}

fn fit(value: &mut Value, schema: &Schema) {
    match (schema, value) {
        (Schema::Time | Schema::MicroTime, Value::String(text)) if is_beyond(text) => {
            *text = time::format(jiff::Timestamp::MAX);
        }
        (Schema::Array(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| fit_element(item, &list.items));
        }
        (Schema::Map(map), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| fit_element(entry, &map.values));
        }
        (Schema::Any(kind), Value::Array(items)) if *kind == Opaque::SchemaOrArray => {
            if let Some(of) = json_schema() {
                items.iter_mut().for_each(|item| fit_element(item, &Schema::Ref(of)));
            }
        }
        (Schema::Any(kind), Value::Object(fields)) if is_schema(*kind) => {
            if let Some(of) = json_schema() {
                fit_object(fields, of.def());
            }
        }
        (schema, Value::Object(fields)) => {
            if let Some(of) = schema.object() {
                fit_object(fields, of);
            }
        }
        _ => {}
    }
}

/// Go's years end a day after those of `jiff`, which leaves room for offsets.
fn is_beyond(text: &str) -> bool {
    text.starts_with("9999-12-3") && time::parse(text).is_none()
}

/// Whether a value that facts do not describe further is, or may hold, a schema.
fn is_schema(kind: Opaque) -> bool {
    matches!(kind, Opaque::SchemaOrArray | Opaque::SchemaOrBool | Opaque::SchemaOrStrings)
}

/// An element cannot be left out as a field can: one that is null is the zero of its type.
fn fit_element(value: &mut Value, schema: &Schema) {
    if value.is_null() {
        *value = zero(schema);
    }
    fit(value, schema);
}

fn zero(schema: &Schema) -> Value {
    match schema {
        Schema::String | Schema::Bytes => Value::from(""),
        Schema::Int32 | Schema::Int64 | Schema::Double | Schema::IntOrString => Value::from(0),
        Schema::Bool => Value::from(false),
        Schema::Quantity => Value::from("0"),
        Schema::Duration => Value::from("0s"),
        Schema::Time | Schema::MicroTime => Value::from(ZERO_TIME),
        Schema::Ref(_) | Schema::Object(_) | Schema::Map(_) => Value::Object(Object::new()),
        Schema::Array(_) | Schema::Any(Opaque::SchemaOrArray | Opaque::SchemaOrStrings) => Value::Array(Vec::new()),
        Schema::Any(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fit(tree: Value) -> Value {
        fitted(tree, ("", ""))
    }

    #[test]
    fn what_is_null_is_left_out_and_elements_become_zeros() {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "labels": {"x": null}, "creationTimestamp": null, "ownerReferences": [null]},
            "spec": {"ports": [null, {"port": 80, "targetPort": null}], "selector": null, "clusterIPs": [null]},
            "status": {"conditions": [null, {"type": "T", "lastTransitionTime": null}, {"type": "U"}], "loadBalancer": null},
        });
        let zero = "0001-01-01T00:00:00Z";
        let expected = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "labels": {"x": ""}, "ownerReferences": [{}]},
            "spec": {"ports": [{}, {"port": 80}], "clusterIPs": [""]},
            "status": {"conditions": [
                {"lastTransitionTime": zero},
                {"type": "T", "lastTransitionTime": zero},
                {"type": "U", "lastTransitionTime": zero},
            ]},
        });
        assert_eq!(fit(service.clone()), expected);
        let mut item = service;
        item.as_object_mut().expect("an object").retain(|key, _| key != "kind" && key != "apiVersion");
        let fitted = fitted(item, ("v1", "Service"));
        assert_eq!(fitted["status"], expected["status"], "an item of a list does not say its kind");
    }

    #[test]
    fn maps_of_times_and_opaque_values_keep_what_they_are() {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "status": {"disruptedPods": {"a": null, "b": "9999-12-31T23:59:59Z", "c": "2026-01-02T03:04:05Z"}},
        });
        let pods = json!({"a": "0001-01-01T00:00:00Z", "b": "9999-12-30T22:00:00Z", "c": "2026-01-02T03:04:05Z"});
        assert_eq!(fit(budget)["status"]["disruptedPods"], pods);
        let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": [null]}});
        assert_eq!(fit(revision.clone()), revision);
        let custom =
            json!({"apiVersion": "x.example/v1", "kind": "X", "metadata": {"labels": {"a": null}}, "spec": null});
        let expected = json!({"apiVersion": "x.example/v1", "kind": "X", "metadata": {"labels": {"a": ""}}});
        assert_eq!(fit(custom), expected);
    }

    #[test]
    fn nesting_is_read_as_deep_as_the_api_server_reads_it_and_no_deeper() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let reading = move || {
            let deepest = Limits::default().depth;
            assert!(from_slice::<Value>(nested(deepest).as_bytes(), ("", "")).is_ok());
            assert!(from_slice::<Value>(nested(deepest + 1).as_bytes(), ("", "")).is_err());
            assert!(from_slice::<Value>(nested(100_000).as_bytes(), ("", "")).is_err());
        };
        // As small as the stacks of the threads that do the reading.
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(reading).expect("a thread");
        thread.join().expect("it fits on the stack");
    }
}
