//! Lists that are sets or maps have each item once.

use std::collections::HashMap;

use machinery::Value;
use machinery::status::FieldError;
use serde_json::json;

use crate::{ListType, Schema};

impl Schema {
    /// Items that are given twice in lists of type `set` and `map`, each told once, at its second place.
    pub fn duplicates(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        walk(self, object, "", &mut errors);
        errors
    }
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let Some(below) = schema.field(name) else { continue };
                let place = match schema.property(name) {
                    Some(_) if path.is_empty() => name.clone(),
                    Some(_) => format!("{path}.{name}"),
                    None => format!("{path}[{name}]"),
                };
                walk(below, field, &place, errors);
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                Some(ListType::Set) => {
                    let again = given_again(items.iter());
                    errors.extend(again.map(|at| FieldError::duplicate(format!("{path}[{at}]"), items[at].clone())));
                }
                Some(ListType::Map) => map(schema, items, path, errors),
                Some(ListType::Atomic) | None => {}
            }
            if let Some(below) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(below, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn map(schema: &Schema, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(at) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let detail = "must be an object for an array of list-type map";
        return errors.push(FieldError::invalid(format!("{path}[{at}]"), items[at].clone(), detail));
    }
    let key = |item: &Value| {
        let mut key = json!({});
        for name in &schema.list_keys {
            if let Some(part) = item.get(name) {
                key[name] = part.clone();
            }
        }
        key
    };
    let keys: Vec<Value> = items.iter().map(key).collect();
    let again = given_again(keys.iter());
    errors.extend(again.map(|at| FieldError::duplicate(format!("{path}[{at}]"), keys[at].clone())));
}

/// The second places of what is given more than once.
fn given_again<'a>(items: impl Iterator<Item = &'a Value>) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let second = items.enumerate().filter_map(|(at, item)| {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        (*times == 2).then_some(at)
    });
    second.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: Value, items: Value, expect: &[&str]) {
        let schema = Schema::read(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"l": list}}}}),
        );
        let errors = schema.expect("a schema").duplicates(&json!({"spec": {"l": items}}));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expect);
    }

    #[test]
    fn items_are_given_once() {
        let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
        check(set.clone(), json!(["a", "b"]), &[]);
        check(
            set,
            json!(["a", "b", "a", "a", "b"]),
            &["spec.l[2]: Duplicate value: \"a\"", "spec.l[4]: Duplicate value: \"b\""],
        );
        let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "n"],
                         "items": {"type": "object"}});
        check(
            map.clone(),
            json!([{"k": 1, "n": 1}, {"k": 1, "n": 2}, {"k": 1, "n": 1, "more": 1}]),
            &["spec.l[2]: Duplicate value: {\"k\":1,\"n\":1}"],
        );
        check(map.clone(), json!([{}, null]), &["spec.l[1]: Duplicate value: {}"]);
        check(
            map,
            json!([{"k": 1}, 7]),
            &["spec.l[1]: Invalid value: 7: must be an object for an array of list-type map"],
        );
        check(json!({"type": "array", "items": {"type": "string"}}), json!(["a", "a"]), &[]);
    }
}
