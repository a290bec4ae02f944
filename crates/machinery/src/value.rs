//! Small, total accessors on JSON trees, so that strategies read like sentences and never panic on odd input.

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// The value at a dotted path of object keys (`spec.template.metadata`), if every step is there.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(value, |value, key| value.get(key))
}

/// As [`at`], to change it.
pub fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    steps(path).try_fold(value, |value, key| value.get_mut(key))
}

/// The keys of a dotted path. Paths are a word or three: looking at each byte beats a search made for long texts, and
/// every write takes hundreds of such steps.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        let (key, after) = match path.bytes().position(|byte| byte == b'.') {
            Some(dot) => (&path[..dot], Some(&path[dot + 1..])),
            None => (path, None),
        };
        rest = after;
        Some(key)
    })
}

/// The text at a path; absent and non-text are the empty string.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a path.
pub fn int(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The truth at a path; absent is false.
pub fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The elements at a path; absent is empty.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The elements at a path, to change them; absent is empty.
pub fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    at_mut(value, path).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The object at `key` inside `value`, made if it is absent or null. `value` that is no object becomes one.
pub fn object_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Object {
    let slot = as_object_mut(value).entry(key).or_insert(Value::Null);
    as_object_mut(slot)
}

/// `value` as an object; anything else is replaced by an empty one.
pub fn as_object_mut(value: &mut Value) -> &mut Object {
    if !value.is_object() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut().expect("it was just made an object")
}

/// Sets the value at a dotted path, making the objects on the way.
pub fn set(value: &mut Value, path: &str, new: impl Into<Value>) {
    match path.split_once('.') {
        None => {
            as_object_mut(value).insert(path.to_owned(), new.into());
        }
        Some((head, rest)) => {
            let slot = as_object_mut(value).entry(head).or_insert(Value::Null);
            set(slot, rest, new);
        }
    }
}

/// Sets the value at a dotted path only where nothing (or null) is.
pub fn set_default(value: &mut Value, path: &str, new: impl Into<Value>) {
    if at(value, path).is_none_or(Value::is_null) {
        set(value, path, new);
    }
}

/// Takes the value at a dotted path out.
pub fn remove(value: &mut Value, path: &str) -> Option<Value> {
    match path.rsplit_once('.') {
        None => value.as_object_mut()?.remove(path),
        Some((parent, key)) => at_mut(value, parent)?.as_object_mut()?.remove(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_read_write_and_remove_without_panicking() {
        let mut value = json!({"spec": {"replicas": 3, "list": [1]}, "kind": "X"});
        assert_eq!(int(&value, "spec.replicas"), Some(3));
        assert_eq!(text(&value, "spec.replicas"), "");
        assert_eq!(list(&value, "spec.list").len(), 1);
        set(&mut value, "status.a.b", "c");
        set_default(&mut value, "status.a.b", "d");
        assert_eq!(text(&value, "status.a.b"), "c");
        assert_eq!(remove(&mut value, "status.a"), Some(json!({"b": "c"})));
        assert_eq!(remove(&mut value, "kind.nothing"), None);
        set(&mut value, "kind.sub", 1);
        assert_eq!(int(&value, "kind.sub"), Some(1));
    }
}
