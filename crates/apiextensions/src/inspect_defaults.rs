//! What is wrong with the defaults of a schema, before any object is there.
//!
//! A default must have no fields that would be dropped, be valid, and keep the rules. One of metadata is judged in a resource that has nothing else.

use machinery::Value;
use machinery::status::FieldError;
use serde_json::json;

use crate::Schema;
use crate::rules::{BUDGET, Rules};

impl Schema {
    /// What is wrong with the defaults of a schema of whole objects that stands at `path`.
    pub fn inspect_defaults(&self, path: &str) -> Vec<FieldError> {
        let mut inspection = Inspection { errors: Vec::new(), budget: BUDGET };
        inspection.schema(self, path, &Around { root: self, resource: true, in_metadata: false, steps: Vec::new() });
        inspection.errors
    }
}

/// The resource around a place, and the way to it.
struct Around<'s> {
    root: &'s Schema,
    /// Whether the place is the resource.
    resource: bool,
    in_metadata: bool,
    /// Names of fields; nothing for an item of a list.
    steps: Vec<Option<String>>,
}

impl<'s> Around<'s> {
    fn below(&self, schema: &'s Schema, step: Option<&str>) -> Self {
        if schema.embedded_resource {
            return Self { root: schema, resource: true, in_metadata: false, steps: Vec::new() };
        }
        let metadata = self.resource && matches!(step, Some("metadata" | "apiVersion" | "kind"));
        let steps = self.steps.iter().cloned().chain([step.map(str::to_owned)]).collect();
        Self { root: self.root, resource: false, in_metadata: self.in_metadata || metadata, steps }
    }

    /// A resource that has nothing but a value at this place.
    fn resource_with(&self, value: &Value) -> Value {
        let mut resource = value.clone();
        for step in self.steps.iter().rev() {
            resource = match step {
                Some(name) => json!({ name: resource }),
                None => json!([resource]),
            };
        }
        if let Some(fields) = resource.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| "validation/v1".into());
            fields.entry("kind").or_insert_with(|| "Validation".into());
        }
        resource
    }
}

struct Inspection {
    errors: Vec<FieldError>,
    budget: u64,
}

impl Inspection {
    fn schema(&mut self, schema: &Schema, path: &str, around: &Around<'_>) {
        if let Some(default) = schema.default.as_deref() {
            let found = self.default(schema, default, &format!("{path}.default"), around);
            self.errors.extend(found);
        }
        if let Some(items) = &schema.items {
            self.schema(items, &format!("{path}.items"), &around.below(items, None));
        }
        for (name, property) in &schema.properties {
            // What is left of the budget is for those that come first.
            if self.budget == 0 {
                return;
            }
            self.schema(property, &format!("{path}.properties[{name}]"), &around.below(property, Some(name)));
        }
    }

    fn default(&mut self, schema: &Schema, default: &Value, at: &str, around: &Around<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if around.in_metadata {
            let mut resource = around.resource_with(default);
            if let Err(wrong) = around.root.judge_metadata(&mut resource, "", true) {
                let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
                let told = if told.len() == 1 { told.concat() } else { format!("[{}]", told.join(", ")) };
                let detail = format!("must result in valid metadata: {told}");
                return vec![FieldError::invalid(at, default.clone(), detail)];
            }
        } else {
            let mut pruned = default.clone();
            schema.prune_inner(&mut pruned, around.resource);
            if pruned != *default {
                errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
            }
            if let Err(wrong) = schema.judge_metadata(&mut default.clone(), at, around.resource) {
                errors.extend(wrong);
                return errors;
            }
        }
        let wrong = schema.validate(default, None);
        if !wrong.is_empty() {
            errors.extend(wrong.into_iter().map(|error| placed(error, at, ".")));
            return errors;
        }
        let told = self.rules(schema, default, around.resource);
        errors.extend(told.into_iter().map(|error| placed(error, at, "")));
        errors
    }

    /// Asks the rules about a default as if it replaced itself, and as if it were new: rules may see that.
    fn rules(&mut self, schema: &Schema, default: &Value, resource: bool) -> Vec<FieldError> {
        let rules = Rules::of_part(schema, resource);
        let (mut again, mut fresh) = (self.budget, self.budget);
        let mut errors = rules.ask(schema, default, Some(default), &mut again);
        if errors.is_empty() {
            errors = rules.ask(schema, default, None, &mut fresh);
        }
        self.budget = again.min(fresh);
        errors
    }
}

/// An error below a default that stands at `at`. Upstream writes a dot before the index of an item where schemas judge, and none where rules do.
fn placed(mut error: FieldError, at: &str, before_index: &str) -> FieldError {
    error.path = match error.path.as_str() {
        "" | "<nil>" => at.to_owned(),
        below if below.starts_with('[') => format!("{at}{before_index}{below}"),
        below => format!("{at}.{below}"),
    };
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(props: Value) -> Vec<String> {
        let schema = Schema::read(&json!({"type": "object", "properties": props})).expect("a schema");
        schema.inspect_defaults("s").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_default_is_of_its_schema() {
        let told = told(json!({
            "good": {"type": "integer", "default": 1},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}},
            "more": {"type": "object", "default": {"odd": 1}, "properties": {"a": {"type": "string"}}},
        }));
        assert_eq!(
            told,
            [
                "s.properties[list].items.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
                "s.properties[more].default: Invalid value: {\"odd\":1}: must not have unknown fields",
            ]
        );
    }

    #[test]
    fn a_default_keeps_the_rules() {
        let rules = |rules: Value| json!({"type": "integer", "default": 3, "x-kubernetes-validations": rules});
        assert_eq!(told(json!({"a": rules(json!([{"rule": "self > 2"}]))})), Vec::<String>::new());
        assert_eq!(
            told(json!({"a": rules(json!([{"rule": "self > 5", "message": "more"}]))})),
            ["s.properties[a].default: Invalid value: 3: more"]
        );
        // It has to hold for an object that is new, too.
        let optional = json!([{"rule": "oldSelf.hasValue()", "message": "old", "optionalOldSelf": true}]);
        assert_eq!(told(json!({"a": rules(optional)})), ["s.properties[a].default: Invalid value: 3: old"]);
    }

    #[test]
    fn defaults_of_metadata_are_judged_in_a_resource() {
        let embedded = |name: &str| {
            let metadata = json!({"type": "object", "properties": {"name": {"type": "string", "default": name}}});
            json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": metadata}}})
        };
        assert_eq!(told(embedded("good")), Vec::<String>::new());
        assert_eq!(
            told(embedded("..")),
            [
                "s.properties[e].properties[metadata].properties[name].default: Invalid value: \"..\": must result in valid metadata: metadata.name: Invalid value: \"..\": may not be '..'"
            ]
        );
    }
}
