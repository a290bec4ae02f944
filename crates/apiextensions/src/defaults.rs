//! What a value is when none is given.

use machinery::Value;

use crate::{Additional, Schema};

impl Schema {
    /// Fills in defaults, also where null stands and null is no value.
    pub fn default(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else { continue };
                    let missing = match fields.get(name) {
                        None => true,
                        Some(given) => given.is_null() && !property.nullable,
                    };
                    if missing {
                        fields.insert(name.clone(), Value::clone(default));
                    }
                }
                for (name, field) in fields.iter_mut() {
                    if let Some(property) = self.property(name) {
                        property.default(field);
                    } else if let Additional::Schema(schema) = &self.additional {
                        schema.default_in_place(field);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                items.iter_mut().for_each(|item| schema.default_in_place(item));
            }
            _ => {}
        }
    }

    /// As [`Schema::default`], for a value that is there and may be null.
    fn default_in_place(&self, value: &mut Value) {
        if value.is_null() && !self.nullable {
            *value = self.default.as_deref().cloned().unwrap_or(Value::Null);
        }
        self.default(value);
    }

    /// Drops fields that are null where null is no value and no default takes its place. Comes before [`Schema::default`].
    pub fn drop_nulls(&self, value: &mut Value) {
        drop_nulls(value, Some(self));
    }
}

fn drop_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let below = schema.and_then(|schema| schema.field(name));
            let meaningless =
                field.is_null() && below.is_some_and(|schema| !schema.nullable && schema.default.is_none());
            if !meaningless {
                drop_nulls(field, below);
            }
            !meaningless
        }),
        Value::Array(items) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(item, below));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, mut object: Value, expect: Value) {
        let schema = Schema::read(&schema).expect("a schema");
        schema.drop_nulls(&mut object);
        schema.default(&mut object);
        assert_eq!(object, expect);
    }

    #[test]
    fn defaults_fill_what_is_missing_also_within_defaults() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "replicas": {"type": "integer", "default": 1},
                "name": {"type": "string"},
            }},
            "list": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
        }});
        check(schema.clone(), json!({}), json!({"spec": {"replicas": 1}}));
        check(schema.clone(), json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 3}}));
        check(
            schema.clone(),
            json!({"list": [{}, {"port": 1}]}),
            json!({"spec": {"replicas": 1}, "list": [{"port": 80}, {"port": 1}]}),
        );
        check(
            schema,
            json!({"map": {"a": null, "b": "c"}}),
            json!({"spec": {"replicas": 1}, "map": {"a": "x", "b": "c"}}),
        );
    }

    #[test]
    fn null_is_a_value_only_where_the_schema_says_so() {
        let schema = json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "d"},
            "both": {"type": "string", "default": "d", "nullable": true},
        }});
        check(
            schema,
            json!({"plain": null, "nullable": null, "defaulted": null, "both": null, "unknown": null}),
            json!({"nullable": null, "defaulted": "d", "both": null, "unknown": null}),
        );
    }
}
