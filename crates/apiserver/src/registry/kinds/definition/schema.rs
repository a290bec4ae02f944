//! The schemas of custom resources: structural, and with nothing that cannot be served.

use machinery::Value;
use serde_json::json;

use super::super::common::{At, Errors};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const ROOT_FIELDS: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks the `schema` of a version. `status` says that the status is a subresource.
pub fn validate(at: &At<'_, '_>, status: bool, errors: &mut Errors) {
    let schema = at.at("openAPIV3Schema");
    if !schema.is_set() {
        return;
    }
    if status {
        root_with_status(&schema, errors);
    }
    if schema.at("nullable").flag() {
        errors.forbidden(&schema.at("nullable"), "nullable cannot be true at the root");
    }
    structural(&schema, Level::Root, errors);
    general(&schema, Context { root: true, in_metadata: false, no_defaults: None }, errors);
}

fn root_with_status(schema: &At<'_, '_>, errors: &mut Errors) {
    if schema.text_at("type") != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errors.invalid_text(&schema.at("type"), detail);
    }
    if schema.entries().any(|(field, _)| !AT_ROOT.contains(&field)) {
        errors.invalid(
            schema,
            format!(
                "only {ROOT_FIELDS} fields are allowed at the root of the schema if the status subresource is enabled"
            ),
        );
    }
}

/// Every value has one type that can be told without knowing the value.
fn structural(schema: &At<'_, '_>, level: Level, errors: &mut Errors) {
    let kind = schema.at("type");
    let flag = |extension: &str| schema.at(extension).flag();
    let (embedded, preserve, int_or_string) = (
        flag("x-kubernetes-embedded-resource"),
        flag("x-kubernetes-preserve-unknown-fields"),
        flag("x-kubernetes-int-or-string"),
    );
    let items = schema.at("items");
    if kind.text() == "array" && !items.is_set() {
        errors.required(&items, "must be specified");
    }
    if items.value().is_object() {
        structural(&items, Level::Item, errors);
    }
    let properties = schema.at("properties");
    for (_, property) in properties.entries() {
        structural(&property, Level::Field, errors);
    }
    let additional = schema.at("additionalProperties");
    if additional.is_set() {
        if level == Level::Root {
            errors.forbidden(&additional, "must not be used at the root");
        }
        if additional.value().is_object() {
            structural(&additional, Level::Field, errors);
        }
    }
    if int_or_string && preserve {
        let at = schema.at("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&at, "must be false if x-kubernetes-int-or-string is true");
    }
    if int_or_string && embedded {
        errors.invalid(
            &schema.at("x-kubernetes-embedded-resource"),
            "must be false if x-kubernetes-int-or-string is true",
        );
    }
    combinations(schema, errors);
    if embedded && kind.text() != "object" {
        const DETAIL: &str = "must be object if x-kubernetes-embedded-resource is true";
        if errors_required(&kind, DETAIL, errors) {
            errors.invalid(&kind, DETAIL);
        }
    } else if kind.text().is_empty() && !int_or_string && !preserve {
        errors.required(
            &kind,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if embedded && additional.is_set() {
        errors.forbidden(&additional, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !matches!(kind.text(), "" | "object") {
        errors.invalid(&kind, "must be object at the root");
    }
    if level == Level::Root || embedded {
        for field in ["kind", "apiVersion"] {
            let property = properties.key(field);
            if property.is_set() && property.text_at("type") != "string" {
                errors.invalid_text(&property.at("type"), "must be string");
            }
        }
        let metadata = properties.key("metadata");
        if metadata.is_set() && metadata.text_at("type") != "object" {
            errors.invalid_text(&metadata.at("type"), "must be object");
        }
    }
    if level == Level::Root {
        root_metadata(&properties.key("metadata"), errors);
    }
    if embedded && !preserve && properties.is_empty() {
        errors.required(
            &properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

/// Missing with this detail, or there.
fn errors_required(at: &At<'_, '_>, detail: &str, errors: &mut Errors) -> bool {
    let there = !at.text().is_empty();
    if !there {
        errors.required(at, detail);
    }
    there
}

/// The metadata of an object is as it always is; only names can be narrowed down.
fn root_metadata(metadata: &At<'_, '_>, errors: &mut Errors) {
    let only_names = metadata.at("properties").entries().all(|(field, _)| matches!(field, "name" | "generateName"));
    let nothing_else = metadata.entries().all(|(field, _)| matches!(field, "type" | "properties"));
    if metadata.is_set() && !(only_names && nothing_else) {
        errors.forbidden(
            metadata,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        );
    }
}

/// `anyOf` and its like narrow values down; they say nothing about types.
fn combinations(schema: &At<'_, '_>, errors: &mut Errors) {
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let is_pattern =
        |list: &At<'_, '_>| schema.at("x-kubernetes-int-or-string").flag() && *list.value() == int_or_string;
    for list in ["anyOf", "allOf", "oneOf"] {
        let list_at = schema.at(list);
        if list == "anyOf" && is_pattern(&list_at) {
            continue;
        }
        for (index, nested) in list_at.items().enumerate() {
            let skip = list == "allOf" && index == 0 && is_pattern(&nested.at("anyOf"));
            narrowing(&nested, skip, errors);
        }
    }
    let not = schema.at("not");
    if not.is_set() {
        narrowing(&not, false, errors);
    }
}

fn narrowing(schema: &At<'_, '_>, skip_any: bool, errors: &mut Errors) {
    for list in ["anyOf", "allOf", "oneOf"] {
        if list == "anyOf" && skip_any {
            continue;
        }
        for nested in schema.at(list).items() {
            narrowing(&nested, false, errors);
        }
    }
    for single in ["not", "items"] {
        if schema.at(single).value().is_object() {
            narrowing(&schema.at(single), false, errors);
        }
    }
    let properties = schema.at("properties");
    for (_, property) in properties.entries() {
        narrowing(&property, false, errors);
    }
    for (field, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        errors.forbidden_if_set(&schema.at(field), detail);
    }
    for field in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if schema.at(field).flag() {
            errors.forbidden(&schema.at(field), "must be false to be structural");
        }
    }
    errors.forbidden_if_set(&properties.key("metadata"), "must not be specified in a nested context");
}

#[derive(Clone, Copy)]
struct Context {
    root: bool,
    in_metadata: bool,
    /// Why no defaults are allowed here, if they are not.
    no_defaults: Option<&'static str>,
}

/// What holds for every part of a schema, structural or not.
fn general(schema: &At<'_, '_>, context: Context, errors: &mut Errors) {
    unsupported(schema, context, errors);
    if schema.at("uniqueItems").flag() {
        errors.forbidden(
            &schema.at("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let inner = Context { root: false, ..context };
    let (properties, additional) = (schema.at("properties"), schema.at("additionalProperties"));
    if additional.is_set() {
        if !properties.is_empty() && *additional.value() != json!(true) {
            errors.forbidden(&additional, "additionalProperties and properties are mutual exclusive");
        }
        if additional.value().is_object() {
            general(&additional, inner, errors);
        }
    }
    let resource = context.root || schema.at("x-kubernetes-embedded-resource").flag();
    for (name, property) in properties.entries() {
        let mut below = inner;
        if resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            below.in_metadata = true;
            if context.root {
                below.no_defaults = Some(match name {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        general(&property, below, errors);
    }
    for single in ["not", "items"] {
        if schema.at(single).value().is_object() {
            general(&schema.at(single), inner, errors);
        }
    }
    for list in ["allOf", "oneOf", "anyOf"] {
        for nested in schema.at(list).items() {
            general(&nested, inner, errors);
        }
    }
    let preserve = schema.at("x-kubernetes-preserve-unknown-fields");
    if *preserve.value() == json!(false) {
        errors.invalid(&preserve, "must be true or undefined");
    }
    map_type(schema, errors);
    list_type(schema, errors);
    rules(&schema.at("x-kubernetes-validations"), errors);
}

fn unsupported(schema: &At<'_, '_>, context: Context, errors: &mut Errors) {
    let kind = schema.at("type");
    if !kind.text().is_empty() {
        errors.one_of(&kind, &TYPES);
    }
    if let Some(reason) = context.no_defaults.filter(|_| schema.has("default")) {
        errors.forbidden(&schema.at("default"), format!("must not be set {reason}"));
    }
    for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        // Of these two upstream asks only whether there is something in them.
        let nothing = matches!(field, "patternProperties" | "definitions") && schema.at(field).is_empty();
        if !nothing {
            errors.forbidden_if_set(&schema.at(field), &format!("{field} is not supported"));
        }
    }
    if kind.text() == "null" {
        errors.forbidden(&kind, "type cannot be set to null, use nullable as an alternative");
    }
    if schema.at("items").value().is_array() {
        errors.forbidden(&schema.at("items"), "items must be a schema object and not an array");
    }
    if context.in_metadata && schema.at("x-kubernetes-embedded-resource").flag() {
        errors.forbidden(&schema.at("x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
    }
}

fn map_type(schema: &At<'_, '_>, errors: &mut Errors) {
    let (map, kind) = (schema.at("x-kubernetes-map-type"), schema.at("type"));
    if !map.is_set() {
        return;
    }
    const DETAIL: &str = "must be object if x-kubernetes-map-type is specified";
    if kind.text() != "object" && errors_required(&kind, DETAIL, errors) {
        errors.invalid(&kind, DETAIL);
    }
    errors.one_of(&map, &["atomic", "granular"]);
}

fn list_type(schema: &At<'_, '_>, errors: &mut Errors) {
    let (list, kind, keys, items) = (
        schema.at("x-kubernetes-list-type"),
        schema.at("type"),
        schema.at("x-kubernetes-list-map-keys"),
        schema.at("items"),
    );
    if !keys.is_empty() && list.text() != "map" {
        const DETAIL: &str = "must be map if x-kubernetes-list-map-keys is non-empty";
        if errors_required(&list, DETAIL, errors) {
            errors.invalid(&list, DETAIL);
        }
    }
    if !list.is_set() {
        return;
    }
    const DETAIL: &str = "must be array if x-kubernetes-list-type is specified";
    if kind.text() != "array" {
        if errors_required(&kind, DETAIL, errors) {
            errors.invalid(&kind, DETAIL);
        }
    } else if list.text() == "set" {
        atomic_items(&items, errors);
    }
    errors.one_of(&list, &["atomic", "set", "map"]);
    if matches!(list.text(), "set" | "map") && items.at("nullable").flag() {
        errors.forbidden(
            &items.at("nullable"),
            format!("cannot be nullable when x-kubernetes-list-type is {}", list.text()),
        );
    }
    if list.text() == "map" {
        map_keys(&keys, &items, errors);
    }
}

fn atomic_items(items: &At<'_, '_>, errors: &mut Errors) {
    const DETAIL: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (list, map) = (items.at("x-kubernetes-list-type"), items.at("x-kubernetes-map-type"));
    match items.text_at("type") {
        "array" if list.is_set() && list.text() != "atomic" => errors.invalid(&list, DETAIL),
        "object" if map.text() != "atomic" => errors.invalid_value(&map, list.value().clone(), DETAIL),
        _ => {}
    }
}

fn map_keys(keys: &At<'_, '_>, items: &At<'_, '_>, errors: &mut Errors) {
    if keys.is_empty() {
        errors.required(keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.is_set() {
        return errors.required(items, "must have a schema if x-kubernetes-list-type is map");
    }
    if items.text_at("type") != "object" {
        return errors
            .invalid_text(&items.at("type"), "must be object if parent array's x-kubernetes-list-type is map");
    }
    let properties = items.at("properties");
    let required: Vec<&str> =
        items.at("required").value().as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (index, key) in keys.items().enumerate() {
        let property = properties.key(key.text());
        if !property.is_set() {
            errors.invalid(keys, "entries must all be names of item properties");
        } else if matches!(property.text_at("type"), "array" | "object") {
            errors.invalid_value(
                &property.at("type"),
                items.text_at("type"),
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            );
        }
        if keys.items().take(index).any(|known| known.value() == key.value()) {
            errors.invalid(keys, "must not contain duplicate entries");
        }
        if !property.is_set() {
            continue;
        }
        if !required.contains(&key.text()) && !property.has("default") {
            errors.required(
                &property.at("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
        if property.at("nullable").flag() {
            errors.forbidden(
                &property.at("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            );
        }
    }
}

/// What is around the expressions; the expressions themselves are compiled where they are used.
fn rules(list: &At<'_, '_>, errors: &mut Errors) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    for rule in list.items() {
        let (expression, message) = (rule.at("rule"), rule.at("message"));
        let (trimmed, said) = (expression.text().trim(), message.text().trim());
        if trimmed.is_empty() {
            errors.required(&expression, "rule is not specified");
        } else if !message.text().is_empty() && said.is_empty() {
            errors.invalid(&message, "must be non-empty if specified");
        } else if breaks(said) {
            errors.invalid(&message, "must not contain line breaks");
        } else if breaks(trimmed) && said.is_empty() {
            errors.required(&message, "message must be specified if rule contains line breaks");
        }
        let computed = rule.at("messageExpression");
        if !computed.text().is_empty() && computed.text().trim().is_empty() {
            errors.required(&computed, "messageExpression must be non-empty if specified");
        }
        errors.one_of_if_set(
            &rule.at("reason"),
            &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"],
        );
        let path = rule.at("fieldPath");
        if !path.text().is_empty() && path.text().trim().is_empty() {
            errors.invalid(&path, "must be non-empty if specified");
        }
        if breaks(path.text()) {
            errors.invalid(&path, "must not contain line breaks");
        }
    }
}
