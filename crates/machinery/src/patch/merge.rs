//! Merge patch (RFC 7386), with upstream's treatment of nulls inside of lists.

use serde_json::Value;

use super::{PatchError, json_type};

/// Refuses a patch that is no object, as a strict reader does. A lenient one lets a list take the place of the document, which then is
/// no object any more.
pub fn check(patch: &Value, strict: bool) -> Result<(), PatchError> {
    match patch {
        Value::Object(_) => Ok(()),
        Value::Array(_) if !strict => Ok(()),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other if strict => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(other)
        ))),
        _ => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
    }
}

/// Merges the patch into the document: objects key by key, everything else as a whole, null removes.
pub fn apply(doc: &mut Value, patch: Value) {
    match (doc, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    fields.remove(&key);
                } else {
                    match fields.get_mut(&key).filter(|field| !field.is_null()) {
                        Some(field) => apply(field, change),
                        None => {
                            fields.insert(key, without_nulls(change));
                        }
                    }
                }
            }
        }
        // An object that gives way to a list keeps the list as it was sent; nulls in it are values.
        (doc @ Value::Object(_), patch) => *doc = patch,
        (doc, patch) => *doc = without_nulls(patch),
    }
}

/// Without the fields that are null, at any depth; a null in a list stays.
fn without_nulls(mut value: Value) -> Value {
    fn prune(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, field| !field.is_null());
                fields.values_mut().for_each(prune);
            }
            Value::Array(items) => items.iter_mut().for_each(prune),
            _ => {}
        }
    }
    prune(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (doc, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": []}), json!({"a": [null, {"b": null}]}), json!({"a": [null, {}]})),
            (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        ] {
            let mut patched = doc.clone();
            apply(&mut patched, patch.clone());
            assert_eq!(patched, expected, "{doc} + {patch}");
        }
    }

    #[test]
    fn only_objects_are_patches() {
        let refused = |patch: Value, strict| check(&patch, strict).expect_err("refused").to_string();
        assert!(check(&json!({}), true).is_ok() && check(&json!([]), false).is_ok());
        assert_eq!(refused(json!(null), true), "Invalid JSON Patch");
        assert_eq!(refused(json!(5), false), "Invalid JSON Patch");
        assert_eq!(
            refused(json!([]), true),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..9i64).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_twice_changes_nothing_more(doc in tree(), patch in tree()) {
            let mut once = doc;
            apply(&mut once, patch.clone());
            let mut twice = once.clone();
            apply(&mut twice, patch);
            // Nulls in a list that took the place of an object are values only the first time.
            prop_assert_eq!(without_nulls(once), without_nulls(twice));
        }
    }
}
