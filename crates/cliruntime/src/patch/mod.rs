//! What `apply` sends: a patch from what was applied last, what is to be and what is. Pure.

mod strategic;

use serde_json::{Map, Value};

pub use strategic::three_way as strategic;

/// A JSON merge patch by three versions: what is new or different is set, what was applied before and is gone is removed.
pub fn merge(original: &Value, modified: &Value, current: &Value) -> Value {
    let mut patch = keep(difference(current, modified), false);
    let deletions = keep(difference(original, modified), true);
    overlay(&mut patch, deletions);
    patch
}

/// A JSON merge patch from one tree to another.
pub fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(known) if known == value => {}
            Some(known @ Value::Object(_)) if value.is_object() => {
                patch.insert(key.clone(), difference(known, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Of a merge patch only the removals, or everything but them.
fn keep(patch: Value, removals: bool) -> Value {
    let Value::Object(fields) = patch else { return patch };
    let kept = fields.into_iter().filter_map(|(key, value)| match value {
        Value::Null => removals.then_some((key, Value::Null)),
        Value::Object(_) => {
            let inner = keep(value, removals);
            let empty = inner.as_object().is_some_and(Map::is_empty);
            (!empty).then_some((key, inner))
        }
        other => (!removals).then_some((key, other)),
    });
    Value::Object(kept.collect())
}

fn overlay(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(known) if known.is_object() && value.is_object() => overlay(known, value),
                    Some(_) => {}
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (into, from) if into.is_null() => *into = from,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_applied_and_is_gone_is_removed_and_what_others_set_stays() {
        let original = json!({"spec": {"a": 1, "b": 2, "deep": {"x": 1}}});
        let modified = json!({"spec": {"a": 3, "deep": {}}});
        let current = json!({"spec": {"a": 1, "b": 2, "other": 9, "deep": {"x": 1, "y": 2}}});
        assert_eq!(merge(&original, &modified, &current), json!({"spec": {"a": 3, "b": null, "deep": {"x": null}}}));
        assert_eq!(merge(&modified, &modified, &modified), json!({}));
    }
}
