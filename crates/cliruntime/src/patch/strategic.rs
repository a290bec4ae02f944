//! Strategic merge patches between versions of a built-in kind: lists are compared by the keys that the table of facts names.

use facts::{Field, Schema, Type};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Which half of a difference is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    /// What is new or different.
    Changes,
    /// What is gone.
    Deletions,
}

/// A patch by three versions of an object of this type.
pub fn three_way(original: &Value, modified: &Value, current: &Value, of: &Type) -> Value {
    let empty = Object::new();
    let object = |value: &Value| value.as_object().cloned().unwrap_or_else(|| empty.clone());
    let (original, modified, current) = (object(original), object(modified), object(current));
    let mut patch = differ(&original, &modified, Some(of), Half::Deletions);
    combine(&mut patch, differ(&current, &modified, Some(of), Half::Changes), Some(of));
    Value::Object(patch)
}

fn differ(from: &Object, to: &Object, of: Option<&Type>, half: Half) -> Object {
    let mut patch = Object::new();
    for (key, new) in to {
        let field = of.and_then(|of| of.field(key));
        let Some(old) = from.get(key) else {
            if half == Half::Changes {
                patch.insert(key.clone(), new.clone());
            }
            continue;
        };
        match (old, new) {
            (Value::Object(old), Value::Object(new)) if !field.is_some_and(|field| field.patch_strategy.replace) => {
                let inner = differ_object(old, new, field, half);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            (Value::Array(old), Value::Array(new)) if field.is_some_and(|field| field.patch_strategy.merge) => {
                let field = field.expect("it was just looked at");
                differ_list(&mut patch, key, old, new, field, half);
            }
            (old, new) if half == Half::Changes && old != new => {
                patch.insert(key.clone(), new.clone());
            }
            _ => {}
        }
    }
    if half == Half::Deletions {
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

fn differ_object(old: &Object, new: &Object, field: Option<&Field>, half: Half) -> Object {
    let of = field.and_then(|field| field.schema.object());
    let mut inner = differ(old, new, of, half);
    // The server forgets what is not named: the members of a union take each other's place.
    if !inner.is_empty() && field.is_some_and(|field| field.patch_strategy.retain_keys) {
        inner.insert("$retainKeys".to_owned(), json!(new.keys().collect::<Vec<_>>()));
    }
    inner
}

/// What an item of a list is, and by which key it is known.
fn item_type(field: &Field) -> (Option<&Type>, Option<&str>) {
    let of = match &field.schema {
        Schema::Array(list) => list.items.object(),
        _ => None,
    };
    (of, field.patch_merge_key.as_deref())
}

fn differ_list(patch: &mut Object, key: &str, old: &[Value], new: &[Value], field: &Field, half: Half) {
    let (of, merge_key) = item_type(field);
    let order = format!("$setElementOrder/{key}");
    let Some(merge_key) = merge_key else {
        let missing = |from: &[Value], within: &[Value]| -> Vec<Value> {
            from.iter().filter(|item| !within.contains(item)).cloned().collect()
        };
        let found = if half == Half::Changes { missing(new, old) } else { missing(old, new) };
        if !found.is_empty() {
            let name = if half == Half::Changes { key.to_owned() } else { format!("$deleteFromPrimitiveList/{key}") };
            patch.insert(name, Value::Array(found));
            patch.insert(order, Value::Array(new.to_vec()));
        }
        return;
    };
    let find = |list: &[Value], id: &Value| list.iter().find(|item| item.get(merge_key) == Some(id)).cloned();
    let mut items = Vec::new();
    for item in new {
        let (Some(id), Value::Object(fields)) = (item.get(merge_key), item) else { continue };
        match find(old, id) {
            Some(Value::Object(known)) => {
                let mut inner = differ(&known, fields, of, half);
                // Volumes and the like forget their other members.
                if !inner.is_empty() && field.patch_strategy.retain_keys {
                    inner.insert("$retainKeys".to_owned(), json!(fields.keys().collect::<Vec<_>>()));
                }
                if !inner.is_empty() {
                    inner.insert(merge_key.to_owned(), id.clone());
                    items.push(Value::Object(inner));
                }
            }
            _ if half == Half::Changes => items.push(item.clone()),
            _ => {}
        }
    }
    if half == Half::Deletions {
        for id in old.iter().filter_map(|item| item.get(merge_key)).filter(|id| find(new, id).is_none()) {
            items.push(json!({"$patch": "delete", merge_key: id}));
        }
    }
    let ids = |list: &[Value]| -> Vec<Value> {
        list.iter().filter_map(|item| item.get(merge_key)).map(|id| json!({merge_key: id})).collect()
    };
    // Items that others added are not looked at: only the order of those that both have counts.
    let common: Vec<Value> = ids(old).into_iter().filter(|id| ids(new).contains(id)).collect();
    let moved =
        half == Half::Changes && common != ids(new).into_iter().filter(|id| common.contains(id)).collect::<Vec<_>>();
    if !items.is_empty() || moved {
        patch.insert(order, Value::Array(ids(new)));
    }
    if !items.is_empty() {
        patch.insert(key.to_owned(), Value::Array(items));
    }
}

/// Puts the changes into a patch of deletions.
fn combine(patch: &mut Object, changes: Object, of: Option<&Type>) {
    for (key, change) in changes {
        let field = of.and_then(|of| of.field(&key));
        match (patch.get_mut(&key), change) {
            (Some(Value::Object(known)), Value::Object(change)) => {
                combine(known, change, field.and_then(|field| field.schema.object()));
            }
            (Some(Value::Array(known)), Value::Array(change)) if !key.starts_with('$') => {
                combine_lists(known, change, field);
            }
            (_, change) => {
                patch.insert(key, change);
            }
        }
    }
}

fn combine_lists(known: &mut Vec<Value>, changes: Vec<Value>, field: Option<&Field>) {
    let (of, merge_key) = field.map_or((None, None), item_type);
    for change in changes {
        let id = merge_key.and_then(|key| change.get(key)).cloned();
        let same = known.iter_mut().find(|item| id.is_some() && merge_key.and_then(|key| item.get(key)) == id.as_ref());
        match (same, change) {
            (Some(Value::Object(item)), Value::Object(change)) if !item.contains_key("$patch") => {
                combine(item, change, of);
            }
            (_, change) => known.push(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(original: Value, modified: Value, current: Value, expected: Value) {
        let of = facts::type_of("apps", "v1", "Deployment").expect("a type").def();
        let patch = three_way(&original, &modified, &current, of);
        assert_eq!(patch, expected);
        // The server makes of it what was wanted.
        let mut after = current.clone();
        machinery::patch::strategic::apply(&mut after, patch, of).expect("applied");
        let again = three_way(&modified, &modified, &after, of);
        assert_eq!(again, json!({}), "a second patch changes nothing: {after}");
    }

    fn deployment(containers: Value, strategy: Value) -> Value {
        json!({"spec": {"strategy": strategy, "template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn containers_are_compared_by_name() {
        let one = |image: &str| json!({"name": "a", "image": image});
        check(
            deployment(json!([one("x"), {"name": "gone", "image": "g"}]), json!({})),
            deployment(json!([one("y"), {"name": "new", "image": "z"}]), json!({})),
            deployment(
                json!([{"name": "a", "image": "x", "resources": {}}, {"name": "gone", "image": "g"}, {"name": "injected", "image": "i"}]),
                json!({}),
            ),
            json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "new"}],
                "containers": [
                    {"$patch": "delete", "name": "gone"}, {"name": "a", "image": "y"}, {"name": "new", "image": "z"},
                ],
            }}}}),
        );
    }

    #[test]
    fn members_of_a_union_take_each_others_place() {
        let containers = json!([{"name": "a", "image": "x"}]);
        check(
            deployment(containers.clone(), json!({"type": "RollingUpdate"})),
            deployment(containers.clone(), json!({"type": "Recreate"})),
            deployment(containers, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}})),
            json!({"spec": {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}}}),
        );
    }

    #[test]
    fn scalars_in_lists_are_taken_out_one_by_one() {
        let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        check(
            with(json!(["a", "b"])),
            with(json!(["b", "c"])),
            with(json!(["a", "b", "other"])),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c"],
            }}),
        );
    }
}
