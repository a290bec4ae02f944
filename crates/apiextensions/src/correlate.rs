//! What an object was before, place by place: fields are found by name, and items of lists of type `map` by their keys.
//!
//! Users choose how long lists are, so the items of one are looked up and not searched.

use std::collections::HashMap;

use machinery::Value;

use crate::{ListType, Schema};

/// The items that a list had before, by what tells them apart.
pub(crate) struct OldItems<'a>(HashMap<String, &'a Value>);

impl<'a> OldItems<'a> {
    /// Of a list with this schema; none if its items cannot be told apart.
    pub(crate) fn of(schema: &Schema, old: Option<&'a Value>) -> Self {
        let mut items = HashMap::new();
        if schema.list_type == Some(ListType::Map) {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                if let Some(identity) = identity(schema, item) {
                    items.entry(identity).or_insert(item);
                }
            }
        }
        Self(items)
    }

    /// What an item replaces.
    pub(crate) fn get(&self, schema: &Schema, item: &Value) -> Option<&'a Value> {
        if self.0.is_empty() { None } else { self.0.get(&identity(schema, item)?).copied() }
    }
}

/// The keys of an item; nothing where one is missing or no scalar.
fn identity(schema: &Schema, item: &Value) -> Option<String> {
    let mut identity = String::new();
    for key in &schema.list_keys {
        let part = item.get(key).filter(|part| !matches!(part, Value::Null | Value::Array(_) | Value::Object(_)))?;
        identity.push_str(&part.to_string());
        identity.push('\n');
    }
    (!identity.is_empty()).then_some(identity)
}

/// Whether nothing has changed, as far as the schema can tell: fields that it does not know cannot be told from others.
pub(crate) fn same(schema: &Schema, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(before)) => {
            if new.len() != before.len() {
                return false;
            }
            match &schema.items {
                Some(items) if schema.list_type == Some(ListType::Map) && !schema.list_keys.is_empty() => {
                    let known = OldItems::of(schema, Some(old));
                    new.iter().all(|item| known.get(schema, item).is_some_and(|old| same(items, item, old)))
                }
                _ => new == before,
            }
        }
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, field)| {
                    old.get(name).zip(schema.field(name)).is_some_and(|(old, schema)| same(schema, field, old))
                })
        }
        (new, old) => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_are_found_by_their_keys() {
        let schema = Schema::read(&json!({"type": "object", "properties": {"l": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "string"}}}}}}));
        let schema = schema.expect("a schema");
        let list = schema.property("l").expect("a list");
        let old = json!([{"a": "x", "b": 1, "c": "first"}, {"a": "x", "b": 2}, {"a": "x"}, {"a": {}, "b": 1}]);
        let items = OldItems::of(list, Some(&old));
        assert_eq!(items.get(list, &json!({"a": "x", "b": 1})), Some(&old[0]));
        assert_eq!(items.get(list, &json!({"a": "x"})), None);
        assert_eq!(items.get(list, &json!({"a": {}, "b": 1})), None);
        let turned = json!({"l": [{"a": "x", "b": 2}, {"a": "x", "b": 1, "c": "first"}]});
        assert!(same(&schema, &turned, &json!({"l": [old[0], old[1]]})));
        assert!(!same(&schema, &json!({"unknown": 1}), &json!({"unknown": 1})));
    }

    #[test]
    fn long_lists_are_compared_in_linear_time() {
        let schema = Schema::read(&json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "integer"}}}}));
        let list = |keys: &mut dyn Iterator<Item = i32>| -> Value { keys.map(|k| json!({"k": k})).collect() };
        let (up, down) = (list(&mut (0..100_000)), list(&mut (0..100_000).rev()));
        assert!(same(&schema.expect("a schema"), &up, &down));
    }
}
