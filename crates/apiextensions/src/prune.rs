//! What a schema does not know is dropped, and named for whoever wants to hear of it.

use machinery::Value;

use crate::{Additional, Schema};

const RESOURCE: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Drops unknown fields of an object, which is a resource at its root. Answers where they were, sorted: `spec.list[0].typo`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.unpruned {
            return Vec::new();
        }
        let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
        pruner.value(object, Some(self), true);
        pruner.unknown.sort();
        pruner.unknown
    }

    /// Drops unknown fields of a value, which is a resource by itself or none.
    pub(crate) fn prune_inner(&self, value: &mut Value, resource: bool) {
        Pruner { path: String::new(), unknown: Vec::new() }.value(value, Some(self), resource);
    }

    /// Drops from the defaults of a schema what the schema itself does not know.
    pub(crate) fn prune_defaults(&mut self) {
        if let Some(mut default) = self.default.take() {
            self.prune_inner(&mut default, self.embedded_resource);
            self.default = Some(default);
        }
        self.properties.iter_mut().for_each(|(_, property)| property.prune_defaults());
        if let Additional::Schema(schema) = &mut self.additional {
            schema.prune_defaults();
        }
        if let Some(items) = &mut self.items {
            items.prune_defaults();
        }
    }
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn value(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool) {
        if let Some(schema) = schema.filter(|schema| schema.preserve_unknown) {
            return self.kept(value, schema, root);
        }
        match value {
            Value::Object(fields) => fields.retain(|name, field| {
                if is_its_own(schema, root, name) {
                    return true;
                }
                match schema.filter(|schema| schema.has_place_for(name)) {
                    Some(schema) => {
                        self.field(name, |pruner| pruner.value(field, schema.field(name), false));
                        true
                    }
                    None => {
                        self.unknown.push(self.place(name));
                        false
                    }
                }
            }),
            Value::Array(items) => {
                let below = schema.and_then(|schema| schema.items.as_deref());
                self.items(items, |pruner, item| pruner.value(item, below, false));
            }
            _ => {}
        }
    }

    /// A value whose own unknown fields stay, and those of the items if it is a list.
    fn kept(&mut self, value: &mut Value, schema: &Schema, root: bool) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if !is_its_own(Some(schema), root, name) && schema.has_place_for(name) {
                        self.field(name, |pruner| pruner.value(field, schema.field(name), false));
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = schema.items.as_deref() else { return };
                self.items(items, |pruner, item| pruner.kept(item, below, false));
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        walk(self);
        self.path.truncate(length);
    }

    fn items(&mut self, items: &mut [Value], mut walk: impl FnMut(&mut Self, &mut Value)) {
        let length = self.path.len();
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            walk(self, item);
            self.path.truncate(length);
        }
    }

    fn place(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// Whether a field is one that every resource has, in a place where a resource is.
fn is_its_own(schema: Option<&Schema>, root: bool, name: &str) -> bool {
    (root || schema.is_some_and(|schema| schema.embedded_resource)) && RESOURCE.contains(&name)
}

impl Schema {
    /// Whether a field may be there. Where `additionalProperties` is only yes or no, upstream keeps the field and nothing of what is in it.
    fn has_place_for(&self, name: &str) -> bool {
        self.property(name).is_some() || !matches!(self.additional, Additional::Unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, mut object: Value, expect: Value, unknown: &[&str]) {
        let schema = Schema::read(&schema).expect("a schema");
        let found = schema.prune(&mut object);
        assert_eq!(object, expect);
        assert_eq!(found, unknown);
    }

    #[test]
    fn what_the_schema_does_not_know_goes_and_is_named() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"known": {"type": "object", "properties": {"c": {"type": "string"}}}}},
        }}}});
        check(
            schema,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "status": {}, "spec": {
                "list": [{"a": "1", "no": 1}], "map": {"k": {"b": "2", "no": 1}},
                "free": {"any": {"thing": 1}, "known": {"c": "3", "no": 1}}}}),
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "spec": {
                "list": [{"a": "1"}], "map": {"k": {"b": "2"}},
                "free": {"any": {"thing": 1}, "known": {"c": "3"}}}}),
            &["spec.free.known.no", "spec.list[0].no", "spec.map.k.no", "status"],
        );
    }

    #[test]
    fn an_embedded_resource_keeps_what_every_resource_has() {
        let schema = json!({"type": "object", "properties": {"object": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}});
        check(
            schema,
            json!({"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"no": 1}, "no": 1}}),
            json!({"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}}),
            &["object.no", "object.spec.no"],
        );
    }

    #[test]
    fn more_fields_of_any_kind_stay_but_not_what_is_in_them() {
        let schema = json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties": true}}});
        check(schema, json!({"map": {"a": 1, "b": {"deep": 1}}}), json!({"map": {"a": 1, "b": {}}}), &["map.b.deep"]);
    }
}
