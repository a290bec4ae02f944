//! The difference between two statuses, as a strategic merge patch: others may write conditions at the same time.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

const DISRUPTION: &str = "DisruptionTarget";

/// Lists of the status that are merged by a key, and that key. The others are replaced whole.
const MERGED: [(&str, &str); 2] = [("conditions", "type"), ("podIPs", "ip")];

/// What turns `old` into `new`, for the pod with this uid; nothing when they are the same.
pub fn patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (object(old), object(new));
    let mut status = Map::new();
    for (field, value) in &new {
        let (mine, theirs);
        let (value, before) = if field == "conditions" {
            mine = ours(value, value);
            theirs = old.get(field).map(|old| ours(old, value));
            (&mine, theirs.as_ref())
        } else {
            (value, old.get(field))
        };
        if before == Some(value) {
            continue;
        }
        let merged = MERGED.iter().find(|(name, _)| name == field);
        let change = match merged {
            Some((_, key)) => merge(key, before, value),
            None => value.clone(),
        };
        status.insert(field.clone(), change);
    }
    for field in old.keys().filter(|field| *field != "conditions" && !new.contains_key(*field)) {
        status.insert(field.clone(), Value::Null);
    }
    if status.is_empty() {
        return None;
    }
    // The uid makes sure that a pod of the same name that came later is not touched.
    Some(json!({"metadata": {"uid": uid}, "status": status}))
}

fn object(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Those of the conditions that are the kubelet's to write: others' may have changed since we saw them. That a pod is disrupted is said by
/// whoever does it, so the kubelet may say it too, and never takes it back: a status made before an eviction may be written after it.
fn ours(conditions: &Value, new: &Value) -> Value {
    let name = |condition: &Value| condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let disrupted = new.as_array().into_iter().flatten().any(|condition| name(condition) == DISRUPTION);
    let mine = |condition: &&Value| {
        let name = name(condition);
        super::conditions::OURS.contains(&name.as_str()) || (name == DISRUPTION && disrupted)
    };
    Value::Array(conditions.as_array().into_iter().flatten().filter(mine).cloned().collect())
}

/// Items that are new or differ, and a removal for each that is gone.
fn merge(key: &str, old: Option<&Value>, new: &Value) -> Value {
    let empty = Vec::new();
    let old = old.and_then(Value::as_array).unwrap_or(&empty);
    let new = new.as_array().unwrap_or(&empty);
    let same_key = |a: &Value, b: &Value| a.get(key) == b.get(key);
    let mut items: Vec<Value> = Vec::new();
    for item in new {
        let before = old.iter().find(|before| same_key(before, item));
        if before == Some(item) {
            continue;
        }
        let mut item = item.clone();
        // A merge keeps what is not mentioned: a reason that went away has to be named.
        if let (Some(Value::Object(before)), Value::Object(map)) = (before, &mut item) {
            for field in before.keys() {
                map.entry(field.clone()).or_insert(Value::Null);
            }
        }
        items.push(item);
    }
    for gone in old.iter().filter(|before| !new.iter().any(|item| same_key(item, before))) {
        items.push(json!({key: gone.get(key), "$patch": "delete"}));
    }
    Value::Array(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_same_status_needs_no_patch() {
        let one = status(json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}));
        assert_eq!(patch("u", &one, &one), None);
    }

    #[test]
    fn only_what_changed_is_sent() {
        let old = status(json!({
            "phase": "Pending",
            "reason": "Why",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
                {"type": "PodScheduled", "status": "True"},
                {"type": "example.com/other", "status": "True"},
            ],
        }));
        let new = status(json!({
            "phase": "Running",
            "podIPs": [{"ip": "10.0.0.2"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        }));
        let expect = json!({"metadata": {"uid": "u"}, "status": {
            "phase": "Running",
            "reason": null,
            "podIPs": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1", "$patch": "delete"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": null}],
        }});
        assert_eq!(patch("u", &old, &new), Some(expect));
    }

    #[test]
    fn a_disruption_is_not_taken_back_by_a_status_made_before_it() {
        let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
        let seen = status(json!({"phase": "Running", "conditions": [disrupted, {"type": "Ready", "status": "True"}]}));
        let before =
            status(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "R"}]}));
        let expect = json!({"metadata": {"uid": "u"}, "status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "R"}],
        }});
        assert_eq!(patch("u", &seen, &before), Some(expect));
        // What the kubelet itself says of it is written.
        let evicts = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
        let expect = json!({"metadata": {"uid": "u"}, "status": {"conditions": [evicts]}});
        let (seen, says) = (status(json!({})), status(json!({"conditions": [evicts]})));
        assert_eq!(patch("u", &seen, &says), Some(expect));
    }
}
