//! Priority: a pod's priority class as the number and the policy it stands for.

use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use super::{Operation, Request};
use crate::rest::Api;

/// Resolves `spec.priorityClassName`, or the cluster's default class.
pub fn admit(api: &Api, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.is_for("", "pods") {
        return Ok(());
    }
    let Some(classes) = api.registry.stored("scheduling.k8s.io", "priorityclasses") else { return Ok(()) };
    let name = value::text(pod, "spec.priorityClassName").to_owned();
    let class = if name.is_empty() {
        let (all, _) = classes.cache.list(&crate::cache::Filter::everything(), None, 0);
        all.iter()
            .map(|class| class.to_value())
            .filter(|class| value::flag(class, "globalDefault"))
            .min_by_key(|class| value::int(class, "value"))
    } else {
        match classes.cache.get(&name) {
            Some(class) => Some(class.to_value()),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(ApiError::forbidden(&request.resource.name, value::text(pod, "metadata.name"), &why));
            }
        }
    };
    let priority = class.as_ref().and_then(|class| value::int(class, "value")).unwrap_or(0);
    let policy = class.as_ref().map(|class| value::text(class, "preemptionPolicy")).filter(|policy| !policy.is_empty());
    let policy = policy.unwrap_or("PreemptLowerPriority").to_owned();
    if value::int(pod, "spec.priority").is_some_and(|given| given != priority) {
        let given = value::int(pod, "spec.priority").unwrap_or(0);
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden(&request.resource.name, value::text(pod, "metadata.name"), &why));
    }
    if let Some(class) = &class
        && name.is_empty()
    {
        value::set(pod, "spec.priorityClassName", value::text(class, "metadata.name"));
    }
    value::set(pod, "spec.priority", json!(priority));
    value::set_default(pod, "spec.preemptionPolicy", policy);
    Ok(())
}
