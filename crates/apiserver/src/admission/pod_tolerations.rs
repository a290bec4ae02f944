//! PodTolerationRestriction: what pods of a namespace tolerate without saying so, and what they may tolerate at all. The
//! namespace says both in annotations; where it says nothing, the cluster does in the plug-in's settings.

use machinery::object::Object;
use machinery::pod_resources::{Side, of};
use machinery::quantity::Quantity;
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use super::pods::{List, placed, spec};
use super::runtime_class::{covers, merge};
use super::{Operation, Request};
use crate::rest::Api;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// What the cluster says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// What pods tolerate without saying so.
    pub default: Vec<Value>,
    /// What they may tolerate; nothing is everything.
    pub allowed: Vec<Value>,
}

impl Settings {
    /// From the plug-in's `Configuration`.
    pub fn read(tree: &Value) -> Self {
        Self { default: value::list(tree, "default").to_vec(), allowed: value::list(tree, "whitelist").to_vec() }
    }
}

/// Adds what the namespace's pods tolerate, then checks the whole.
pub async fn admit(settings: &Settings, api: &Api, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if !concerns(request) {
        return Ok(());
    }
    let mut added = match request.operation {
        Operation::Create => {
            said(&*namespace(api, request).await?, DEFAULTS)?.unwrap_or_else(|| settings.default.clone())
        }
        _ => Vec::new(),
    };
    if !is_best_effort(pod) {
        let taint = "node.kubernetes.io/memory-pressure";
        added.push(json!({"key": taint, "operator": "Exists", "effect": "NoSchedule"}));
    }
    if !added.is_empty() {
        let all = [value::list(pod, "spec.tolerations"), &added].concat();
        value::set(pod, "spec.tolerations", merge(&all));
    }
    validate(settings, api, request, Some(pod)).await
}

/// Refuses what the namespace's pods may not tolerate.
pub async fn validate(
    settings: &Settings,
    api: &Api,
    request: &Request<'_>,
    new: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(pod) = new.filter(|_| concerns(request)) else { return Ok(()) };
    let own = value::list(pod, "spec.tolerations");
    if own.is_empty() {
        return Ok(());
    }
    let (allowed, whose) = match said(&*namespace(api, request).await?, ALLOWED)? {
        Some(allowed) => (allowed, "namespace"),
        None => (settings.allowed.clone(), "cluster"),
    };
    if allowed.is_empty() || own.iter().all(|one| allowed.iter().any(|wide| covers(wide, one))) {
        return Ok(());
    }
    Err(failed(format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
    )))
}

fn concerns(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update) && request.is_for("", "pods")
}

/// Upstream's plug-in returns errors that are no API errors: they are the server's, without a reason.
fn failed(message: String) -> ApiError {
    ApiError { reason: None, message, ..ApiError::internal("") }
}

async fn namespace(api: &Api, request: &Request<'_>) -> Result<std::sync::Arc<Object>, ApiError> {
    super::namespaces::find(api, &request.info.namespace).await
}

/// The tolerations that a namespace's annotation has; nothing without the annotation.
fn said(namespace: &Object, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let tree = namespace.to_value();
    let Some(text) = value::at(&tree, "metadata.annotations").and_then(|all| all.get(key)).and_then(Value::as_str)
    else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let decoded = machinery::codec::json::decode(text.as_bytes(), machinery::codec::Limits::default());
    match decoded.map_err(|error| failed(error.message))?.value {
        Value::Array(list) => Ok(Some(list)),
        _ => Err(failed("json: cannot unmarshal object into Go value of type []v1.Toleration".to_owned())),
    }
}

/// Whether a pod asks for nothing that would be kept for it.
fn is_best_effort(pod: &Value) -> bool {
    let asks = |holder: &Value| {
        [Side::Requests, Side::Limits].into_iter().any(|side| {
            let amounts = of(holder, side);
            ["cpu", "memory"].iter().any(|name| amounts.get(*name).is_some_and(|amount| *amount > Quantity::ZERO))
        })
    };
    !asks(spec(pod)) && !placed(spec(pod), &[List::Plain, List::Init]).any(|(_, _, container)| asks(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_asks_for_nothing_is_best_effort() {
        let check = |spec: Value, expect: bool| assert_eq!(is_best_effort(&json!({"spec": spec})), expect, "{spec}");
        let asking = |list: &str| json!({list: [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]});
        check(json!({"containers": [{"name": "c"}]}), true);
        check(asking("containers"), false);
        check(asking("initContainers"), false);
        check(json!({"resources": {"requests": {"memory": "1Mi"}}}), false);
        check(json!({"containers": [{"resources": {"requests": {"cpu": "0", "example.com/gpu": "1"}}}]}), true);
    }
}
