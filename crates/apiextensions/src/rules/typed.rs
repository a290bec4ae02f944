//! Values as expressions see them: by their type in the schema, not by their form in JSON.

use std::sync::Arc;

use cel::{Unordered, Value};
use jiff::SignedDuration;
use machinery::{Value as Json, time};
use serde_json::Number;

use crate::formats::duration_nanos;
use crate::{Additional, ListType, Schema};

/// Whether a schema has places whose values are not what they are in JSON.
pub(super) fn is_needed(schema: &Schema) -> bool {
    let here = match schema.types.only() {
        Some("string") => matches!(schema.format(), "byte" | "duration" | "date" | "date-time"),
        Some("number") => true,
        Some("array") => is_unordered(schema),
        _ => false,
    };
    let additional = match &schema.additional {
        Additional::Schema(values) => is_needed(values),
        _ => false,
    };
    here || additional
        || schema.items.as_deref().is_some_and(is_needed)
        || schema.properties.iter().any(|(_, property)| is_needed(property))
}

/// Whether a value has numbers that are no integers, wherever they stand: an expression that reads one where its type says integer is told so.
pub(super) fn has_floats(json: &Json) -> bool {
    match json {
        Json::Number(number) => !number.is_i64(),
        Json::Array(items) => items.iter().any(has_floats),
        Json::Object(fields) => fields.values().any(has_floats),
        _ => false,
    }
}

/// A value of a place. Where it is not of its type or format, whoever reads it is told. `all` of it is looked at where its numbers may not be of their
/// type.
pub(super) fn value<'a>(schema: &Schema, json: &'a Json, all: bool) -> Value<'a> {
    match json {
        Json::Number(number) => number_value(schema, number).unwrap_or_else(|| Value::from(json)),
        Json::String(_) if schema.int_or_string => Value::from(json),
        Json::String(text) => match text_value(schema.format(), text) {
            Ok(value) => value.unwrap_or_else(|| Value::from(json)),
            Err(why) => Value::fault(&why),
        },
        Json::Array(items) => match &schema.items {
            Some(of) if all || is_unordered(schema) || is_needed(of) => {
                let items = items.iter().map(|item| value(of, item, all)).collect();
                match schema.list_type {
                    Some(ListType::Set) => Unordered::set(items),
                    Some(ListType::Map) => Unordered::keyed(items, &schema.list_keys),
                    _ => Value::list(items),
                }
            }
            _ => Value::from(json),
        },
        Json::Object(fields) if all || is_needed(schema) => {
            let entry = |(name, field): (&'a String, &'a Json)| {
                let below = schema.field(name).map_or_else(|| Value::from(field), |of| value(of, field, all));
                (Value::String(name.as_str().into()), below)
            };
            Value::map(fields.iter().map(entry).collect())
        }
        _ => Value::from(json),
    }
}

/// A number where the schema has something to say of it.
fn number_value<'a>(schema: &Schema, number: &Number) -> Option<Value<'a>> {
    match schema.types.only() {
        Some("number") => number.as_f64().map(Value::Double),
        Some("integer") if !number.is_i64() => Some(Value::fault("invalid data, expected int, got float64")),
        _ if schema.int_or_string && !number.is_i64() => {
            Some(Value::fault("invalid data, expected XIntOrString value to be either a string or integer"))
        }
        _ => None,
    }
}

/// Whether the order of a list means nothing.
fn is_unordered(schema: &Schema) -> bool {
    matches!(schema.list_type, Some(ListType::Set | ListType::Map))
}

/// What a text of a format is; nothing if it is a text, and an error if it is not of the format.
fn text_value<'a>(format: &str, text: &str) -> Result<Option<Value<'a>>, String> {
    Ok(Some(match format {
        "byte" => {
            let bytes = machinery::schema::url_bytes(text);
            Value::Bytes(Arc::from(bytes.map_err(|why| format!("Invalid byte formatted string {text}: {why}"))?))
        }
        "duration" => {
            let wrong = || format!("Invalid duration {text}: unable to parse {text} as duration");
            Value::Duration(SignedDuration::from_nanos(duration_nanos(text).ok_or_else(wrong)?))
        }
        "date" => Value::Timestamp(
            time::parse_day(text).map_err(|why| format!("Invalid date formatted string {text}: {why}"))?,
        ),
        "date-time" => Value::Timestamp(
            time::parse_loosely(text).map_err(|why| format!("Invalid date-time formatted string {text}: {why}"))?,
        ),
        _ => return Ok(None),
    }))
}
