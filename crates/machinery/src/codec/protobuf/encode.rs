//! From trees to messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use facts::{Label, Member, Proto, Shape, Type, Wire};
use serde_json::Value;

use super::wire::{BYTES, FIXED64, put_bytes, put_number, put_tag, put_varint};
use super::{MAGIC, special};
use crate::value;

/// An object of a type in its envelope. `apiVersion` and `kind` are the object's own.
pub fn encode(object: &Value, of: &Type) -> Vec<u8> {
    envelope(value::text(object, "apiVersion"), value::text(object, "kind"), &encode_message(object, of))
}

/// The message of an object, without what names its kind.
pub fn encode_message(object: &Value, of: &Type) -> Vec<u8> {
    let mut raw = Vec::with_capacity(512);
    message(object, of, &mut raw);
    raw
}

/// A message in its envelope.
pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + 64);
    put_types(api_version, kind, &mut out);
    put_bytes(&mut out, 2, raw);
    out.extend_from_slice(&LIST_TAIL);
    out
}

/// What ends an envelope: the encoding and the content type of the raw bytes, which are none, as upstream writes.
pub const LIST_TAIL: [u8; 4] = [0x1a, 0, 0x22, 0];

/// The beginning of a list up to its items, which take so many bytes by [`item_len`].
pub fn list_head(api_version: &str, kind: &str, metadata: &Value, items: usize) -> Vec<u8> {
    let of = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta").expect("a type of every list").def();
    let mut raw = Vec::new();
    nested(&mut raw, 1, |out| message(metadata, of, out));
    let mut out = Vec::with_capacity(raw.len() + 64);
    put_types(api_version, kind, &mut out);
    put_tag(&mut out, 2, BYTES);
    put_varint(&mut out, (raw.len() + items) as u64);
    out.extend_from_slice(&raw);
    out
}

/// How many bytes a message takes as an item of a list.
pub fn item_len(message: &[u8]) -> usize {
    let mut length = Vec::with_capacity(5);
    put_varint(&mut length, message.len() as u64);
    1 + length.len() + message.len()
}

/// Appends a message as an item of a list.
pub fn put_item(out: &mut Vec<u8>, message: &[u8]) {
    put_bytes(out, 2, message);
}

fn put_types(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    nested(out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
    });
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
