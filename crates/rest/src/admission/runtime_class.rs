//! RuntimeClass: what a pod's runtime costs beside its containers, and where it can run.

use machinery::status::ApiError;
use machinery::{Value, value};
use rules::pod_resources::amounts;
use rules::tolerations::merge;
use serde_json::json;

use super::{Operation, Request};
use crate::verbs::Api;

async fn class_of(api: &Api, request: &Request<'_>, pod: &Value) -> Result<Option<Value>, ApiError> {
    let name = value::text(pod, "spec.runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let Some(classes) = api.registry.stored("node.k8s.io", "runtimeclasses") else { return Ok(None) };
    // It may just have been made.
    let found = match classes.cache.get(name) {
        Some(class) => Some(class),
        None => api.read(classes, name).await?,
    };
    match found {
        Some(class) => Ok(Some(class.to_value())),
        None => Err(request.forbid(pod, &format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn concerns(request: &Request<'_>) -> bool {
    request.operation == Operation::Create && request.is_for("", "pods")
}

/// Sets overhead, node selector and tolerations.
pub async fn admit(api: &Api, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if !concerns(request) {
        return Ok(());
    }
    let Some(class) = class_of(api, request, pod).await? else { return Ok(()) };
    if let Some(overhead) = value::at(&class, "overhead.podFixed") {
        let own = amounts(value::at(pod, "spec.overhead"));
        if !own.is_empty() && own != amounts(Some(overhead)) {
            return Err(
                request.forbid(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
            );
        }
        value::set(pod, "spec.overhead", overhead.clone());
    }
    if let Some(why) = schedule(pod, &class) {
        return Err(request.forbid(pod, &why));
    }
    Ok(())
}

/// An overhead is its class's, or there is none.
pub async fn validate(api: &Api, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
    let Some(pod) = new.filter(|_| concerns(request)) else { return Ok(()) };
    let class = class_of(api, request, pod).await?;
    let defined = class.as_ref().and_then(|class| value::at(class, "overhead.podFixed"));
    let own = value::at(pod, "spec.overhead").filter(|own| !own.is_null());
    match (defined, own) {
        (Some(defined), own) if amounts(Some(defined)) != amounts(own) => {
            Err(request.forbid(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
        }
        (None, Some(_)) => {
            Err(request
                .forbid(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
        }
        _ => Ok(()),
    }
}

/// Merges the class's scheduling into the pod's; a conflict is an error.
fn schedule(pod: &mut Value, class: &Value) -> Option<String> {
    for (key, wanted) in value::at(class, "scheduling.nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let wanted = wanted.as_str().unwrap_or_default();
        let own = value::at(pod, "spec.nodeSelector").and_then(|own| own.get(key)).and_then(Value::as_str);
        if let Some(own) = own.filter(|own| *own != wanted) {
            return Some(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        let selector = value::object_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
        value::as_object_mut(selector).insert(key.clone(), wanted.into());
    }
    let added = value::list(class, "scheduling.tolerations");
    if !added.is_empty() {
        let all = [value::list(pod, "spec.tolerations"), added].concat();
        value::set(pod, "spec.tolerations", merge(&all));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_is_merged_and_conflicts_are_told() {
        let class =
            json!({"scheduling": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
        let mut pod = json!({"spec": {"nodeSelector": {"b": "2"}, "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]}});
        assert_eq!(schedule(&mut pod, &class), None);
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "k", "operator": "Exists"}]));
        let mut pod = json!({"spec": {"nodeSelector": {"a": "2"}}});
        let why = schedule(&mut pod, &class).expect("a conflict");
        assert_eq!(why, "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2");
    }
}
