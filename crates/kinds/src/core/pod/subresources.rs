//! What the subresources of a pod do to it that are more than a change by its author: a binding, an eviction.

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

/// Everything wrong with a binding.
pub fn binding_errors(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = value::text(binding, "target.kind");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported("target.kind", kind, ["Node", "<empty>"]));
    }
    if value::text(binding, "target.name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    errors
}

/// Why a pod cannot get a node now.
pub fn unbindable(name: &str, pod: &Value) -> Option<String> {
    if value::at(pod, "metadata.deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let assigned = value::text(pod, "spec.nodeName");
    if !assigned.is_empty() {
        return Some(format!("pod {name} is already assigned to node {assigned:?}"));
    }
    let gated = !value::list(pod, "spec.schedulingGates").is_empty();
    gated.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// The pod, on the node.
pub fn bound(old: &Value, binding: &Value, node: &str, now: &str) -> Value {
    let mut pod = old.clone();
    value::set(&mut pod, "spec.nodeName", node);
    for kind in ["annotations", "labels"] {
        let path = format!("metadata.{kind}");
        for (key, text) in value::at(binding, &path).and_then(Value::as_object).into_iter().flatten() {
            value::object_mut(value::at_mut(&mut pod, "metadata").expect("every stored object has metadata"), kind)
                .insert(key.clone(), text.clone());
        }
    }
    let mut conditions = value::list(&pod, "status.conditions").to_vec();
    conditions.retain(|condition| value::text(condition, "type") != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    value::set(&mut pod, "status.conditions", conditions);
    // A nomination was for a place that is now decided.
    value::remove(&mut pod, "status.nominatedNodeName");
    pod
}

/// Writes on a pod why it goes.
pub fn disrupted(pod: &mut Value, now: &str) {
    let status = value::object_mut(pod, "status");
    let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() else { return };
    let known = conditions.iter().position(|condition| condition["type"] == "DisruptionTarget");
    let since = known.map(|at| &conditions[at]).filter(|condition| condition["status"] == "True");
    let since = since.map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone());
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": since,
    });
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}
