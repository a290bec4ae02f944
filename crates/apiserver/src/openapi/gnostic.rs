//! The protobuf form of an OpenAPI v2 document: gnostic's `openapi.v2.Document`.
//!
//! The messages mirror the JSON closely, so a document is encoded from its JSON by a table of what each
//! key becomes. Maps become lists of named values, extensions become YAML text (of which JSON is a part),
//! and unions (a parameter in the body or elsewhere, a response's schema) become messages around a message.

use serde_json::{Map, Value};

use super::form::Sections;

/// A document without its long sections, and these.
pub(super) const SECTIONS: Sections = Sections {
    frame: |document| bytes(|out| message(document, DOCUMENT, 16, out)),
    schemas: |schemas| bytes(|out| self::schemas(schemas, out)),
    paths: |paths| bytes(|out| self::paths(paths, out)),
    parameters: |list, of_path| bytes(|out| each(list, if of_path { 9 } else { 8 }, item, out)),
    schemas_at: &[9],
    paths_at: &[8],
};

/// What is written, as bytes.
pub(super) fn bytes(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::default();
    write(&mut out);
    out.bytes
}

/// What stands before a message of this length in a field of this number.
pub(super) fn head(number: u32, length: usize) -> Vec<u8> {
    bytes(|out| {
        out.varint(u64::from(number) << 3 | 2);
        out.varint(length as u64);
    })
}

/// What a key of a JSON object becomes.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Text,
    Flag,
    /// A list of strings.
    Texts,
    /// A string, as a message with a list of one.
    Type,
    Number,
    Integer,
    /// Any value, as YAML.
    Any,
    /// A list of such values.
    Anys,
    /// A message, whose fields and the number of whose extensions follow.
    Message(Fields, u32),
    /// A message that the writer knows.
    With(fn(&Value, &mut Writer)),
    /// A list of such messages.
    Each(fn(&Value, &mut Writer)),
}

/// Keys, the numbers of their fields and what they become.
pub(super) type Fields = &'static [(&'static str, u32, Part)];

const DOCUMENT: Fields = &[
    ("swagger", 1, Part::Text),
    ("info", 2, Part::Message(INFO, 7)),
    ("paths", 8, Part::With(paths)),
    ("definitions", 9, Part::With(schemas)),
    ("parameters", 10, Part::With(|parameters, out| named(parameters, 1, out, parameter))),
    (
        "security",
        12,
        Part::Each(|requirement, out| {
            named(requirement, 1, out, |scopes, out| texts(1, scopes, out));
        }),
    ),
    (
        "securityDefinitions",
        13,
        Part::With(|definitions, out| {
            named(definitions, 1, out, |item, out| out.nested(2, |out| message(item, API_KEY, 5, out)));
        }),
    ),
];
const INFO: Fields = &[("title", 1, Part::Text), ("version", 2, Part::Text)];
const API_KEY: Fields =
    &[("type", 1, Part::Text), ("name", 2, Part::Text), ("in", 3, Part::Text), ("description", 4, Part::Text)];
const PATH_ITEM: Fields = &[
    ("get", 2, Part::Message(OPERATION, 13)),
    ("put", 3, Part::Message(OPERATION, 13)),
    ("post", 4, Part::Message(OPERATION, 13)),
    ("delete", 5, Part::Message(OPERATION, 13)),
    ("options", 6, Part::Message(OPERATION, 13)),
    ("head", 7, Part::Message(OPERATION, 13)),
    ("patch", 8, Part::Message(OPERATION, 13)),
    ("parameters", 9, Part::Each(item)),
];
const OPERATION: Fields = &[
    ("tags", 1, Part::Texts),
    ("description", 3, Part::Text),
    ("operationId", 5, Part::Text),
    ("produces", 6, Part::Texts),
    ("consumes", 7, Part::Texts),
    ("parameters", 8, Part::Each(item)),
    (
        "responses",
        9,
        Part::With(|responses, out| {
            named(responses, 1, out, |response, out| out.nested(1, |out| message(response, RESPONSE, 5, out)));
        }),
    ),
    ("schemes", 10, Part::Texts),
];
const BODY: Fields = &[
    ("description", 1, Part::Text),
    ("name", 2, Part::Text),
    ("in", 3, Part::Text),
    ("required", 4, Part::Flag),
    ("schema", 5, Part::Message(SCHEMA, 31)),
];
const QUERY: Fields = &[
    ("required", 1, Part::Flag),
    ("in", 2, Part::Text),
    ("description", 3, Part::Text),
    ("name", 4, Part::Text),
    ("type", 6, Part::Text),
    ("uniqueItems", 20, Part::Flag),
];
const PATH: Fields = &[
    ("required", 1, Part::Flag),
    ("in", 2, Part::Text),
    ("description", 3, Part::Text),
    ("name", 4, Part::Text),
    ("type", 5, Part::Text),
    ("uniqueItems", 19, Part::Flag),
];
const RESPONSE: Fields = &[
    ("description", 1, Part::Text),
    ("schema", 2, Part::With(|schema, out| out.nested(1, |out| message(schema, SCHEMA, 31, out)))),
];
const SCHEMA: Fields = &[
    ("$ref", 1, Part::Text),
    ("format", 2, Part::Text),
    ("title", 3, Part::Text),
    ("description", 4, Part::Text),
    ("multipleOf", 6, Part::Number),
    ("maximum", 7, Part::Number),
    ("exclusiveMaximum", 8, Part::Flag),
    ("minimum", 9, Part::Number),
    ("exclusiveMinimum", 10, Part::Flag),
    ("maxLength", 11, Part::Integer),
    ("minLength", 12, Part::Integer),
    ("pattern", 13, Part::Text),
    ("maxItems", 14, Part::Integer),
    ("minItems", 15, Part::Integer),
    ("uniqueItems", 16, Part::Flag),
    ("maxProperties", 17, Part::Integer),
    ("minProperties", 18, Part::Integer),
    ("required", 19, Part::Texts),
    ("enum", 20, Part::Anys),
    ("additionalProperties", 21, Part::With(additional)),
    ("type", 22, Part::Type),
    ("items", 23, Part::With(|schema, out| out.nested(1, |out| message(schema, SCHEMA, 31, out)))),
    ("properties", 25, Part::With(schemas)),
    ("externalDocs", 29, Part::Message(EXTERNAL_DOCS, 3)),
    ("example", 30, Part::Any),
];
const EXTERNAL_DOCS: Fields = &[("description", 1, Part::Text), ("url", 2, Part::Text)];

/// Writes an object as a message; `extensions` is the number of the field for keys that begin with `x-`.
pub(super) fn message(value: &Value, fields: Fields, extensions: u32, out: &mut Writer) {
    let Value::Object(object) = value else { return };
    for &(key, number, part) in fields {
        let Some(value) = object.get(key) else { continue };
        match part {
            Part::Text => out.text(number, value.as_str().unwrap_or_default()),
            Part::Flag => out.flag(number, value == &Value::Bool(true)),
            Part::Texts => texts(number, value, out),
            Part::Type => out.nested(number, |out| out.text(1, value.as_str().unwrap_or_default())),
            Part::Number => out.number(number, value.as_f64().unwrap_or_default()),
            Part::Integer => out.integer(number, value.as_i64().unwrap_or_default()),
            Part::Any => out.nested(number, |out| any(value, out)),
            Part::Anys => {
                for value in value.as_array().into_iter().flatten() {
                    out.nested(number, |out| any(value, out));
                }
            }
            Part::Message(fields, extensions) => out.nested(number, |out| message(value, fields, extensions, out)),
            Part::With(write) => out.nested(number, |out| write(value, out)),
            Part::Each(write) => each(value, number, write, out),
        }
    }
    for (key, value) in object.iter().filter(|(key, _)| key.starts_with("x-")) {
        out.nested(extensions, |out| {
            out.text(1, key);
            out.nested(2, |out| any(value, out));
        });
    }
}

fn any(value: &Value, out: &mut Writer) {
    out.text(2, &value.to_string());
}

/// The schema of further properties, or whether there may be any.
fn additional(value: &Value, out: &mut Writer) {
    match value {
        Value::Bool(allowed) => out.flag(2, *allowed),
        schema => out.nested(1, |out| message(schema, SCHEMA, 31, out)),
    }
}

/// Writes a map as a list of named values.
pub(super) fn named(value: &Value, number: u32, out: &mut Writer, write: impl Fn(&Value, &mut Writer)) {
    let empty = Map::new();
    for (name, value) in value.as_object().unwrap_or(&empty) {
        out.nested(number, |out| {
            out.text(1, name);
            out.nested(2, |out| write(value, out));
        });
    }
}

fn paths(value: &Value, out: &mut Writer) {
    named(value, 2, out, |item, out| message(item, PATH_ITEM, 10, out));
}

fn schemas(value: &Value, out: &mut Writer) {
    named(value, 1, out, |schema, out| message(schema, SCHEMA, 31, out));
}

fn texts(number: u32, value: &Value, out: &mut Writer) {
    for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        out.text(number, text);
    }
}

/// Writes each item of a list as a message.
pub(super) fn each(list: &Value, number: u32, write: fn(&Value, &mut Writer), out: &mut Writer) {
    for item in list.as_array().into_iter().flatten() {
        out.nested(number, |out| write(item, out));
    }
}

/// An item of a list of parameters: one, or what refers to one.
fn item(value: &Value, out: &mut Writer) {
    match value["$ref"].as_str() {
        Some(reference) => out.nested(2, |out| out.text(1, reference)),
        None => out.nested(1, |out| parameter(value, out)),
    }
}

/// A parameter, which is either the body or not, and then of the query or the path.
fn parameter(value: &Value, out: &mut Writer) {
    match value["in"].as_str() {
        Some("body") => out.nested(1, |out| message(value, BODY, 6, out)),
        Some("path") => out.nested(2, |out| out.nested(4, |out| message(value, PATH, 22, out))),
        _ => out.nested(2, |out| out.nested(3, |out| message(value, QUERY, 23, out))),
    }
}

/// The wire format of protobuf, as far as it is needed here.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// An empty string is not on the wire, but in a list it counts: the lists here have none.
    pub(super) fn text(&mut self, number: u32, text: &str) {
        if !text.is_empty() {
            self.delimited(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, flag: bool) {
        if flag {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, number: u32, value: i64) {
        if value != 0 {
            self.varint(u64::from(number) << 3);
            self.varint(value as u64);
        }
    }

    fn number(&mut self, number: u32, value: f64) {
        if value != 0.0 {
            self.varint(u64::from(number) << 3 | 1);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// One of several that may be there is written even when it is zero: that it is there says which.
    pub(super) fn chosen_text(&mut self, number: u32, text: &str) {
        self.delimited(number, text.as_bytes());
    }

    /// As [`Writer::chosen_text`].
    pub(super) fn chosen_flag(&mut self, number: u32, flag: bool) {
        self.varint(u64::from(number) << 3);
        self.varint(u64::from(flag));
    }

    /// As [`Writer::chosen_text`].
    pub(super) fn chosen_number(&mut self, number: u32, value: f64) {
        self.varint(u64::from(number) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn nested(&mut self, number: u32, write: impl FnOnce(&mut Writer)) {
        self.varint(u64::from(number) << 3 | 2);
        // Most messages are short enough for a length of one byte: the others make room for theirs when it is known.
        let at = self.bytes.len();
        self.bytes.push(0);
        write(self);
        let length = self.bytes.len() - at - 1;
        match u8::try_from(length) {
            Ok(length @ ..0x80) => self.bytes[at] = length,
            _ => drop(self.bytes.splice(at..=at, bytes(|out| out.varint(length as u64)))),
        }
    }

    fn delimited(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}
