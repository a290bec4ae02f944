//! Whether a schema is structural: it says at every place what is there, and only narrows it elsewhere.

use machinery::Value;
use serde_json::json;

use crate::checks::{At, Errors};

/// What is so far from a structural schema that its structure is not looked at.
pub fn unreadable(schema: &Value) -> Option<String> {
    let unsupported = |field: &str| Some(format!("OpenAPIV3Schema '{field}' is not supported"));
    for (field, shown) in [("id", "id"), ("$schema", "schema"), ("$ref", "$ref")] {
        if schema[field].as_str().is_some_and(|text| !text.is_empty()) {
            return unsupported(shown);
        }
    }
    for field in ["patternProperties", "dependencies", "definitions"] {
        if schema[field].as_object().is_some_and(|entries| !entries.is_empty()) {
            return unsupported(field);
        }
    }
    if !schema["additionalItems"].is_null() {
        return unsupported("additionalItems");
    }
    let list = |field: &str| schema[field].as_array().into_iter().flatten();
    let narrowed = list("allOf").chain(list("anyOf")).chain(list("oneOf")).chain([&schema["not"]]);
    if let Some(why) = narrowed.filter(|nested| nested.is_object()).find_map(unreadable) {
        return Some(why);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema["items"].as_array().is_some_and(|items| !items.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let properties = schema["properties"].as_object().into_iter().flat_map(|properties| properties.values());
    let below = properties.chain([&schema["items"], &schema["additionalProperties"]]);
    below.filter(|below| below.is_object()).find_map(unreadable)
}

/// Everything that keeps a schema of whole objects from being structural, in the order of its words: upstream finds it in the order of Go's
/// maps, which is none.
pub fn validate(schema: &At<'_, '_>, errors: &mut Errors) {
    let mut found = Errors::new();
    structural(schema, Level::Root, &mut found);
    completeness(schema, schema, &mut found);
    let mut found = found.into_vec();
    found.sort_by_cached_key(ToString::to_string);
    errors.extend(found);
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
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
        type_meta(&properties, errors);
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
pub fn errors_required(at: &At<'_, '_>, detail: &str, errors: &mut Errors) -> bool {
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

/// Whether a schema says which type a value has and nothing else.
fn says_only_type(schema: &At<'_, '_>, kind: &str) -> bool {
    let empty = |at: &At<'_, '_>| at.is_empty() && !matches!(at.value(), Value::Bool(true) | Value::Number(_));
    schema.text_at("type") == kind && schema.entries().all(|(field, at)| field == "type" || empty(&at))
}

/// `anyOf` and its like narrow values down; they say nothing about types.
fn combinations(schema: &At<'_, '_>, errors: &mut Errors) {
    let is_pattern = |list: &At<'_, '_>| {
        list.len() == 2 && says_only_type(&list.index(0), "integer") && says_only_type(&list.index(1), "string")
    };
    pattern(schema, errors);
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

fn pattern(schema: &At<'_, '_>, errors: &mut Errors) {
    let pattern = schema.at("pattern");
    if let Err(why) = cel::regexp::compile(pattern.text()) {
        errors.invalid(&pattern, format!("must be a valid regular expression, but isn't: {why}"));
    }
}

/// What `validation` narrows down has to be said by `schema` in the first place.
fn completeness(validation: &At<'_, '_>, schema: &At<'_, '_>, errors: &mut Errors) {
    for list in ["allOf", "anyOf", "oneOf"] {
        for nested in validation.at(list).items() {
            nested_completeness(&nested, schema, errors);
        }
    }
    let not = validation.at("not");
    if not.is_set() {
        nested_completeness(&not, schema, errors);
    }
}

fn nested_completeness(validation: &At<'_, '_>, schema: &At<'_, '_>, errors: &mut Errors) {
    if !schema.is_set() {
        return errors.required(schema, format!("because it is defined in {validation}"));
    }
    completeness(validation, schema, errors);
    let items = validation.at("items");
    if items.is_set() {
        nested_completeness(&items, &schema.at("items"), errors);
    }
    let known = schema.at("properties");
    for (name, property) in validation.at("properties").entries() {
        nested_completeness(&property, &known.key(name), errors);
    }
}

fn narrowing(schema: &At<'_, '_>, skip_any: bool, errors: &mut Errors) {
    pattern(schema, errors);
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
    for field in ["type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if !schema.at(field).is_empty() {
            errors.forbidden(&schema.at(field), "must be empty to be structural");
        }
    }
    for field in ["default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        errors.forbidden_if_set(&schema.at(field), "must be undefined to be structural");
    }
    let additional = schema.at("additionalProperties");
    if additional.is_set() && *additional.value() != json!(false) {
        errors.forbidden(&additional, "must be undefined to be structural");
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

/// What every object has is of the type that every object has.
fn type_meta(properties: &At<'_, '_>, errors: &mut Errors) {
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
