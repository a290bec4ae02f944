//! Types whose JSON form is not the object that their message is: times, quantities, int-or-strings, raw JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use facts::{Opaque, Shape, Type};
use serde_json::Value;

use super::wire::{Piece, Reader, put_bytes, put_number};
use super::{Error, decode as messages, encode as writing};
use crate::{duration, time};

/// The schema type that the three forms of a custom resource's schema refer to.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// From a message to its JSON form.
pub fn decode(bytes: &[u8], of: &Type, depth: usize) -> Result<Value, Error> {
    let pieces = pieces(bytes)?;
    let number = |wanted: u32| pieces.iter().find(|piece| piece.number == wanted).map_or(0, |piece| piece.number_value);
    let piece = |wanted: u32| pieces.iter().rfind(|piece| piece.number == wanted);
    let text = |wanted: u32| piece(wanted).map_or(Ok(String::new()), |piece| messages::text(piece, of.short_name()));
    Ok(match of.shape {
        Shape::Object => messages::message(bytes, of, depth)?,
        Shape::Time | Shape::MicroTime if bytes.is_empty() => Value::Null,
        Shape::Time | Shape::MicroTime => {
            let form = if of.shape == Shape::Time { time::SECONDS } else { time::MICROS };
            let at = time::from_unix(number(1) as i64, number(2) as i32, form);
            // What cannot be written is no time that anybody meant.
            Value::String(at.unwrap_or_else(|| time::format(jiff::Timestamp::UNIX_EPOCH)))
        }
        Shape::Quantity => Value::String(match text(1)? {
            empty if empty.is_empty() => "0".to_owned(),
            quantity => quantity,
        }),
        Shape::IntOrString => match number(1) {
            0 => Value::from(number(2) as i32),
            _ => Value::String(text(3)?),
        },
        Shape::Duration => Value::String(duration::format_nanos(number(1) as i64)),
        Shape::Strings => {
            let texts = pieces.iter().filter(|piece| piece.number == 1);
            Value::Array(
                texts
                    .map(|piece| messages::text(piece, of.short_name()).map(Value::String))
                    .collect::<Result<_, _>>()?,
            )
        }
        Shape::Opaque(opaque) => match opaque {
            Opaque::SchemaOrArray => match piece(1) {
                Some(piece) => schema(piece.bytes, depth)?,
                None => list(&pieces, 2, |piece| schema(piece.bytes, depth))?,
            },
            Opaque::SchemaOrBool => match piece(2) {
                Some(piece) => schema(piece.bytes, depth)?,
                None => Value::Bool(number(1) != 0),
            },
            Opaque::SchemaOrStrings => match piece(1) {
                Some(piece) => schema(piece.bytes, depth)?,
                None => list(&pieces, 2, |piece| messages::text(piece, of.short_name()).map(Value::String))?,
            },
            Opaque::RawExtension | Opaque::FieldsV1 | Opaque::Patch | Opaque::Json | Opaque::Preserved => {
                raw(piece(1))?
            }
        },
    })
}

/// From the JSON form to the message.
pub fn encode(value: &Value, of: &Type, out: &mut Vec<u8>) {
    match of.shape {
        Shape::Object => writing::message(value, of, out),
        Shape::Time | Shape::MicroTime => {
            if let Some((seconds, nanos)) = value.as_str().and_then(time::to_unix) {
                put_number(out, 1, seconds as u64);
                // Whole seconds are all that a Time keeps.
                put_number(out, 2, if of.shape == Shape::Time { 0 } else { nanos as u64 });
            }
        }
        Shape::Quantity => put_bytes(out, 1, text_of(value).as_bytes()),
        Shape::IntOrString => {
            let (kind, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                other => (0, other.as_i64().unwrap_or(0), ""),
            };
            put_number(out, 1, kind);
            put_number(out, 2, number as u64);
            put_bytes(out, 3, text.as_bytes());
        }
        Shape::Duration => {
            put_number(out, 1, value.as_str().and_then(|text| duration::parse_nanos(text).ok()).unwrap_or(0) as u64)
        }
        Shape::Strings => {
            for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                put_bytes(out, 1, text.as_bytes());
            }
        }
        Shape::Opaque(opaque) => match (opaque, value) {
            (Opaque::SchemaOrArray, Value::Array(list)) => list.iter().for_each(|item| put_schema(out, 2, item)),
            (Opaque::SchemaOrArray, schema) => put_schema(out, 1, schema),
            (Opaque::SchemaOrBool, Value::Bool(allows)) => put_number(out, 1, u64::from(*allows)),
            (Opaque::SchemaOrBool, schema) => {
                // A schema allows what it describes.
                put_number(out, 1, 1);
                put_schema(out, 2, schema);
            }
            (Opaque::SchemaOrStrings, Value::Array(list)) => {
                list.iter().filter_map(Value::as_str).for_each(|text| put_bytes(out, 2, text.as_bytes()));
            }
            (Opaque::SchemaOrStrings, schema) => put_schema(out, 1, schema),
            (_, value) => put_bytes(out, 1, value.to_string().as_bytes()),
        },
    }
}

fn pieces(bytes: &[u8]) -> Result<Vec<Piece<'_>>, Error> {
    let mut pieces = Vec::new();
    let mut reader = Reader(bytes);
    while let Some(piece) = reader.next()? {
        pieces.push(piece);
    }
    Ok(pieces)
}

fn list<'a>(
    pieces: &[Piece<'a>],
    number: u32,
    read: impl Fn(&Piece<'a>) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let items = pieces.iter().filter(|piece| piece.number == number).map(read);
    items.collect::<Result<_, _>>().map(Value::Array)
}

fn schema_type() -> &'static Type {
    facts::type_named(SCHEMA).expect("the table has the type of schemas").def()
}

fn schema(bytes: &[u8], depth: usize) -> Result<Value, Error> {
    messages::message(bytes, schema_type(), depth - 1)
}

fn put_schema(out: &mut Vec<u8>, number: u32, schema: &Value) {
    let mut message = Vec::new();
    writing::message(schema, schema_type(), &mut message);
    put_bytes(out, number, &message);
}

/// Raw bytes are JSON; bytes that are not are kept as text, so that nothing is lost.
fn raw(piece: Option<&Piece<'_>>) -> Result<Value, Error> {
    let Some(piece) = piece.filter(|piece| !piece.bytes.is_empty()) else { return Ok(Value::Null) };
    Ok(serde_json::from_slice(piece.bytes).unwrap_or_else(|_| match std::str::from_utf8(piece.bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => Value::String(BASE64.encode(piece.bytes)),
    }))
}

/// A quantity may be written as a number in JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
