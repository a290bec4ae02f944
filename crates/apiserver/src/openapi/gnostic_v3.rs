//! The protobuf form of an OpenAPI v3 document: gnostic's `openapi.v3.Document`. As [`super::gnostic`], by a table.

use serde_json::Value;

use super::form::Sections;
use super::gnostic::{Fields, Part, Writer, bytes, each, message, named};

/// As [`super::gnostic::SECTIONS`].
pub(super) const SECTIONS: Sections = Sections {
    frame: |document| bytes(|out| message(document, DOCUMENT, 9, out)),
    schemas: |schemas| bytes(|out| self::schemas(schemas, out)),
    paths: |paths| bytes(|out| self::paths(paths, out)),
    parameters: |list, of_path| bytes(|out| each(list, if of_path { 13 } else { 6 }, parameter, out)),
    // Messages of one number that come apart are put together by whoever reads them: the rest of the components is in the frame.
    schemas_at: &[5, 1],
    paths_at: &[4],
};

/// Where the extensions of a schema go.
const SCHEMA_EXTENSIONS: u32 = 36;

const DOCUMENT: Fields = &[
    ("openapi", 1, Part::Text),
    ("info", 2, Part::Message(&[("title", 1, Part::Text), ("version", 6, Part::Text)], 7)),
    ("paths", 4, Part::With(paths)),
    ("components", 5, Part::Message(COMPONENTS, 10)),
];
const COMPONENTS: Fields = &[
    ("schemas", 1, Part::With(schemas)),
    (
        "securitySchemes",
        7,
        Part::With(|schemes, out| {
            named(schemes, 1, out, |scheme, out| out.nested(1, |out| message(scheme, SECURITY_SCHEME, 9, out)));
        }),
    ),
];
const SECURITY_SCHEME: Fields =
    &[("type", 1, Part::Text), ("description", 2, Part::Text), ("name", 3, Part::Text), ("in", 4, Part::Text)];
const PATH_ITEM: Fields = &[
    ("description", 3, Part::Text),
    ("get", 4, Part::Message(OPERATION, 13)),
    ("put", 5, Part::Message(OPERATION, 13)),
    ("post", 6, Part::Message(OPERATION, 13)),
    ("delete", 7, Part::Message(OPERATION, 13)),
    ("options", 8, Part::Message(OPERATION, 13)),
    ("head", 9, Part::Message(OPERATION, 13)),
    ("patch", 10, Part::Message(OPERATION, 13)),
    ("parameters", 13, Part::Each(parameter)),
];
const OPERATION: Fields = &[
    ("tags", 1, Part::Texts),
    ("description", 3, Part::Text),
    ("operationId", 5, Part::Text),
    ("parameters", 6, Part::Each(parameter)),
    ("requestBody", 7, Part::With(|body, out| out.nested(1, |out| message(body, REQUEST_BODY, 4, out)))),
    (
        "responses",
        8,
        Part::With(|responses, out| {
            named(responses, 2, out, |response, out| out.nested(1, |out| message(response, RESPONSE, 5, out)));
        }),
    ),
];
const PARAMETER: Fields = &[
    ("name", 1, Part::Text),
    ("in", 2, Part::Text),
    ("description", 3, Part::Text),
    ("required", 4, Part::Flag),
    ("schema", 10, Part::With(schema)),
];
const REQUEST_BODY: Fields =
    &[("description", 1, Part::Text), ("content", 2, Part::With(contents)), ("required", 3, Part::Flag)];
const RESPONSE: Fields = &[("description", 1, Part::Text), ("content", 3, Part::With(contents))];
const SCHEMA: Fields = &[
    ("nullable", 1, Part::Flag),
    ("readOnly", 3, Part::Flag),
    ("writeOnly", 4, Part::Flag),
    ("externalDocs", 6, Part::Message(&[("description", 1, Part::Text), ("url", 2, Part::Text)], 3)),
    ("example", 7, Part::Any),
    ("deprecated", 8, Part::Flag),
    ("title", 9, Part::Text),
    ("multipleOf", 10, Part::Number),
    ("maximum", 11, Part::Number),
    ("exclusiveMaximum", 12, Part::Flag),
    ("minimum", 13, Part::Number),
    ("exclusiveMinimum", 14, Part::Flag),
    ("maxLength", 15, Part::Integer),
    ("minLength", 16, Part::Integer),
    ("pattern", 17, Part::Text),
    ("maxItems", 18, Part::Integer),
    ("minItems", 19, Part::Integer),
    ("uniqueItems", 20, Part::Flag),
    ("maxProperties", 21, Part::Integer),
    ("minProperties", 22, Part::Integer),
    ("required", 23, Part::Texts),
    ("enum", 24, Part::Anys),
    ("type", 25, Part::Text),
    ("allOf", 26, Part::Each(schema)),
    ("oneOf", 27, Part::Each(schema)),
    ("anyOf", 28, Part::Each(schema)),
    ("not", 29, Part::With(|not, out| message(not, SCHEMA, SCHEMA_EXTENSIONS, out))),
    ("items", 30, Part::With(|items, out| out.nested(1, |out| schema(items, out)))),
    ("properties", 31, Part::With(schemas)),
    ("additionalProperties", 32, Part::With(additional)),
    ("default", 33, Part::With(default)),
    ("description", 34, Part::Text),
    ("format", 35, Part::Text),
];

/// A schema, or a reference to one.
fn schema(value: &Value, out: &mut Writer) {
    match value["$ref"].as_str() {
        Some(reference) => out.nested(2, |out| out.text(1, reference)),
        None => out.nested(1, |out| message(value, SCHEMA, SCHEMA_EXTENSIONS, out)),
    }
}

fn paths(value: &Value, out: &mut Writer) {
    named(value, 1, out, |item, out| message(item, PATH_ITEM, 14, out));
}

fn schemas(value: &Value, out: &mut Writer) {
    named(value, 1, out, schema);
}

fn contents(value: &Value, out: &mut Writer) {
    named(value, 1, out, |media, out| message(media, &[("schema", 1, Part::With(schema))], 5, out));
}

fn parameter(value: &Value, out: &mut Writer) {
    out.nested(1, |out| message(value, PARAMETER, 14, out));
}

fn additional(value: &Value, out: &mut Writer) {
    match value {
        Value::Bool(allowed) => out.chosen_flag(2, *allowed),
        further => out.nested(1, |out| schema(further, out)),
    }
}

/// The form knows defaults of three kinds; an object is none of them and stays out, as upstream's does.
fn default(value: &Value, out: &mut Writer) {
    match value {
        Value::Number(number) => out.chosen_number(1, number.as_f64().unwrap_or_default()),
        Value::Bool(flag) => out.chosen_flag(2, *flag),
        Value::String(text) => out.chosen_text(3, text),
        _ => {}
    }
}
