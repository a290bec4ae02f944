//! How upstream's converter brings a tree into a type: what strategic merge patches and applied configurations go through instead
//! of a decoder.
//!
//! It takes whole floats for integers, cuts integers to their size without a word, and has words of its own for what fits nowhere. All
//! that is seldom wanted, so it is asked only about a tree that [`super::conform()`] has refused.

use facts::{Schema, Type};
use serde_json::Value;

use super::scalar::{self, Precision};
use crate::patch::{go_kind, go_type, json_type};
use crate::value::Object;

/// Makes of the tree what the converter would, as far as [`super::conform()`] would refuse it otherwise. The error is the first one in the
/// order of Go's fields, in upstream's words.
pub fn from_unstructured(value: &mut Value, of: &Type) -> Result<(), String> {
    match value {
        Value::Object(fields) => object(fields, of),
        other => Err(format!("cannot restore struct from: {}", go_kind(other))),
    }
}

fn object(fields: &mut Object, of: &Type) -> Result<(), String> {
    for field in facts::go_order(of) {
        if let Some(value) = fields.get_mut(&*field.name).filter(|value| !value.is_null()) {
            let named = facts::go_field(&of.name, &field.name).and_then(|go| go.ty);
            convert(value, &field.schema, named)?;
        }
    }
    Ok(())
}

/// Converts one value that is not null. `named` is the name that Go has for its type, where it has one.
fn convert(value: &mut Value, schema: &Schema, named: Option<&str>) -> Result<(), String> {
    match schema {
        Schema::String => match value {
            Value::String(_) => Ok(()),
            // Go can make a text of an integer, and upstream refuses only what Go cannot do in other words.
            Value::Number(_) if go_type(value) == "int64" => Err(inconvertible(value, named.unwrap_or("string"))),
            _ => Err("unrecognized type: string".to_owned()),
        },
        Schema::Bool => match value {
            Value::Bool(_) => Ok(()),
            _ => Err("unrecognized type: bool".to_owned()),
        },
        Schema::Double => match value {
            Value::Number(_) => Ok(()),
            _ => Err("unrecognized type: float64".to_owned()),
        },
        Schema::Int32 => {
            // The cut is upstream's.
            *value = Value::from(integer(value, named, "int32")? as i32);
            Ok(())
        }
        Schema::Int64 => {
            *value = Value::from(integer(value, named, "int64")?);
            Ok(())
        }
        Schema::Bytes => match value {
            Value::String(text) => {
                scalar::bytes(text).map(drop).map_err(|error| format!("error decoding from json: {error}"))
            }
            Value::Array(_) => Ok(()),
            other => Err(format!("cannot restore slice from {}", go_kind(other))),
        },
        Schema::Time | Schema::MicroTime => {
            let precision = if *schema == Schema::Time { Precision::Seconds } else { Precision::Micros };
            match value {
                Value::String(text) => scalar::timestamp(text, precision).map(drop),
                other => Err(unreadable(other, "string")),
            }
        }
        Schema::Duration => match value {
            Value::String(_) => Ok(()),
            other => Err(unreadable(other, "string")),
        },
        Schema::Quantity => scalar::quantity(value).map(drop),
        Schema::IntOrString => match value {
            Value::String(_) => Ok(()),
            Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => Ok(()),
            other => Err(unreadable(other, "int32")),
        },
        Schema::Any(_) => Ok(()),
        Schema::Array(list) => match value {
            Value::Array(items) => {
                each(items.iter_mut(), &list.items, named.and_then(|named| named.strip_prefix("[]")))
            }
            other => Err(format!("cannot restore slice from {}", go_kind(other))),
        },
        Schema::Map(map) => match value {
            Value::Object(entries) => {
                let named = named.and_then(|named| named.strip_prefix("map[string]"));
                each(entries.values_mut(), &map.values, named)
            }
            other => Err(format!("cannot restore map from {}", go_kind(other))),
        },
        Schema::Ref(_) | Schema::Object(_) => from_unstructured(value, schema.object().expect("these two are objects")),
    }
}

fn each<'v>(values: impl Iterator<Item = &'v mut Value>, schema: &Schema, named: Option<&str>) -> Result<(), String> {
    values.filter(|value| !value.is_null()).try_for_each(|value| convert(value, schema, named))
}

fn integer(value: &Value, named: Option<&str>, wanted: &str) -> Result<i64, String> {
    let Value::Number(number) = value else { return Err(format!("unrecognized type: {wanted}")) };
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => Ok(integer),
        // What is beyond all integers becomes the one that stands for it on upstream's machines.
        (None, Some(float)) if float == float.trunc() => {
            Ok(if float.abs() < 9_223_372_036_854_775_808.0 { float as i64 } else { i64::MIN })
        }
        _ => Err(inconvertible(value, named.unwrap_or(wanted))),
    }
}

fn inconvertible(value: &Value, wanted: &str) -> String {
    format!("cannot convert {} to {wanted}", go_type(value))
}

/// What a type says that reads JSON itself.
fn unreadable(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Number(number) if wanted != "string" => format!("number {number}"),
        other => json_type(other).to_owned(),
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: (&str, &str, &str), mut tree: Value, expected: Result<Value, &str>) {
        let of = facts::type_of(kind.0, kind.1, kind.2).expect("a kind").def();
        let shown = tree.to_string();
        let result = from_unstructured(&mut tree, of).map(|()| tree).map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_owned), "{shown}");
    }

    #[test]
    fn what_fits_nowhere_is_named_as_the_converter_names_it() {
        let (pod, deployment) = (("", "v1", "Pod"), ("apps", "v1", "Deployment"));
        for (kind, tree, why) in [
            (pod, json!({"spec": "x"}), "cannot restore struct from: string"),
            (pod, json!({"spec": {"containers": {}}}), "cannot restore slice from map"),
            (pod, json!({"metadata": {"labels": []}}), "cannot restore map from slice"),
            (pod, json!({"metadata": {"labels": {"a": 1}}}), "cannot convert int64 to string"),
            (pod, json!({"metadata": {"labels": {"a": true}}}), "unrecognized type: string"),
            (pod, json!({"spec": {"containers": [{"imagePullPolicy": 1}]}}), "cannot convert int64 to v1.PullPolicy"),
            (pod, json!({"spec": {"hostNetwork": "x"}}), "unrecognized type: bool"),
            (deployment, json!({"spec": {"replicas": "1"}}), "unrecognized type: int32"),
            (deployment, json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32"),
            (
                ("", "v1", "Secret"),
                json!({"data": {"a": "%"}}),
                "error decoding from json: illegal base64 data at input byte 0",
            ),
            (("", "v1", "Secret"), json!({"data": {"a": 1}}), "cannot restore slice from int64"),
            (
                ("policy", "v1", "PodDisruptionBudget"),
                json!({"spec": {"minAvailable": true}}),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
            (
                pod,
                json!({"metadata": {"creationTimestamp": 5}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
            (pod, json!({"status": 1, "spec": 1.5}), "cannot restore struct from: float64"),
        ] {
            check(kind, tree, Err(why));
        }
    }

    #[test]
    fn whole_floats_are_integers_and_big_ones_are_cut() {
        let of = |replicas: Value| json!({"spec": {"replicas": replicas}});
        for (sent, kept) in [(json!(2.0), 2), (json!(4_294_967_297_i64), 1), (json!(3), 3), (json!(1e30), 0)] {
            check(("apps", "v1", "Deployment"), of(sent), Ok(of(json!(kept))));
        }
    }

    #[test]
    fn what_is_converted_has_all_its_unknown_fields_named_once() {
        let of = facts::type_of("apps", "v1", "Deployment").expect("a kind").def();
        let mut tree = json!({"a": 1, "spec": {"a": 1, "replicas": 2.0, "z": 1}, "z": 1});
        let mut unknown = crate::schema::conform_converted(&mut tree, of).expect("the converter takes it");
        unknown.sort();
        let names = ["a", "spec.a", "spec.z", "z"].map(|name| format!("unknown field {name:?}"));
        assert_eq!((tree, unknown), (json!({"spec": {"replicas": 2}}), names.to_vec()));
        let mut tree = json!({"spec": {"replicas": "1"}});
        let refused = crate::schema::conform_converted(&mut tree, of).expect_err("refused");
        assert_eq!(refused, "unrecognized type: int32");
    }

    #[test]
    fn what_reads_itself_knows_neither_its_place_nor_what_it_did_not_read() {
        let of = facts::type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("a kind").def();
        let with = |items: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"items": items}}}}}]}});
        let mut unknown = with(json!({"type": "string", "odd": 1}));
        assert_eq!(crate::schema::conform_converted(&mut unknown, of), Ok(Vec::new()));
        let mut wrong = with(json!({"properties": {"b": {"minLength": 1.5}}}));
        let why = "json: cannot unmarshal number 1.5 into Go struct field JSONSchemaProps";
        let converted = crate::schema::conform_converted(&mut wrong.clone(), of).expect_err("refused");
        assert_eq!(converted, format!("{why}.properties.minLength of type int64"));
        let decoded = crate::schema::conform(&mut wrong, of).expect_err("refused");
        assert!(decoded.starts_with(&format!("{why}.spec.versions.schema.")), "{decoded}");
    }
}
