//! How an object of a custom resource is read, and what is wrong with whole objects inside of it.
//!
//! Metadata is read as that of built-in kinds is, at the root and wherever a schema embeds a resource; the rest is dropped where the schema does
//! not know it. All that a strict reader would object to is named, in upstream's order.

use std::borrow::Cow;
use std::sync::LazyLock;

use facts::{Field, Type};
use machinery::status::FieldError;
use machinery::{Value, names, objectmeta, schema};
use serde_json::Number;

use crate::Schema;

/// What every resource has; whatever else it has is not looked at.
static RESOURCE: LazyLock<Type> = LazyLock::new(|| {
    let metadata = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let metadata = metadata.map(|id| Field::new("metadata", facts::Schema::Ref(id)));
    let mut of = Type::new("", metadata.into_iter().collect());
    of.preserve_unknown = true;
    of
});

const RECORD: &str = "metadata.managedFields";

impl Schema {
    /// Brings an object into the form in which it is kept. Answers with the complaints of a strict reader (`unknown field "spec.foo"`), or with
    /// what cannot be read at all.
    pub fn coerce(&self, object: &mut Value) -> Result<Vec<String>, String> {
        as_go_reads(object);
        let mut problems = Self::coerce_metadata(object)?;
        let named = |paths: Vec<String>| paths.into_iter().map(|path| format!("unknown field \"{path}\""));
        problems.extend(named(self.prune(object)));
        self.drop_nulls(object);
        let mut unknown = Vec::new();
        embedded(self, object, "", false, &mut unknown).map_err(|error| error.to_string())?;
        unknown.sort();
        problems.extend(named(unknown));
        Ok(problems)
    }

    /// As [`Schema::coerce`], of the metadata alone.
    pub fn coerce_metadata(object: &mut Value) -> Result<Vec<String>, String> {
        // Upstream writes metadata, and reads what was written.
        if let Some(metadata) = object.get_mut("metadata")
            && let Cow::Owned(written) = as_go_writes(metadata)
        {
            *metadata = written;
        }
        let problems = schema::conform(object, &RESOURCE).map_err(of_metadata)?;
        // A record without an entry is none, where one of a built-in kind asks to forget all owners.
        if machinery::value::at(object, RECORD).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            machinery::value::remove(object, RECORD);
        }
        Ok(problems)
    }

    /// What is wrong with the resources inside of an object.
    pub fn validate_embedded(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        walk(self, object, "", &mut |value, path| validate_resource(value, path, &mut errors));
        errors
    }

    /// What is wrong with the metadata of resources in a value that stands at `path`, and is a resource itself if it says so. What reads it is done to it.
    pub(crate) fn judge_metadata(&self, value: &mut Value, path: &str, resource: bool) -> Result<(), Vec<FieldError>> {
        embedded(self, value, path, resource, &mut Vec::new()).map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        if resource && value.is_object() {
            validate_resource(value, path, &mut errors);
        }
        walk(self, value, path, &mut |value, path| validate_resource(value, path, &mut errors));
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// A field of what stands at a path.
fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Whole numbers that are too large for Go's are read as floats.
fn as_go_reads(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() && number.is_u64() => {
            *value = number.as_f64().map_or(Value::Null, Value::from);
        }
        Value::Array(items) => items.iter_mut().for_each(as_go_reads),
        Value::Object(fields) => fields.values_mut().for_each(as_go_reads),
        _ => {}
    }
}

/// A value as Go writes it: `1.0` is a float while an object is judged, and written as `1`, which the next reader takes for an integer.
pub fn as_go_writes(value: &Value) -> Cow<'_, Value> {
    fn has_whole_floats(value: &Value) -> bool {
        match value {
            Value::Number(number) => written(number).is_some(),
            Value::Array(items) => items.iter().any(has_whole_floats),
            Value::Object(fields) => fields.values().any(has_whole_floats),
            _ => false,
        }
    }
    fn write(value: &mut Value) {
        match value {
            Value::Number(number) => {
                if let Some(integer) = written(number) {
                    *value = integer.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(write),
            Value::Object(fields) => fields.values_mut().for_each(write),
            _ => {}
        }
    }
    // Nearly no object has one, so most are looked at and not copied.
    if !has_whole_floats(value) {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    write(&mut value);
    Cow::Owned(value)
}

/// The integer that a float is written as, if it is: by the fewest digits that tell it from other floats, so that large ones end in zeros.
fn written(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    // No text has a sign for zero once it was read as an integer.
    if float == 0.0 { Some(0) } else { float.to_string().parse().ok() }
}

/// Reads the metadata of resources inside of a value.
fn embedded(
    of: &Schema,
    value: &mut Value,
    path: &str,
    here: bool,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(_) => {
            if here {
                read_embedded(value, path, unknown)?;
            }
            if !of.embeds {
                return Ok(());
            }
            for (name, field) in value.as_object_mut().into_iter().flatten() {
                let Some(below) = of.field(name) else { continue };
                let place = place(of, path, name);
                embedded(below, field, &place, below.embedded_resource, unknown)?;
            }
        }
        Value::Array(items) => {
            let Some(below) = of.items.as_ref().filter(|_| of.embeds) else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                embedded(below, item, &format!("{path}[{index}]"), below.embedded_resource, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn read_embedded(value: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        if value.get(field).is_some_and(|value| !value.is_string()) {
            return Err(FieldError::invalid(below(path, field), value[field].clone(), "must be a string"));
        }
    }
    let before = value.get("metadata").cloned();
    let found = schema::conform(value, &RESOURCE)
        .map_err(|why| FieldError::invalid(below(path, "metadata"), before.unwrap_or_default(), of_metadata(why)))?;
    let inside = |problem: String| {
        let field = problem.trim_start_matches("unknown field ").trim_matches('"').to_owned();
        below(path, &field)
    };
    unknown.extend(found.into_iter().map(inside));
    Ok(())
}

fn place(of: &Schema, path: &str, name: &str) -> String {
    match of.property(name) {
        Some(_) => below(path, name),
        None => format!("{path}[{name}]"),
    }
}

/// Upstream reads metadata by itself, and not as a part of an object.
fn of_metadata(why: String) -> String {
    const FIELD: &str = "Go struct field ";
    let Some((before, (of, path))) =
        why.split_once(FIELD).and_then(|(before, field)| Some((before, field.split_once('.')?)))
    else {
        return why;
    };
    match path.strip_prefix("metadata.") {
        Some(below) => format!("{before}{FIELD}{of}.{below}"),
        None => why.replacen("Go struct field .metadata of type", "Go value of type", 1),
    }
}

/// Visits every resource inside of a value.
fn walk(of: &Schema, value: &Value, path: &str, visit: &mut impl FnMut(&Value, &str)) {
    if !of.embeds {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let Some(below) = of.field(name) else { continue };
                let place = place(of, path, name);
                if below.embedded_resource && field.is_object() {
                    visit(field, &place);
                }
                walk(below, field, &place, visit);
            }
        }
        Value::Array(items) => {
            let Some(below) = &of.items else { return };
            for (index, item) in items.iter().enumerate() {
                let place = format!("{path}[{index}]");
                if below.embedded_resource && item.is_object() {
                    visit(item, &place);
                }
                walk(below, item, &place, visit);
            }
        }
        _ => {}
    }
}

fn validate_resource(resource: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let at = |field: &str| below(path, field);
    for field in ["apiVersion", "kind"] {
        let invalid = |detail: String| FieldError::invalid(at(field), resource[field].clone(), detail);
        match resource.get(field) {
            None => errors.push(FieldError::required(at(field), "")),
            Some(Value::String(text)) if text.is_empty() => errors.push(invalid("must not be empty".to_owned())),
            Some(Value::String(text)) if field == "kind" => {
                let wrong = names::is_dns1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let message = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    errors.push(invalid(message));
                }
            }
            Some(Value::String(text)) => {
                if text.matches('/').count() > 1 {
                    errors.push(invalid(format!("unexpected GroupVersion string: {text}")));
                }
            }
            Some(_) => errors.push(invalid("must be a string".to_owned())),
        }
    }
    if let Some(metadata) = resource.get("metadata").filter(|metadata| metadata.is_object()) {
        let mut metadata = metadata.clone();
        // What has no name yet is not judged for it.
        if machinery::value::text(&metadata, "name").is_empty() {
            machinery::value::set(&mut metadata, "name", "fakename");
        }
        let namespaced = !machinery::value::text(&metadata, "namespace").is_empty();
        let found =
            objectmeta::validate_object_meta(&metadata, namespaced, names::name_is_path_segment, &at("metadata"));
        errors.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        let props = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                             "x-kubernetes-preserve-unknown-fields": true},
            }},
        }});
        Schema::read(&props).expect("a schema")
    }

    #[test]
    fn floats_are_read_as_floats_and_written_as_go_writes_them() {
        let props = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = Schema::read(&props).expect("a schema");
        let sent = r#"{"spec": [1.0, 1e3, -2.0, -0.0, 1e-1000, 1.5, 9223372036854774784.0, 9223372036854775807, 9223372036854775808]}"#;
        let mut object = serde_json::from_str(sent).expect("JSON");
        schema.coerce(&mut object).expect("an object");
        assert!(object["spec"][0].is_f64() && object["spec"][7].is_i64() && object["spec"][8].is_f64(), "{object}");
        let written = r#"{"spec":[1,1000,-2,0,0,1.5,9223372036854775000,9223372036854775807,9.223372036854776e+18]}"#;
        assert_eq!(as_go_writes(&object).to_string(), written);
        assert!(matches!(as_go_writes(&json!({"a": [1, 1.5, "x"]})), Cow::Borrowed(_)));
    }

    #[test]
    fn unknown_fields_are_named_in_upstreams_order() {
        let mut object = json!({"apiVersion": "g/v1", "kind": "K",
            "metadata": {"name": "x", "unknownMeta": 1},
            "spec": {"known": "a", "extra": 1, "template": {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "unknownSubMeta": 1}, "anything": 1}},
            "other": 1});
        let problems = schema().coerce(&mut object).expect("an object");
        assert_eq!(
            problems,
            [
                r#"unknown field "metadata.unknownMeta""#,
                r#"unknown field "other""#,
                r#"unknown field "spec.extra""#,
                r#"unknown field "spec.template.metadata.unknownSubMeta""#,
            ]
        );
        let expect = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": {
            "known": "a", "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "anything": 1}}});
        assert_eq!(object, expect);
    }

    #[test]
    fn metadata_of_a_wrong_type_is_refused() {
        for (metadata, why) in [
            (json!({"name": 1}), "number into Go struct field ObjectMeta.name of type string"),
            (
                json!({"ownerReferences": [{"name": 1}]}),
                "number into Go struct field OwnerReference.ownerReferences.name of type string",
            ),
            (json!(1), "number into Go value of type v1.ObjectMeta"),
        ] {
            let found = schema().coerce(&mut json!({"metadata": metadata})).expect_err("refused");
            assert_eq!(found, format!("json: cannot unmarshal {why}"));
        }
        let mut whole = json!({"metadata": {"generation": 1.0}});
        schema().coerce(&mut whole).expect("an object");
        assert!(whole["metadata"]["generation"].is_i64());
        let mut inside = json!({"spec": {"template": {"apiVersion": "v1", "kind": 1}}});
        let why = schema().coerce(&mut inside).expect_err("refused");
        assert_eq!(why, "spec.template.kind: Invalid value: 1: must be a string");
    }

    #[test]
    fn an_embedded_resource_is_one() {
        let told = |template: Value| -> Vec<String> {
            let errors = schema().validate_embedded(&json!({"spec": {"template": template}}));
            errors.iter().map(ToString::to_string).collect()
        };
        assert!(told(json!({"apiVersion": "v1", "kind": "Pod"})).is_empty());
        assert_eq!(
            told(json!({"apiVersion": "", "metadata": {"name": ".."}})),
            [
                "spec.template.apiVersion: Invalid value: \"\": must not be empty",
                "spec.template.kind: Required value",
                "spec.template.metadata.name: Invalid value: \"..\": may not be '..'",
            ]
        );
    }
}
