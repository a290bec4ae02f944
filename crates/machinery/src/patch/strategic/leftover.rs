//! What upstream has left of a strategic merge patch once it is merged: its messages show that, not what was sent.
//!
//! Merging uses a patch up: orders and the lists they are for, keys to retain and the word `replace` are taken out of it, and nulls and
//! directives go where there was nothing to merge them with.

use facts::Type;
use serde_json::Value;

use super::places::Places;
use super::{DELETE_FROM, ListRules, PATCH, RETAIN_KEYS, SET_ORDER, Shape};
use crate::value::Object;

/// What is left of a patch of this object, which it is known to fit.
pub fn leftover(object: &Value, mut patch: Value, of: &Type) -> Value {
    if let (Some(original), Value::Object(changes)) = (object.as_object(), &mut patch) {
        use_up(original, changes, Shape::Struct(of));
    }
    patch
}

fn use_up(original: &Object, patch: &mut Object, shape: Shape<'_>) {
    if let Some(directive) = patch.get(PATCH) {
        if directive == "replace" {
            patch.remove(PATCH);
        }
        return;
    }
    patch.remove(RETAIN_KEYS);
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for order in orders {
        patch.remove(&order);
        patch.remove(order[SET_ORDER.len()..].trim_start_matches('/'));
    }
    for (key, change) in patch.iter_mut() {
        match (original.get(key), change) {
            (None, change) if !key.starts_with(DELETE_FROM) => {
                drop_nulls(change);
                drop_directives(change);
            }
            (Some(Value::Object(original)), Value::Object(change)) => {
                if let Ok((schema, field)) = shape.lookup(key)
                    && !field.is_some_and(|field| field.patch_strategy.replace)
                {
                    use_up(original, change, Shape::of(schema));
                }
            }
            (Some(Value::Array(original)), Value::Array(changes)) => {
                let Ok(rules) = ListRules::of(shape, key) else { continue };
                if !rules.merge || rules.key.is_empty() {
                    continue;
                }
                let places = Places::of(original, rules.key);
                for change in changes {
                    let found = places.find(change).map(|at| &original[at]);
                    if let (Some(Value::Object(found)), Value::Object(change)) = (found, change)
                        && !change.contains_key(PATCH)
                    {
                        use_up(found, change, rules.items);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Nulls say nothing where there is nothing to take away.
fn drop_nulls(change: &mut Value) {
    match change {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// And directives neither; what they stand in goes with them, but for the value itself.
fn drop_directives(change: &mut Value) {
    match change {
        Value::Object(fields) if !fields.contains_key(PATCH) => {
            fields.retain(|_, field| field.get(PATCH).is_none());
            fields.values_mut().for_each(drop_directives);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_directives),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merging_uses_directives_up() {
        let of = facts::type_of("", "v1", "Pod").expect("pods").def();
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (patch, left) in [
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c"}], "zz": 1}}),
                json!({"spec": {"zz": 1}}),
            ),
            (
                json!({"spec": {"containers": [{"name": "c", "$retainKeys": ["name"]}]}}),
                json!({"spec": {"containers": [{"name": "c"}]}}),
            ),
            (
                json!({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}),
                json!({"metadata": {"labels": {"x": "y"}}}),
            ),
            (
                json!({"metadata": {"labels": {"$patch": "delete"}}}),
                json!({"metadata": {"labels": {"$patch": "delete"}}}),
            ),
            (json!({"status": {"phase": null, "zz": 1}, "zz": null}), json!({"status": {"zz": 1}, "zz": null})),
            (
                json!({"metadata": {"annotations": {"$patch": "delete", "a": null}}}),
                json!({"metadata": {"annotations": {"$patch": "delete"}}}),
            ),
        ] {
            assert_eq!(leftover(&pod, patch.clone(), of), left, "{patch}");
        }
    }
}
