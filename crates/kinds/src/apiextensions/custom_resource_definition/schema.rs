//! The schemas of custom resources: structural, and with nothing that cannot be served.

use ::apiextensions::{ReadError, Schema};
use machinery::Value;
use serde_json::json;

use super::structural::errors_required;
use super::{internal, structural};
use crate::checks::{At, Errors};

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

/// Checks the `schema` of a version. `status` says that the status is a subresource, `unchanged` that it was like this before.
pub fn validate(at: &At<'_, '_>, status: bool, unchanged: bool, errors: &mut Errors) {
    let schema = at.at("openAPIV3Schema");
    if !schema.is_set() {
        return;
    }
    let before = errors.len();
    if status {
        root_with_status(&schema, errors);
    }
    if schema.at("nullable").flag() {
        errors.forbidden(&schema.at("nullable"), "nullable cannot be true at the root");
    }
    let unreadable = structural::unreadable(schema.value());
    // What is no schema has neither defaults nor rules that could be judged.
    let read = if unreadable.is_none() { with_good_defaults(&schema, errors) } else { None };
    let mut found = Errors::new();
    let context = Context { root: true, in_metadata: false, no_defaults: None };
    general(&schema, context, &mut found);
    let found = found.into_vec();
    let broken: Vec<String> = found.iter().map(|error| error.path.clone()).collect();
    errors.extend(found);
    if let Some(read) = read {
        errors.extend(::apiextensions::rules::inspect(&read, &schema.to_string(), unchanged, &broken));
    }
    if let Some(why) = unreadable.filter(|_| errors.len() == before) {
        errors.invalid_value(&schema, "", why);
    }
}

/// The schema, if it is structural and nothing is wrong with its defaults.
fn with_good_defaults(schema: &At<'_, '_>, errors: &mut Errors) -> Option<Schema> {
    let before = errors.len();
    structural::validate(schema, errors);
    if errors.len() > before {
        return None;
    }
    match Schema::read(schema.value()) {
        Ok(read) => {
            errors.extend(read.inspect_defaults(&schema.to_string()));
            (errors.len() == before).then_some(read)
        }
        Err(ReadError::TooDeep) => {
            errors.invalid_value(schema, "", "is nested too deeply");
            None
        }
    }
}

fn root_with_status(schema: &At<'_, '_>, errors: &mut Errors) {
    if !matches!(schema.text_at("type"), "" | "object") {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errors.invalid_text(&schema.at("type"), detail);
    }
    let says = |value: &Value| !(value.is_null() || *value == json!(false) || *value == json!(""));
    if schema.entries().any(|(field, at)| says(at.value()) && !AT_ROOT.contains(&field)) {
        let detail = format!(
            "only {ROOT_FIELDS} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(internal::invalid(schema, internal::schema(schema.value()), detail));
    }
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
            let mut below = inner;
            if context.in_metadata {
                below.no_defaults = Some("inside additionalProperties applying to object metadata");
            }
            general(&additional, below, errors);
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
    for list in ["allOf", "oneOf", "anyOf", "items"] {
        let nested = schema.at(list);
        for nested in nested.items().filter(|one| nested.value().is_array() && one.value().is_object()) {
            general(&nested, inner, errors);
        }
    }
    for map in ["definitions", "dependencies"] {
        for (_, nested) in schema.at(map).entries().filter(|(_, nested)| nested.value().is_object()) {
            general(&nested, inner, errors);
        }
    }
    let preserve = schema.at("x-kubernetes-preserve-unknown-fields");
    if *preserve.value() == json!(false) {
        errors.invalid(&preserve, "must be true or undefined");
    }
    map_type(schema, errors);
    list_type(schema, errors);
    rules(schema, errors);
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
    const KEYED: &str = "must be map if x-kubernetes-list-map-keys is non-empty";
    if !list.is_set() {
        if !keys.is_empty() {
            errors.required(&list, KEYED);
        }
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
    if !keys.is_empty() && list.text() != "map" {
        errors.invalid(&list, KEYED);
    }
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

/// What is around the expressions; the expressions themselves are compiled once the rest is in order.
fn rules(schema: &At<'_, '_>, errors: &mut Errors) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let list = schema.at("x-kubernetes-validations");
    if list.is_empty() {
        return;
    }
    let read = structural::unreadable(schema.value()).is_none().then(|| Schema::read(schema.value()).ok()).flatten();
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
        let leads = |schema: &Schema| ::apiextensions::rules::field_path(path.text(), schema, true).is_ok();
        if !path.text().is_empty() && read.as_ref().is_some_and(|read| !leads(read)) {
            errors.invalid(&path, "must be a valid path");
        }
    }
}

/// Whether a schema has a default anywhere.
pub fn has_defaults(schema: &At<'_, '_>) -> bool {
    let mut found = false;
    visit(schema, &mut |schema| found |= schema.has("default"));
    found
}

/// Visits every part of a schema, whatever it is a part for.
pub fn visit(schema: &At<'_, '_>, look: &mut impl FnMut(&At<'_, '_>)) {
    if !schema.value().is_object() {
        return;
    }
    look(schema);
    for single in ["items", "not", "additionalProperties", "additionalItems"] {
        visit(&schema.at(single), look);
    }
    for list in ["items", "allOf", "anyOf", "oneOf"] {
        let list = schema.at(list);
        list.items().filter(|_| list.value().is_array()).for_each(|nested| visit(&nested, look));
    }
    for map in ["properties", "patternProperties", "definitions", "dependencies"] {
        schema.at(map).entries().for_each(|(_, nested)| visit(&nested, look));
    }
}

/// The fields that selectors may name have to be scalars of the schema.
pub fn selectable_fields(list: &At<'_, '_>, schema: &At<'_, '_>, errors: &mut Errors) {
    if let Some(why) = structural::unreadable(schema.value()) {
        // Upstream goes on with no schema at all, in which nothing can be found.
        return errors.invalid_value(schema, "", why);
    }
    let Ok(read) = Schema::read(schema.value()) else { return };
    let mut seen = std::collections::HashSet::new();
    for field in list.items() {
        let path = field.at("jsonPath");
        if path.text().is_empty() {
            errors.required(&path, "");
            continue;
        }
        let (found, of) = match ::apiextensions::rules::field_path(path.text(), &read, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.starts_with("metadata.") || found == "metadata" {
            errors.invalid(&path, "must not point to fields in metadata");
        }
        let kind = of.filter(|of| !of.int_or_string).and_then(|of| of.types.only());
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            errors.invalid(&path, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.");
        }
        if !seen.insert(found) {
            errors.duplicate(&path, path.text());
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(machinery::status::FieldError::too_many(list.to_string(), seen.len(), MAX_SELECTABLE));
    }
}

/// How many fields selectors may name.
const MAX_SELECTABLE: usize = 8;
