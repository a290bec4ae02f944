//! From messages to trees.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use facts::{Field, Label, Member, Proto, Shape, Type, Wire};
use serde_json::{Map, Number, Value};

use super::wire::{BYTES, FIXED64, Piece, Reader, VARINT};
use super::{Error, special};

/// The outer message of an object.
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads a `runtime.Unknown`.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader(bytes);
        while let Some(piece) = reader.next()? {
            match piece.number {
                1 => {
                    let mut types = Reader(piece.bytes);
                    while let Some(piece) = types.next()? {
                        match piece.number {
                            1 => envelope.api_version = text(&piece, "apiVersion")?,
                            2 => envelope.kind = text(&piece, "kind")?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = piece.bytes,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// One message of a type. Unknown numbers are skipped, as in every protobuf.
pub fn message(bytes: &[u8], of: &Type, depth: usize) -> Result<Value, Error> {
    if depth == 0 {
        return Err(Error::TooDeep);
    }
    if of.shape != Shape::Object {
        return special::decode(bytes, of, depth);
    }
    let mut object = Map::new();
    into(bytes, of, depth, &mut object)?;
    Ok(Value::Object(object))
}

fn into(bytes: &[u8], of: &Type, depth: usize, object: &mut Map<String, Value>) -> Result<(), Error> {
    let mut reader = Reader(bytes);
    while let Some(piece) = reader.next()? {
        match of.member(piece.number) {
            None => {}
            Some(Member::Inlined(id)) => into(piece.bytes, id.def(), depth - 1, object)?,
            Some(Member::Field(field)) => {
                let proto = field.proto.expect("a member's field has a protobuf number");
                add(object, field, proto, &piece, depth)?;
            }
        }
    }
    Ok(())
}

fn add(
    object: &mut Map<String, Value>,
    field: &Field,
    proto: Proto,
    piece: &Piece<'_>,
    depth: usize,
) -> Result<(), Error> {
    match proto.label {
        Label::Single => {
            let value = scalar(piece, field, proto.wire, depth)?;
            // What is not a pointer is always on the wire; its zero means that nothing was said.
            if proto.pointer || field.always || !is_zero(&value) {
                object.insert(field.name.to_string(), value);
            }
        }
        Label::Repeated => {
            let value = scalar(piece, field, proto.wire, depth)?;
            let list = object.entry(field.name.as_ref()).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(value);
            }
        }
        Label::Map => {
            expect(piece, BYTES, field)?;
            let mut key = String::new();
            let mut value = None;
            let mut entry = Reader(piece.bytes);
            while let Some(piece) = entry.next()? {
                match piece.number {
                    1 => key = text(&piece, &field.name)?,
                    2 => value = Some(scalar(&piece, field, proto.wire, depth)?),
                    _ => {}
                }
            }
            let value = match value {
                Some(value) => value,
                None => absent(proto.wire, depth)?,
            };
            let map = object.entry(field.name.as_ref()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                map.insert(key, value);
            }
        }
    }
    Ok(())
}

/// The value of a map's entry that has only a key.
fn absent(wire: Wire, depth: usize) -> Result<Value, Error> {
    Ok(match wire {
        Wire::Bool => Value::Bool(false),
        Wire::Int32 | Wire::Int64 => Value::from(0),
        Wire::Double => Value::from(0.0),
        Wire::String | Wire::Bytes => Value::String(String::new()),
        Wire::Message(id) => message(&[], id.def(), depth - 1)?,
    })
}

fn scalar(piece: &Piece<'_>, field: &Field, wire: Wire, depth: usize) -> Result<Value, Error> {
    Ok(match wire {
        Wire::Bool => {
            expect(piece, VARINT, field)?;
            Value::Bool(piece.number_value != 0)
        }
        Wire::Int32 => {
            expect(piece, VARINT, field)?;
            Value::from(piece.number_value as i32)
        }
        Wire::Int64 => {
            expect(piece, VARINT, field)?;
            Value::from(piece.number_value as i64)
        }
        Wire::Double => {
            expect(piece, FIXED64, field)?;
            Number::from_f64(f64::from_bits(piece.number_value)).map_or(Value::Null, Value::Number)
        }
        Wire::String => {
            expect(piece, BYTES, field)?;
            Value::String(text(piece, &field.name)?)
        }
        Wire::Bytes => {
            expect(piece, BYTES, field)?;
            Value::String(BASE64.encode(piece.bytes))
        }
        Wire::Message(id) => {
            expect(piece, BYTES, field)?;
            message(piece.bytes, id.def(), depth - 1)?
        }
    })
}

fn expect(piece: &Piece<'_>, kind: u8, field: &Field) -> Result<(), Error> {
    if piece.kind == kind { Ok(()) } else { Err(Error::WireType { got: piece.kind, field: field.name.to_string() }) }
}

pub fn text(piece: &Piece<'_>, field: &str) -> Result<String, Error> {
    std::str::from_utf8(piece.bytes).map(str::to_owned).map_err(|_| Error::Utf8(field.to_owned()))
}

/// Whether a value is what its type starts with.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}
