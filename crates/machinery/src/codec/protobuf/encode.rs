//! From trees to messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use facts::{Label, Member, Proto, Shape, Type, Wire};
use serde_json::Value;

use super::wire::{FIXED64, put_bytes, put_number, put_tag};
use super::{MAGIC, special};
use crate::value;

/// An object of a type in its envelope. `apiVersion` and `kind` are the object's own.
pub fn encode(object: &Value, of: &Type) -> Vec<u8> {
    let mut raw = Vec::with_capacity(512);
    message(object, of, &mut raw);
    let mut types = Vec::new();
    put_bytes(&mut types, 1, value::text(object, "apiVersion").as_bytes());
    put_bytes(&mut types, 2, value::text(object, "kind").as_bytes());
    let mut out = Vec::with_capacity(raw.len() + 64);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, 1, &types);
    put_bytes(&mut out, 2, &raw);
    // The encoding and the content type of the raw bytes: none, as upstream writes.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

/// A `metav1.WatchEvent` around an object that is encoded already.
pub fn encode_event(name: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 24);
    put_bytes(&mut out, 1, name.as_bytes());
    nested(&mut out, 2, |out| put_bytes(out, 1, object));
    out
}

/// The fields of a message in the order of their numbers.
pub fn message(object: &Value, of: &Type, out: &mut Vec<u8>) {
    if of.shape != Shape::Object {
        return special::encode(object, of, out);
    }
    for (number, member) in of.members() {
        match member {
            Member::Inlined(id) => nested(out, number, |out| message(object, id.def(), out)),
            Member::Field(field) => {
                let proto = field.proto.expect("a member's field has a protobuf number");
                let value = object.get(field.name.as_ref()).filter(|value| !value.is_null());
                put_field(value, proto, out);
            }
        }
    }
}

fn put_field(value: Option<&Value>, proto: Proto, out: &mut Vec<u8>) {
    match (proto.label, value) {
        (Label::Repeated, Some(Value::Array(list))) => {
            list.iter().for_each(|item| put(item, proto.wire, proto.number, out));
        }
        // serde_json's maps are sorted by key, as upstream writes them.
        (Label::Map, Some(Value::Object(map))) => {
            for (key, item) in map {
                nested(out, proto.number, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    put(item, proto.wire, 2, out);
                });
            }
        }
        (Label::Repeated | Label::Map, _) => {}
        (Label::Single, Some(value)) => put(value, proto.wire, proto.number, out),
        // A field by value is on the wire even when nothing was said.
        (Label::Single, None) if !proto.pointer && proto.wire != Wire::Bytes => {
            put(&Value::Null, proto.wire, proto.number, out);
        }
        (Label::Single, None) => {}
    }
}

fn put(value: &Value, wire: Wire, number: u32, out: &mut Vec<u8>) {
    match wire {
        Wire::Bool => put_number(out, number, u64::from(value.as_bool().unwrap_or(false))),
        Wire::Int32 | Wire::Int64 => put_number(out, number, value.as_i64().unwrap_or(0) as u64),
        Wire::Double => {
            put_tag(out, number, FIXED64);
            out.extend_from_slice(&value.as_f64().unwrap_or(0.0).to_bits().to_le_bytes());
        }
        Wire::String => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Wire::Bytes => {
            let bytes = value.as_str().and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
            put_bytes(out, number, &bytes);
        }
        Wire::Message(id) => nested(out, number, |out| {
            let of = id.def();
            // The zero of a special type is an empty message, except where its message has fields by value.
            if !value.is_null() || of.shape == Shape::Object || of.shape == Shape::IntOrString {
                message(value, of, out);
            }
        }),
    }
}

fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    put_bytes(out, number, &inner);
}
