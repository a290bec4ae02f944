//! Definitions as upstream's messages show them: in its internal form, whose fields have no names of their own in JSON.

use machinery::Value;
use machinery::codec::json::html_safe;
use machinery::status::FieldError;
use serde_json::json;

use crate::checks::At;

/// An invalid value that is shown in this form.
pub fn invalid(at: &At<'_, '_>, shown: String, detail: impl Into<String>) -> FieldError {
    FieldError { shown: Some(html_safe(&shown)), ..FieldError::invalid(at.to_string(), Value::Null, detail) }
}

/// How a field is shown where it is not there.
#[derive(Clone, Copy)]
enum Shape {
    /// `""` or `false`.
    Text,
    Flag,
    Pointer,
    Schema,
    /// A schema or `true`.
    SchemaOrFlag,
    /// A schema or a list of them.
    Items,
    Schemas,
    SchemasByName,
    Dependencies,
    Docs,
    Rules,
}

/// The name in Go, the name in JSON, and the shape, in Go's order.
const SCHEMA: [(&str, &str, Shape); 44] = [
    ("ID", "id", Shape::Text),
    ("Schema", "$schema", Shape::Text),
    ("Ref", "$ref", Shape::Pointer),
    ("Description", "description", Shape::Text),
    ("Type", "type", Shape::Text),
    ("Nullable", "nullable", Shape::Flag),
    ("Format", "format", Shape::Text),
    ("Title", "title", Shape::Text),
    ("Default", "default", Shape::Pointer),
    ("Maximum", "maximum", Shape::Pointer),
    ("ExclusiveMaximum", "exclusiveMaximum", Shape::Flag),
    ("Minimum", "minimum", Shape::Pointer),
    ("ExclusiveMinimum", "exclusiveMinimum", Shape::Flag),
    ("MaxLength", "maxLength", Shape::Pointer),
    ("MinLength", "minLength", Shape::Pointer),
    ("Pattern", "pattern", Shape::Text),
    ("MaxItems", "maxItems", Shape::Pointer),
    ("MinItems", "minItems", Shape::Pointer),
    ("UniqueItems", "uniqueItems", Shape::Flag),
    ("MultipleOf", "multipleOf", Shape::Pointer),
    ("Enum", "enum", Shape::Pointer),
    ("MaxProperties", "maxProperties", Shape::Pointer),
    ("MinProperties", "minProperties", Shape::Pointer),
    ("Required", "required", Shape::Pointer),
    ("Items", "items", Shape::Items),
    ("AllOf", "allOf", Shape::Schemas),
    ("OneOf", "oneOf", Shape::Schemas),
    ("AnyOf", "anyOf", Shape::Schemas),
    ("Not", "not", Shape::Schema),
    ("Properties", "properties", Shape::SchemasByName),
    ("AdditionalProperties", "additionalProperties", Shape::SchemaOrFlag),
    ("PatternProperties", "patternProperties", Shape::SchemasByName),
    ("Dependencies", "dependencies", Shape::Dependencies),
    ("AdditionalItems", "additionalItems", Shape::SchemaOrFlag),
    ("Definitions", "definitions", Shape::SchemasByName),
    ("ExternalDocs", "externalDocs", Shape::Docs),
    ("Example", "example", Shape::Pointer),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Shape::Pointer),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Shape::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Shape::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Shape::Pointer),
    ("XListType", "x-kubernetes-list-type", Shape::Pointer),
    ("XMapType", "x-kubernetes-map-type", Shape::Pointer),
    ("XValidations", "x-kubernetes-validations", Shape::Rules),
];

/// A `JSONSchemaProps`.
pub fn schema(props: &Value) -> String {
    let fields = SCHEMA.map(|(shown, name, shape)| format!("{shown:?}:{}", field(&props[name], shape)));
    format!("{{{}}}", fields.join(","))
}

fn field(value: &Value, shape: Shape) -> String {
    match (shape, value) {
        (Shape::Text, Value::Null) => "\"\"".to_owned(),
        (Shape::Flag, Value::Null) => "false".to_owned(),
        (_, Value::Null) => "null".to_owned(),
        (Shape::Text | Shape::Flag | Shape::Pointer, value) => value.to_string(),
        (Shape::Schema, value) => schema(value),
        (Shape::Items, Value::Array(all)) => format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", list(all, schema)),
        (Shape::Items, one) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(one)),
        (Shape::SchemaOrFlag, Value::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
        (Shape::SchemaOrFlag, one) => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(one)),
        (Shape::Schemas, value) => list(value.as_array().map_or(&[][..], Vec::as_slice), schema),
        (Shape::SchemasByName, value) => by_name(value, schema),
        (Shape::Dependencies, value) => by_name(value, |one| match one {
            Value::Array(_) => format!("{{\"Schema\":null,\"Property\":{one}}}"),
            one => format!("{{\"Schema\":{},\"Property\":null}}", schema(one)),
        }),
        (Shape::Docs, docs) => {
            format!("{{\"Description\":{},\"URL\":{}}}", text(docs, "description"), text(docs, "url"))
        }
        (Shape::Rules, value) => list(value.as_array().map_or(&[][..], Vec::as_slice), rule),
    }
}

fn rule(rule: &Value) -> String {
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text(rule, "rule"),
        text(rule, "message"),
        text(rule, "messageExpression"),
        rule["reason"],
        text(rule, "fieldPath"),
        rule["optionalOldSelf"],
    )
}

fn text(of: &Value, name: &str) -> String {
    json!(of[name].as_str().unwrap_or_default()).to_string()
}

fn list(items: &[Value], shown: impl Fn(&Value) -> String) -> String {
    format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
}

fn by_name(entries: &Value, shown: impl Fn(&Value) -> String) -> String {
    let mut entries: Vec<(&String, &Value)> = entries.as_object().into_iter().flatten().collect();
    entries.sort_by_key(|(name, _)| *name);
    let entries = entries.into_iter().map(|(name, value)| format!("{}:{}", json!(name), shown(value)));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

/// The versions of a definition. What all of them have alike stands elsewhere: `common` says whether they do.
pub fn versions(list_of: &Value, common: impl Fn(&str) -> bool) -> String {
    if list_of.is_null() {
        return "null".to_owned();
    }
    list(list_of.as_array().map_or(&[][..], Vec::as_slice), |version| {
        let own = |name: &str| if common(name) { &Value::Null } else { &version[name] };
        let schema = match own("schema") {
            Value::Null => "null".to_owned(),
            of => format!("{{\"OpenAPIV3Schema\":{}}}", field(&of["openAPIV3Schema"], Shape::Schema)),
        };
        let columns = match own("additionalPrinterColumns") {
            Value::Array(columns) => list(columns, column),
            _ => "null".to_owned(),
        };
        let selectable = match own("selectableFields") {
            Value::Array(fields) => list(fields, |field| format!("{{\"JSONPath\":{}}}", text(field, "jsonPath"))),
            _ => "null".to_owned(),
        };
        let flag = |name: &str| version[name].as_bool().unwrap_or_default();
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\"Subresources\":{},\"AdditionalPrinterColumns\":{columns},\"SelectableFields\":{selectable}}}",
            text(version, "name"),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version["deprecationWarning"],
            subresources(own("subresources")),
        )
    })
}

fn subresources(of: &Value) -> String {
    if of.is_null() {
        return "null".to_owned();
    }
    let status = if of["status"].is_null() { "null" } else { "{}" };
    let scale = &of["scale"];
    let scale = match scale {
        Value::Null => "null".to_owned(),
        scale => format!(
            "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
            text(scale, "specReplicasPath"),
            text(scale, "statusReplicasPath"),
            scale["labelSelectorPath"],
        ),
    };
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn column(column: &Value) -> String {
    format!(
        "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{},\"JSONPath\":{}}}",
        text(column, "name"),
        text(column, "type"),
        text(column, "format"),
        text(column, "description"),
        column["priority"].as_i64().unwrap_or_default(),
        text(column, "jsonPath"),
    )
}
