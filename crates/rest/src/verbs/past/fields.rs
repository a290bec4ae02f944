//! Which fields differ between two versions of an object. Pure.
//!
//! Elements of a list are told apart by what names them (`name`, `type`, …) where all have such a field; a list of plain values is one value.

use serde_json::{Map, Value, json};

/// Fields shown of one change.
const MOST: usize = 100;
/// Bytes of JSON shown of one value.
const LONG: usize = 400;
/// What elements of lists are called by, the best first.
const NAMES: [&str; 8] = ["name", "type", "uid", "key", "ip", "containerPort", "port", "devicePath"];
/// What every write changes and nobody looks for.
const UNSAID: [&str; 2] = ["metadata.managedFields", "metadata.resourceVersion"];

/// The differences, and how many more there are.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) shown: Vec<Value>,
    pub(super) omitted: usize,
}

/// What became of `old`.
pub(super) fn between(old: &Value, new: &Value) -> Fields {
    let mut fields = Fields::default();
    fields.compare(String::new(), Some(old), Some(new));
    fields
}

impl Fields {
    fn compare(&mut self, path: String, old: Option<&Value>, new: Option<&Value>) {
        if old == new || UNSAID.contains(&path.as_str()) {
            return;
        }
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.compare_maps(&path, old, new),
            (Some(Value::Array(old)), Some(Value::Array(new))) if named(old, new).is_some() => {
                self.compare_lists(&path, old, new);
            }
            // What is wholly new or gone is told field by field only where it is a map, so that a label is a line.
            (None, Some(Value::Object(new))) if !new.is_empty() => self.compare_maps(&path, &Map::new(), new),
            (Some(Value::Object(old)), None) if !old.is_empty() => self.compare_maps(&path, old, &Map::new()),
            _ => self.put(path, old, new),
        }
    }

    fn compare_maps(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        let added = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(added) {
            let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
            let below = match (path, plain) {
                ("", true) => key.clone(),
                (_, true) => format!("{path}.{key}"),
                (_, false) => format!("{path}[{key:?}]"),
            };
            self.compare(below, old.get(key), new.get(key));
        }
    }

    fn compare_lists(&mut self, path: &str, old: &[Value], new: &[Value]) {
        let Some(name) = named(old, new) else { return };
        let find = |list: &'_ [Value], wanted: &Value| list.iter().position(|item| item.get(name) == Some(wanted));
        let added = new.iter().filter(|item| item.get(name).is_some_and(|wanted| find(old, wanted).is_none()));
        for item in old.iter().chain(added) {
            let Some(wanted) = item.get(name) else { continue };
            let text = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
            let at = |list: &'_ [Value]| find(list, wanted);
            let (before, after) = (at(old).map(|at| &old[at]), at(new).map(|at| &new[at]));
            self.compare(format!("{path}[{name}={text}]"), before, after);
        }
    }

    fn put(&mut self, path: String, old: Option<&Value>, new: Option<&Value>) {
        if self.shown.len() == MOST {
            self.omitted += 1;
            return;
        }
        let mut field = json!({"path": path});
        for (side, value) in [("old", old), ("new", new)] {
            match value {
                Some(value) if value.to_string().len() > LONG => field[format!("{side}Omitted")] = true.into(),
                Some(value) => field[side] = value.clone(),
                None => {}
            }
        }
        self.shown.push(field);
    }
}

/// The field by which the elements of both lists are told apart, if there is one.
fn named(old: &[Value], new: &[Value]) -> Option<&'static str> {
    let unique = |list: &[Value], name: &str| {
        let names: Option<Vec<String>> = list
            .iter()
            .map(|item| item.get(name).filter(|value| value.is_string() || value.is_number()).map(Value::to_string))
            .collect();
        names.is_some_and(|mut names| {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            names.len() == all
        })
    };
    if old.is_empty() && new.is_empty() {
        return None;
    }
    NAMES.into_iter().find(|name| unique(old, name) && unique(new, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: Value, new: Value, expected: &[Value]) {
        let by_path = |field: &Value| field["path"].to_string();
        let (mut shown, mut expected) = (between(&old, &new).shown, expected.to_vec());
        shown.sort_by_key(by_path);
        expected.sort_by_key(by_path);
        assert_eq!(shown, expected);
    }

    #[test]
    fn fields_are_named_with_what_they_were_and_are() {
        check(
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 3}}),
            &[json!({"path": "spec.replicas", "old": 1, "new": 3})],
        );
        check(
            json!({}),
            json!({"metadata": {"labels": {"app": "web"}}}),
            &[json!({"path": "metadata.labels.app", "new": "web"})],
        );
        check(
            json!({"metadata": {"annotations": {"example.com/a": "1"}}}),
            json!({"metadata": {"annotations": {}}}),
            &[json!({"path": "metadata.annotations[\"example.com/a\"]", "old": "1"})],
        );
        check(json!({"a": [1, 2]}), json!({"a": [2]}), &[json!({"path": "a", "old": [1, 2], "new": [2]})]);
        check(json!({"a": null}), json!({"a": {}}), &[json!({"path": "a", "old": null, "new": {}})]);
    }

    #[test]
    fn elements_of_lists_go_by_their_names() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        check(
            json!({"status": {"conditions": [condition("Ready", "False"), condition("Old", "True")]}}),
            json!({"status": {"conditions": [condition("New", "True"), condition("Ready", "True")]}}),
            &[
                json!({"path": "status.conditions[type=Ready].status", "old": "False", "new": "True"}),
                json!({"path": "status.conditions[type=Old].type", "old": "Old"}),
                json!({"path": "status.conditions[type=Old].status", "old": "True"}),
                json!({"path": "status.conditions[type=New].type", "new": "New"}),
                json!({"path": "status.conditions[type=New].status", "new": "True"}),
            ],
        );
        let twice = json!({"a": [{"name": "x"}, {"name": "x"}]});
        check(twice.clone(), json!({"a": []}), &[json!({"path": "a", "old": twice["a"], "new": []})]);
    }

    #[test]
    fn what_every_write_changes_is_left_out_and_what_is_long_is_short() {
        let long = "x".repeat(1000);
        check(
            json!({"metadata": {"managedFields": [1], "resourceVersion": "1"}, "data": {"a": long}}),
            json!({"metadata": {"managedFields": [2], "resourceVersion": "2"}, "data": {}}),
            &[json!({"path": "data.a", "oldOmitted": true})],
        );
        let many: Map<String, Value> = (0..250).map(|n| (format!("k{n}"), json!(n))).collect();
        let fields = between(&json!({}), &Value::Object(many));
        assert_eq!((fields.shown.len(), fields.omitted), (MOST, 150));
    }
}
