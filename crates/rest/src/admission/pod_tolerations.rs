//! PodTolerationRestriction: what pods of a namespace tolerate without saying so, and what they may tolerate at all. The
//! namespace says both in annotations; where it says nothing, the cluster does in the plug-in's settings.

use machinery::object::Object;
use machinery::status::ApiError;
use machinery::{Value, value};
use rules::names::MEMORY_PRESSURE;
use rules::qos::is_best_effort_in as is_best_effort;
use rules::tolerations::{covers, merge};
use serde_json::json;

use super::{Operation, Request};
use crate::verbs::Api;

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
            annotated(&*namespace(api, request).await?, DEFAULTS)?.unwrap_or_else(|| settings.default.clone())
        }
        _ => Vec::new(),
    };
    if !is_best_effort(pod) {
        added.push(json!({"key": MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule"}));
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
    let (allowed, whose) = match annotated(&*namespace(api, request).await?, ALLOWED)? {
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
fn annotated(namespace: &Object, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
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
