//! What an eviction takes from the budget of its pod.

use machinery::status::{ApiError, Cause};
use machinery::{Value, value};
use serde_json::json;

/// How many disrupted pods a budget remembers before it waits for its controller.
const MAX_DISRUPTED: usize = 2000;

/// The budget with one disruption less, for the pod of this name; none if the pod needs no budget to go, since it is not healthy anyway.
pub fn spend(old: &Value, healthy: bool, name: &str, now: &str) -> Result<Option<Value>, ApiError> {
    let (current, desired) = (value::int(old, "status.currentHealthy"), value::int(old, "status.desiredHealthy"));
    let enough = current >= desired && desired.unwrap_or(0) > 0;
    let always = value::text(old, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
    if !healthy && (always || enough) {
        return Ok(None);
    }
    allow(old)?;
    let mut new = old.clone();
    let left = value::int(old, "status.disruptionsAllowed").unwrap_or(0) - 1;
    value::set(&mut new, "status.disruptionsAllowed", left);
    let status = value::object_mut(&mut new, "status");
    let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
    value::as_object_mut(disrupted).insert(name.to_owned(), json!(now));
    Ok(Some(new))
}

/// Whether the budget has a disruption left, in upstream's words.
fn allow(budget: &Value) -> Result<(), ApiError> {
    let name = value::text(budget, "metadata.name");
    let refuse = |message: &str, cause: String, retry: u32| {
        let mut error = ApiError::too_many_requests(message, retry);
        error.details.get_or_insert_default().causes =
            vec![Cause { reason: "DisruptionBudget".to_owned(), message: cause, field: String::new() }];
        error
    };
    if value::int(budget, "status.observedGeneration") < value::int(budget, "metadata.generation") {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refuse("Cannot evict pod as it would violate the pod's disruption budget.", cause, 10));
    }
    let allowed = value::int(budget, "status.disruptionsAllowed").unwrap_or(0);
    if allowed < 0 {
        return Err(ApiError::internal("pdb disruptions allowed is negative"));
    }
    let disrupted = value::at(budget, "status.disruptedPods").and_then(Value::as_object).map_or(0, |pods| pods.len());
    if disrupted > MAX_DISRUPTED {
        return Err(ApiError::internal(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        let need = value::int(budget, "status.desiredHealthy").unwrap_or(0);
        let have = value::int(budget, "status.currentHealthy").unwrap_or(0);
        let cause = format!("The disruption budget {name} needs {need} healthy pods and has {have} currently");
        return Err(refuse("Cannot evict pod as it would violate the pod's disruption budget.", cause, 0));
    }
    Ok(())
}
