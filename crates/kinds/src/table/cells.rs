//! What cells of many kinds have in common.

use std::collections::BTreeSet;

use jiff::Timestamp;
use machinery::selector::label::LabelSelector;
use machinery::{Value, duration, time, value};
use serde_json::json;

/// How many of a list a cell shows.
pub const MOST: usize = 3;

pub fn name(object: &Value) -> Value {
    json!(value::text(object, "metadata.name"))
}

/// How long ago the object was made.
pub fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(object, "metadata.creationTimestamp", now))
}

/// How long ago the time at a path was.
pub fn since(object: &Value, path: &str, now: Timestamp) -> String {
    time::parse_clamped(value::text(object, path)).map_or_else(|| "<unknown>".to_owned(), |then| between(then, now))
}

/// How long it is from one time to another.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    duration::human(to.duration_since(from).as_secs())
}

/// What ReplicaSets and ReplicationControllers show alike.
pub fn replicas(object: &Value, selector: String, now: Timestamp) -> Vec<Value> {
    let [containers, images] = containers(object, "spec.template.spec");
    let count = |path| json!(number(object, path));
    let [wanted, there, ready] = ["spec.replicas", "status.replicas", "status.readyReplicas"].map(count);
    vec![name(object), wanted, there, ready, age(object, now), containers, images, json!(selector)]
}

/// The number at a path; absent is 0.
pub fn number(object: &Value, path: &str) -> i64 {
    value::int(object, path).unwrap_or(0)
}

/// The text at a path, or something else where there is none.
pub fn text_or(object: &Value, path: &str, absent: &str) -> String {
    match value::text(object, path) {
        "" => absent.to_owned(),
        text => text.to_owned(),
    }
}

/// A quantity, a number or a text as people read it.
pub fn plain(of: &Value) -> String {
    of.as_str().map_or_else(|| of.to_string(), str::to_owned)
}

/// The text elements of a list, joined.
pub fn joined(object: &Value, path: &str, between: &str) -> String {
    value::list(object, path).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)
}

/// Labels as `a=b,c=d`.
pub fn labels(object: &Value, path: &str) -> String {
    let mut pairs: Vec<String> = value::at(object, path)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, label)| format!("{key}={}", label.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector in the form that command lines take.
pub fn selector(object: &Value, path: &str) -> String {
    match LabelSelector::from_value(value::at(object, path).unwrap_or(&Value::Null)) {
        Err(_) => "<error>".to_owned(),
        Ok(selector) => match selector.to_string() {
            shown if shown.is_empty() => "<none>".to_owned(),
            shown => shown,
        },
    }
}

/// Names and images of the containers of the pod spec at a path.
pub fn containers(object: &Value, spec: &str) -> [Value; 2] {
    let containers = value::list(object, &format!("{spec}.containers"));
    ["name", "image"].map(|field| {
        json!(containers.iter().map(|container| value::text(container, field)).collect::<Vec<_>>().join(","))
    })
}

/// The first few, and how many more there are.
pub fn first(all: &[String], most: usize) -> String {
    match all.len() {
        0 => "<unset>".to_owned(),
        count if count > most => format!("{} + {} more...", all[..most].join(","), count - most),
        _ => all.join(","),
    }
}

/// The condition of a type, if the object has it.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    value::list(object, "status.conditions").iter().find(|condition| value::text(condition, "type") == kind)
}

/// Whether the object has a condition of this type, and it is true.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| value::text(condition, "status") == "True")
}

/// Addresses or host names of a load balancer, each once and sorted.
pub fn load_balancer(object: &Value) -> String {
    let points: BTreeSet<&str> = value::list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|point| match value::text(point, "ip") {
            "" => value::text(point, "hostname"),
            ip => ip,
        })
        .filter(|point| !point.is_empty())
        .collect();
    points.into_iter().collect::<Vec<_>>().join(",")
}

/// Whether an annotation is `true`.
pub fn annotated(object: &Value, annotation: &str) -> bool {
    annotation_of(object, annotation) == Some("true")
}

/// The value of an annotation.
pub fn annotation_of<'a>(object: &'a Value, annotation: &str) -> Option<&'a str> {
    value::at(object, "metadata.annotations")?.get(annotation)?.as_str()
}

/// Whether something other than null is at a path.
pub fn is_set(object: &Value, path: &str) -> bool {
    value::at(object, path).is_some_and(|found| !found.is_null())
}

/// How many entries a map has.
pub fn entries(object: &Value, path: &str) -> usize {
    value::at(object, path).and_then(Value::as_object).map_or(0, |map| map.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_selectors_are_shown_as_command_lines_take_them() {
        let object = json!({"labels": {"b": "2", "a": "1"}, "empty": {},
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}});
        assert_eq!(labels(&object, "labels"), "a=1,b=2");
        assert_eq!(labels(&object, "none"), "<none>");
        assert_eq!(selector(&object, "selector"), "a=b,c in (d,e)");
        assert_eq!(selector(&object, "empty"), "<none>");
        assert_eq!(selector(&object, "absent"), "<none>");
    }
}
