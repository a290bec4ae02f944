//! Values as expressions see them: by their type in the schema, not by their form in JSON.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::{Unordered, Value};
use machinery::Value as Json;

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

/// A value of a place. What is not of its format stays the text it is: nothing but the format's own error is said about it.
pub(super) fn value<'a>(schema: &Schema, json: &'a Json) -> Value<'a> {
    match json {
        Json::String(text) => text_value(schema.format(), text).unwrap_or_else(|| Value::from(json)),
        Json::Number(number) if schema.types.only() == Some("number") => {
            number.as_f64().map_or_else(|| Value::from(json), Value::Double)
        }
        Json::Array(items) => match &schema.items {
            Some(of) if is_unordered(schema) || is_needed(of) => {
                let items = items.iter().map(|item| value(of, item)).collect();
                match schema.list_type {
                    Some(ListType::Set) => Unordered::set(items),
                    Some(ListType::Map) => Unordered::keyed(items, &schema.list_keys),
                    _ => Value::list(items),
                }
            }
            _ => Value::from(json),
        },
        Json::Object(fields) if is_needed(schema) => {
            let entry = |(name, field): (&'a String, &'a Json)| {
                let below = schema.field(name).map_or_else(|| Value::from(field), |of| value(of, field));
                (Value::String(name.as_str().into()), below)
            };
            Value::map(fields.iter().map(entry).collect())
        }
        _ => Value::from(json),
    }
}

/// Whether the order of a list means nothing.
fn is_unordered(schema: &Schema) -> bool {
    matches!(schema.list_type, Some(ListType::Set | ListType::Map))
}

fn text_value<'a>(format: &str, text: &str) -> Option<Value<'a>> {
    match format {
        "byte" => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(Arc::from(bytes))),
        "duration" => machinery::duration::parse_nanos(text)
            .ok()
            .map(|nanos| Value::Duration(jiff::SignedDuration::from_nanos(nanos))),
        "date" => {
            let date: jiff::civil::Date = text.parse().ok()?;
            Some(Value::Timestamp(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()))
        }
        "date-time" => machinery::time::parse(text).map(Value::Timestamp),
        _ => None,
    }
}
