//! JSON patch (RFC 6902), with the leniencies and the messages of the library that upstream uses: indexes may count from
//! the end, `replace` may add a field, and a document with a missing field passes a `test` for null.

use std::borrow::Cow;

use serde_json::Value;

use super::tree::Tree;
use super::{MAX_COPIED, MAX_OPERATIONS, PatchError, depth, json_type};
use crate::codec::MAX_DEPTH;
use crate::value::Object;

/// Applies the operations of a patch, in their order.
pub fn apply(doc: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations = operations(patch)?;
    let mut so_far = SoFar { copied: 0, deepest: depth(doc) };
    let mut tree = Tree::from(std::mem::take(doc));
    for operation in operations {
        let done = match operation {
            Some(operation) => step(&mut tree, operation, &mut so_far),
            None => Err("Unexpected kind: unknown".to_owned()),
        };
        done.map_err(PatchError::Inapplicable)?;
    }
    *doc = tree.into_value();
    Ok(())
}

/// What a strict reader objects to: operations of a wrong type are errors, fields outside of RFC 6902 are listed.
pub fn check_strict(patch: &Value) -> Result<Vec<String>, PatchError> {
    let malformed = |what: &Value, into: &str| {
        let message = format!("error decoding patch: json: cannot unmarshal {} into Go {into}", json_type(what));
        Err(PatchError::Malformed(message))
    };
    let operations = match patch {
        Value::Null => return Ok(Vec::new()),
        Value::Array(operations) => operations,
        other => return malformed(other, "value of type []handlers.jsonPatchOp"),
    };
    let mut unknown = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        let fields = match operation {
            Value::Null => continue,
            Value::Object(fields) => fields,
            other => return malformed(other, "value of type handlers.jsonPatchOp"),
        };
        for (key, value) in fields {
            match key.as_str() {
                "op" | "path" | "from" if !(value.is_string() || value.is_null()) => {
                    return malformed(value, &format!("struct field jsonPatchOp.{key} of type string"));
                }
                "op" | "path" | "from" | "value" => {}
                _ => unknown.push(format!("json patch unknown field \"[{at}].{key}\"")),
            }
        }
    }
    Ok(unknown)
}

/// The operations; null is one of no kind.
fn operations(patch: &Value) -> Result<impl Iterator<Item = Option<&Object>>, PatchError> {
    let malformed = |what: &Value, into: &str| {
        PatchError::Malformed(format!("json: cannot unmarshal {} into Go value of type {into}", json_type(what)))
    };
    let operations = match patch {
        Value::Null => &[][..],
        Value::Array(operations) => operations,
        other => return Err(malformed(other, "jsonpatch.Patch")),
    };
    if let Some(wrong) = operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
        return Err(malformed(wrong, "jsonpatch.Operation"));
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    Ok(operations.iter().map(Value::as_object))
}

/// What the operations have come to.
struct SoFar {
    /// Bytes that were copied.
    copied: usize,
    /// The document nests no deeper than this. Operations can dig it deeper than any decoder would accept; a limit keeps every walk over it
    /// safe, and that it is known keeps it from being measured anew for every operation.
    deepest: usize,
}

impl SoFar {
    /// Whether a value may stand there.
    fn admit(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let depth = level(path) + depth(value);
        if depth > MAX_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        self.deepest = self.deepest.max(depth);
        Ok(())
    }

    /// Whether the document is still in order, now that something in it stands elsewhere.
    fn moved(&mut self, from: &str, path: &str, doc: &Tree) -> Result<(), String> {
        self.deepest = self.deepest.max((level(path) + self.deepest).saturating_sub(level(from)));
        if self.deepest > MAX_DEPTH {
            self.deepest = doc.depth();
        }
        if self.deepest > MAX_DEPTH { Err(TOO_DEEP.to_owned()) } else { Ok(()) }
    }
}

const TOO_DEEP: &str = "exceeded max depth";

/// How deep a path leads.
fn level(path: &str) -> usize {
    path.matches('/').count()
}

fn step(doc: &mut Tree, operation: &Object, so_far: &mut SoFar) -> Result<(), String> {
    match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
        "add" => {
            let path = pointer(operation, "path", "operation missing path field")
                .map_err(|_| "add operation failed to decode path: missing value")?;
            let (parent, key) = find(doc, path).ok_or_else(|| {
                format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            let value = value_of(operation);
            so_far
                .admit(path, &value)
                .and_then(|()| add(parent, &key, value.into()))
                .map_err(|error| format!("error in add for path: '{path}': {error}"))
        }
        "remove" => {
            let path = pointer(operation, "path", "operation missing path field")
                .map_err(|_| "remove operation failed to decode path: missing value")?;
            let (parent, key) = find(doc, path).ok_or_else(|| {
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            remove(parent, &key).map_err(|error| format!("error in remove for path: '{path}': {error}"))?;
            Ok(())
        }
        "replace" => replace(doc, operation, so_far),
        "move" => {
            let from = pointer(operation, "from", "operation, missing from field")
                .map_err(|error| format!("move operation failed to decode from: {error}"))?;
            let (parent, key) = find(doc, from).ok_or_else(|| {
                format!("move operation does not apply: doc is missing from path: {from}: missing value")
            })?;
            let value = remove(parent, &key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
            let path = pointer(operation, "path", "operation missing path field")
                .map_err(|error| format!("move operation failed to decode path: {error}"))?;
            let (parent, key) = find(doc, path).ok_or_else(|| {
                format!("move operation does not apply: doc is missing destination path: {path}: missing value")
            })?;
            add(parent, &key, value)
                .and_then(|()| so_far.moved(from, path, doc))
                .map_err(|error| format!("error in move for path: '{path}': {error}"))
        }
        "test" => test(doc, operation),
        "copy" => copy(doc, operation, so_far),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn replace(doc: &mut Tree, operation: &Object, so_far: &mut SoFar) -> Result<(), String> {
    let path = pointer(operation, "path", "operation missing path field")
        .map_err(|error| format!("replace operation failed to decode path: {error}"))?;
    if path.is_empty() {
        return match value_of(operation) {
            value @ (Value::Object(_) | Value::Array(_)) => {
                so_far.deepest = depth(&value);
                *doc = value.into();
                Ok(())
            }
            _ => Err("replace operation value must be object or array: %!w(<nil>)".to_owned()),
        };
    }
    let (parent, key) = find(doc, path)
        .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
    get(parent, &key)
        .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: missing value"))?;
    let value = value_of(operation);
    so_far.admit(path, &value)?;
    match parent {
        Tree::Object(fields) => {
            fields.insert(key.into_owned(), value.into());
        }
        Tree::List(items) => {
            let at = index(&key, items.len())?;
            *items.get_mut(at).expect("it is below the length") = value.into();
        }
        Tree::Whole(_) => return Err("invalid state detected".to_owned()),
    }
    Ok(())
}

fn test(doc: &mut Tree, operation: &Object) -> Result<(), String> {
    let path = pointer(operation, "path", "operation missing path field")
        .map_err(|error| format!("test operation failed to decode path: {error}"))?;
    let expected = operation.get("value").unwrap_or(&Value::Null);
    let same = if path.is_empty() {
        doc.is(expected)
    } else {
        let (parent, key) = find(doc, path)
            .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
        let found = get(parent, &key).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
        found.map_or(expected.is_null(), |found| found.is(expected))
    };
    if same { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
}

fn copy(doc: &mut Tree, operation: &Object, so_far: &mut SoFar) -> Result<(), String> {
    let from = pointer(operation, "from", "operation, missing from field")
        .map_err(|error| format!("copy operation failed to decode from: {error}"))?;
    let (parent, key) = find(doc, from)
        .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
    let value = get(parent, &key)
        .map_err(|error| format!("error in copy for from: '{from}': {error}"))?
        .map_or(Value::Null, |value| value.clone().into_value());
    let path = pointer(operation, "path", "operation missing path field")
        .map_err(|_| "copy operation failed to decode path: missing value")?;
    so_far.copied += value.to_string().len();
    let copied = so_far.copied;
    if copied > MAX_COPIED {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
        ));
    }
    let (parent, key) = find(doc, path).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    so_far
        .admit(path, &value)
        .and_then(|()| add(parent, &key, value.into()))
        .map_err(|error| format!("error while adding value during copy: {error}"))
}

fn pointer<'a>(operation: &'a Object, name: &str, missing: &str) -> Result<&'a str, String> {
    match operation.get(name) {
        Some(Value::String(path)) => Ok(path),
        None | Some(Value::Null) => Err(format!("{missing}: missing value")),
        Some(other) => Err(format!("json: cannot unmarshal {} into Go value of type string", json_type(other))),
    }
}

fn value_of(operation: &Object) -> Value {
    operation.get("value").cloned().unwrap_or(Value::Null)
}

/// The object or list that a pointer leads into, opened, and the last key of the pointer. What stands before the first slash does
/// not count.
fn find<'d, 'p>(doc: &'d mut Tree, path: &'p str) -> Option<(&'d mut Tree, Cow<'p, str>)> {
    let (parents, key) = path
        .split_once('/')?
        .1
        .rsplit_once('/')
        .map_or_else(|| (None, path.split_once('/').map_or("", |(_, key)| key)), |(parents, key)| (Some(parents), key));
    let mut at = doc.open();
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let part = unescape(part);
        let below = match at {
            Tree::Object(fields) => fields.get_mut(&*part)?,
            Tree::List(items) => {
                let at = index(&part, items.len()).ok()?;
                items.get_mut(at)?
            }
            Tree::Whole(_) => return None,
        };
        at = below.open();
    }
    (!matches!(at, Tree::Whole(_))).then(|| (at, unescape(key)))
}

pub(super) fn unescape(key: &str) -> Cow<'_, str> {
    if key.contains('~') { key.replace("~1", "/").replace("~0", "~").into() } else { key.into() }
}

/// A position below `end`; negative ones count from there.
fn index(key: &str, end: usize) -> Result<usize, String> {
    let at = number(key)?;
    let invalid = || format!("Unable to access invalid index: {at}: invalid index referenced");
    let resolved = if at < 0 { at + end as i64 } else { at };
    usize::try_from(resolved).ok().filter(|&resolved| resolved < end).ok_or_else(invalid)
}

fn number(key: &str) -> Result<i64, String> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.Atoi: parsing {key:?}: invalid syntax"));
    }
    key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: value out of range"))
}

/// What is there; nothing in an object is not an error.
fn get<'d>(parent: &'d Tree, key: &str) -> Result<Option<&'d Tree>, String> {
    match parent {
        Tree::Object(fields) => Ok(fields.get(key)),
        Tree::List(items) => Ok(items.get(index(key, items.len())?)),
        Tree::Whole(_) => Err("invalid state detected".to_owned()),
    }
}

fn add(parent: &mut Tree, key: &str, value: Tree) -> Result<(), String> {
    match parent {
        Tree::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Tree::List(items) if key == "-" => items.insert(items.len(), value),
        Tree::List(items) => {
            number(key).map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
            let at = index(key, items.len() + 1)?;
            items.insert(at, value);
        }
        Tree::Whole(_) => return Err("invalid state detected".to_owned()),
    }
    Ok(())
}

fn remove(parent: &mut Tree, key: &str) -> Result<Tree, String> {
    match parent {
        Tree::Object(fields) => {
            fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Tree::List(items) => {
            let at = index(key, items.len())?;
            Ok(items.remove(at))
        }
        Tree::Whole(_) => Err("invalid state detected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(doc: Value, patch: Value, expected: Result<Value, &str>) {
        let mut patched = doc.clone();
        let result = apply(&mut patched, &patch).map(|()| patched).map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_owned), "{doc} + {patch}");
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let doc = json!({"a": {"b": [1, 2, 3]}, "x/y": 1, "m~n": 2});
        for (patch, expected) in [
            (json!([]), doc.clone()),
            (
                json!([{"op": "add", "path": "/a/b/1", "value": 9}]),
                json!({"a": {"b": [1, 9, 2, 3]}, "x/y": 1, "m~n": 2}),
            ),
            (
                json!([{"op": "add", "path": "/a/b/-", "value": 9}]),
                json!({"a": {"b": [1, 2, 3, 9]}, "x/y": 1, "m~n": 2}),
            ),
            (
                json!([{"op": "add", "path": "/a/b/-1", "value": 9}]),
                json!({"a": {"b": [1, 2, 3, 9]}, "x/y": 1, "m~n": 2}),
            ),
            (
                json!([{"op": "add", "path": "/a/b/-2", "value": 9}]),
                json!({"a": {"b": [1, 2, 9, 3]}, "x/y": 1, "m~n": 2}),
            ),
            (json!([{"op": "remove", "path": "/a/b/-1"}]), json!({"a": {"b": [1, 2]}, "x/y": 1, "m~n": 2})),
            (
                json!([{"op": "replace", "path": "/x~1y", "value": null}]),
                json!({"a": {"b": [1, 2, 3]}, "x/y": null, "m~n": 2}),
            ),
            (
                json!([{"op": "replace", "path": "/new", "value": 1}]),
                json!({"a": {"b": [1, 2, 3]}, "x/y": 1, "m~n": 2, "new": 1}),
            ),
            (
                json!([{"op": "move", "from": "/m~0n", "path": "/a/c"}]),
                json!({"a": {"b": [1, 2, 3], "c": 2}, "x/y": 1}),
            ),
            (
                json!([{"op": "copy", "from": "/a/b/0", "path": "/a/b/-"}]),
                json!({"a": {"b": [1, 2, 3, 1]}, "x/y": 1, "m~n": 2}),
            ),
            (json!([{"op": "test", "path": "/a/b", "value": [1, 2, 3]}]), doc.clone()),
            (json!([{"op": "test", "path": "/none", "value": null}]), doc.clone()),
            (json!([{"op": "replace", "path": "", "value": {}}]), json!({})),
        ] {
            check(doc.clone(), patch, Ok(expected));
        }
    }

    #[test]
    fn failures_get_upstreams_words() {
        let doc = json!({"a": {"b": [1]}});
        for (patch, message) in [
            (json!({}), "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
            (json!([1]), "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
            (json!([{}]), "Unexpected kind: unknown"),
            (json!([{"op": "change"}]), "Unexpected kind: change"),
            (json!([{"op": "add"}]), "add operation failed to decode path: missing value"),
            (
                json!([{"op": "replace"}]),
                "replace operation failed to decode path: operation missing path field: missing value",
            ),
            (
                json!([{"op": "add", "path": "", "value": 1}]),
                "add operation does not apply: doc is missing path: \"\": missing value",
            ),
            (
                json!([{"op": "add", "path": "/x/y", "value": 1}]),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!([{"op": "add", "path": "/a/b/3", "value": 1}]),
                "error in add for path: '/a/b/3': Unable to access invalid index: 3: invalid index referenced",
            ),
            (
                json!([{"op": "add", "path": "/a/b/x", "value": 1}]),
                "error in add for path: '/a/b/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            (
                json!([{"op": "remove", "path": "/x"}]),
                "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "remove", "path": "/a/b/9"}]),
                "error in remove for path: '/a/b/9': Unable to access invalid index: 9: invalid index referenced",
            ),
            (
                json!([{"op": "replace", "path": "/a/b/9", "value": 1}]),
                "replace operation does not apply: doc is missing key: /a/b/9: missing value",
            ),
            (
                json!([{"op": "move", "from": "/x", "path": "/y"}]),
                "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
            ),
            (json!([{"op": "test", "path": "/a/b/0", "value": 2}]), "testing value /a/b/0 failed: test failed"),
            (
                json!([{"op": "copy", "path": "/y"}]),
                "copy operation failed to decode from: operation, missing from field: missing value",
            ),
        ] {
            check(doc.clone(), patch, Err(message));
        }
    }

    #[test]
    fn a_patch_is_bounded_in_operations_copies_and_depth() {
        let many = Value::Array(vec![json!({"op": "test", "path": "/none", "value": null}); MAX_OPERATIONS + 1]);
        check(json!({}), many, Err("The allowed maximum operations in a JSON patch is 10000, got 10001"));
        let doubling = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 100]);
        let mut doc = json!({"a": ["0123456789"]});
        let error = apply(&mut doc, &doubling).expect_err("too much copied");
        assert!(error.to_string().starts_with("Unable to complete the copy"), "{error}");
        let mut deep = vec![json!({"op": "add", "path": "/n", "value": {}})];
        for _ in 0..3000 {
            deep.push(json!({"op": "add", "path": "/m", "value": {}}));
            deep.push(json!({"op": "move", "from": "/n", "path": "/m/n"}));
            deep.push(json!({"op": "move", "from": "/m", "path": "/n"}));
        }
        let mut doc = json!({});
        let error = apply(&mut doc, &Value::Array(deep)).expect_err("too deep");
        assert!(error.to_string().ends_with("exceeded max depth"), "{error}");
    }

    #[test]
    fn a_strict_reader_names_unknown_fields() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1, "valeu": 2}]);
        assert_eq!(check_strict(&patch), Ok(vec!["json patch unknown field \"[0].valeu\"".to_owned()]));
        assert_eq!(
            check_strict(&json!([{"op": 1}])).expect_err("a number").to_string(),
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
        );
    }
}
