//! What a version of a custom resource means for its objects: everything that is wrong with one, and what its client should be told of.
//!
//! Schema, scale, resources inside of it, lists and rules are asked in upstream's order, and each of them once: rules are what costs.

use std::borrow::Cow;

use machinery::Value;
use machinery::status::FieldError;

use crate::definition::Scale;
use crate::rules::Rules;
use crate::{Schema, as_go_writes};

/// What a schema means.
#[derive(Debug)]
pub struct Meaning {
    /// Which fields there are.
    pub schema: Schema,
    /// The expressions that hold for them.
    pub rules: Rules,
}

/// What there is to say about an object.
#[derive(Debug, Default, PartialEq)]
pub struct Judgement {
    pub errors: Vec<FieldError>,
    /// What was wrong before, and is not held against who changes something else.
    pub warnings: Vec<String>,
}

impl Meaning {
    /// Reads the `openAPIV3Schema` of a version. `unpruned` is what the definition says about fields that the schema does not know.
    pub fn of(props: &Value, unpruned: bool) -> Self {
        // A schema that is nested too deeply was never accepted.
        let mut schema = Schema::read(props).unwrap_or_default();
        schema.unpruned = unpruned;
        schema.prune_defaults();
        let rules = Rules::compile(&schema);
        Self { schema, rules }
    }

    /// Judges an object that is new, or replaces `old`.
    pub fn judge(&self, new: &Value, old: Option<&Value>, scale: Option<&Scale>) -> Judgement {
        let mut errors = self.schema.validate(new, old);
        if let Some(scale) = scale {
            scale.replicas(new, &scale.spec_replicas, &mut errors);
            scale.status(new, &mut errors);
        }
        errors.extend(self.schema.validate_embedded(new));
        self.finish(new, old, errors)
    }

    /// Judges an object of which only the status may have changed.
    pub fn judge_status(&self, new: &Value, old: &Value, scale: Option<&Scale>) -> Judgement {
        let mut errors = Vec::new();
        // A null where there was nothing is no change, and what is not changed is not judged.
        let changed = |status: &&Value| !status.is_null() || old.get("status").is_some_and(|old| !old.is_null());
        if let (Some(of), Some(status)) = (self.schema.property("status"), new.get("status").filter(changed)) {
            for mut error in of.validate(status, old.get("status")) {
                error.path = match error.path.as_str() {
                    "" | "<nil>" => "status".to_owned(),
                    path => format!("status.{path}"),
                };
                errors.push(error);
            }
        }
        if let Some(scale) = scale {
            scale.status(new, &mut errors);
        }
        self.finish(new, Some(old), errors)
    }

    fn finish(&self, new: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Judgement {
        if old.is_none_or(|old| self.schema.duplicates(old).is_empty()) {
            errors.extend(self.schema.duplicates(new));
        }
        let mut warnings = Vec::new();
        self.rules.validate(&self.schema, new, old, &mut errors, &mut warnings);
        for shown in errors.iter_mut().filter_map(|error| error.value.as_mut()) {
            if let Cow::Owned(written) = as_go_writes(shown) {
                *shown = written;
            }
        }
        Judgement { errors, warnings }
    }
}

impl Scale {
    fn status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        self.replicas(object, &self.status_replicas, errors);
        if self.selector.is_empty() {
            return;
        }
        if let Err(detail) = found(object, &self.selector, "string", Value::as_str) {
            errors.push(FieldError::invalid(format!(".{}", self.selector), "", detail));
        }
    }

    fn replicas(&self, object: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let (value, detail) = match found(object, path, "int64", Value::as_i64) {
            Err(detail) => (0, detail),
            Ok(Some(count)) if count < 0 => (count, "should be a non-negative integer".to_owned()),
            Ok(Some(count)) if count > i64::from(i32::MAX) => {
                (count, format!("should be less than or equal to {}", i32::MAX))
            }
            Ok(_) => return,
        };
        errors.push(FieldError::invalid(format!(".{path}"), value, detail));
    }
}

/// What is at a path of fields, or what is in the way of it.
fn found<'v, T>(
    object: &'v Value,
    path: &str,
    wanted: &str,
    read: impl FnOnce(&'v Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let wrong = |path: &str, found: &Value, wanted: &str| {
        let kind = if found.is_null() { "<nil>" } else { machinery::patch::go_type(found) };
        let shown = machinery::patch::go_print(found);
        format!(".{path} accessor error: {shown} is of the type {kind}, expected {wanted}")
    };
    let (mut value, mut end) = (object, 0);
    for step in path.split('.') {
        end += step.len() + usize::from(end > 0);
        value = match value {
            Value::Object(fields) => match fields.get(step) {
                Some(value) => value,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(wrong(&path[..end], other, "map[string]interface{}")),
        };
    }
    read(value).map(Some).ok_or_else(|| wrong(path, value, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn meaning() -> Meaning {
        Meaning::of(
            &json!({"type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "name": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != 'bad'", "message": "is bad"}]}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"list": {"type": "array", "items": {"type": "string"}}}},
            }}),
            false,
        )
    }

    fn told(judgement: &Judgement) -> Vec<String> {
        judgement.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_was_wrong_before_is_told_as_a_warning() {
        let (old, new) = (json!({"spec": {"name": "bad", "n": 1}}), json!({"spec": {"name": "bad", "n": 2}}));
        assert_eq!(told(&meaning().judge(&new, None, None)), ["spec.name: Invalid value: \"bad\": is bad"]);
        let judged = meaning().judge(&new, Some(&old), None);
        assert_eq!(told(&judged), Vec::<String>::new());
        assert_eq!(judged.warnings, ["spec.name: Invalid value: \"bad\": is bad"]);
    }

    #[test]
    fn a_scale_is_made_of_numbers() {
        let scale = Scale {
            spec_replicas: "spec.n".to_owned(),
            status_replicas: "status.n".to_owned(),
            selector: "status.s".to_owned(),
        };
        let judged = |object: Value| told(&meaning().judge(&object, None, Some(&scale)));
        assert_eq!(judged(json!({"spec": {"n": 1}})), Vec::<String>::new());
        assert_eq!(
            judged(json!({"spec": {"n": -1}, "status": {"n": 2_147_483_648_i64, "s": 5}})),
            [
                ".spec.n: Invalid value: -1: should be a non-negative integer",
                ".status.n: Invalid value: 2147483648: should be less than or equal to 2147483647",
                ".status.s: Invalid value: \"\": .status.s accessor error: 5 is of the type int64, expected string",
            ]
        );
        assert_eq!(
            judged(json!({"spec": {"n": "x"}, "status": "text"}))[1..],
            [
                ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64",
                ".status.n: Invalid value: 0: .status.n accessor error: text is of the type string, expected map[string]interface{}",
                ".status.s: Invalid value: \"\": .status.s accessor error: text is of the type string, expected map[string]interface{}",
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
            ]
        );
    }

    #[test]
    fn a_float_is_shown_as_go_writes_it() {
        let judged = meaning().judge(&json!({"spec": {"name": 1.0}, "status": {"list": 2.0}}), None, None);
        let types: Vec<&str> = judged.errors.iter().filter_map(|error| error.value.as_ref()?.as_str()).collect();
        assert_eq!(types, ["number", "number"]);
        let limited =
            Meaning::of(&json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}), false);
        let judged = limited.judge(&json!({"n": 4.0}), None, None);
        assert_eq!(told(&judged), ["n: Invalid value: 4: n in body should be less than or equal to 3"]);
    }

    #[test]
    fn errors_of_a_status_stand_below_it() {
        let judged = meaning().judge_status(&json!({"status": {"list": [1]}}), &json!({}), None);
        assert_eq!(
            told(&judged)[..1],
            ["status.list[0]: Invalid value: \"integer\": list[0] in body must be of type string: \"integer\""]
        );
    }
}
