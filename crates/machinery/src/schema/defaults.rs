//! What is added to an object: defaults that are data, and fields that are written even when they are zero.

use facts::{Field, Schema, Type};
use serde_json::Value;

use super::conform::zero;
use crate::value::Object;

/// Sets the defaults that the schema names, at any depth, where the parent is there and the field is not. Defaults that
/// only say that upstream writes a zero are left to [`complete`].
pub fn default(value: &mut Value, of: &Type) {
    if let Value::Object(fields) = value {
        default_object(fields, of);
    }
}

fn default_object(fields: &mut Object, of: &Type) {
    for field in of.defaulted() {
        if let Some(text) = field.default.as_deref().filter(|text| !is_zero(field, text)) {
            let absent = match fields.get(&*field.name) {
                None => true,
                Some(value) => value.is_null() && !field.nullable,
            };
            if absent {
                let value = serde_json::from_str(text).expect("defaults were checked when their schema was accepted");
                fields.insert(field.name.clone().into_owned(), value);
            }
        }
    }
    for (key, value) in fields.iter_mut() {
        if matches!(value, Value::Object(_) | Value::Array(_))
            && let Some(field) = of.field(key)
        {
            default_value(value, &field.schema);
        }
    }
}

fn default_value(value: &mut Value, schema: &Schema) {
    match (value, schema) {
        (Value::Object(entries), Schema::Map(map)) => {
            entries.values_mut().for_each(|entry| default_value(entry, &map.values));
        }
        (Value::Object(fields), schema) => {
            if let Some(of) = schema.object() {
                default_object(fields, of);
            }
        }
        (Value::Array(items), Schema::Array(list)) => {
            items.iter_mut().for_each(|item| default_value(item, &list.items));
        }
        _ => {}
    }
}

/// Whether the default of a built-in field is the zero that is written anyway, or that is never written.
fn is_zero(field: &Field, text: &str) -> bool {
    let plain = field.proto.is_some_and(|proto| !proto.pointer);
    (field.always || plain) && matches!(text, "\"\"" | "{}" | "0" | "false" | "null")
}

/// Adds the fields that upstream writes even when they hold nothing but zero, at any depth.
pub fn complete(value: &mut Value, of: &Type) {
    if let Value::Object(fields) = value {
        complete_object(fields, of);
    }
}

fn complete_object(fields: &mut Object, of: &Type) {
    for field in of.always() {
        if !fields.contains_key(&*field.name) {
            let pointer = field.proto.is_some_and(|proto| proto.pointer);
            let value = if pointer { Value::Null } else { zero(&field.schema) };
            fields.insert(field.name.clone().into_owned(), value);
        }
    }
    for (key, value) in fields.iter_mut() {
        if matches!(value, Value::Object(_) | Value::Array(_))
            && let Some(field) = of.field(key)
        {
            complete_value(value, &field.schema);
        }
    }
}

fn complete_value(value: &mut Value, schema: &Schema) {
    match (value, schema) {
        (Value::Object(entries), Schema::Map(map)) => {
            entries.values_mut().for_each(|entry| complete_value(entry, &map.values));
        }
        (Value::Object(fields), schema) => {
            if let Some(of) = schema.object() {
                complete_object(fields, of);
            }
        }
        (Value::Array(items), Schema::Array(list)) => {
            items.iter_mut().for_each(|item| complete_value(item, &list.items));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
