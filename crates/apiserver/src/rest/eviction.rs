//! Eviction: a deletion that disruption budgets may refuse.

use http::StatusCode;
use machinery::rest::{Body, Response};
use machinery::selector::label::LabelSelector;
use machinery::status::{ApiError, Cause};
use machinery::{Value, value};
use serde_json::json;

use super::body::{check_kind, read_optional};
use super::options::DeleteOptions;
use super::storage::Change;
use super::{Api, Call, value_response};
use crate::cache::Filter;

/// How many disrupted pods a budget remembers before it waits for its controller.
const MAX_DISRUPTED: usize = 2000;

/// Deletes the pod if every budget that covers it (there may be one) allows it.
pub async fn evict(api: &Api, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
    let mut eviction = read_optional(call.headers, body).await?.unwrap_or_else(|| json!({}));
    check_kind(&mut eviction, "policy", "v1", "Eviction")?;
    let name = value::text(&eviction, "metadata.name");
    if !name.is_empty() && name != call.info.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::parse(call.query, eviction.get("deleteOptions"))?;
    let pod = api.read(call.resource, &call.key()).await?.ok_or_else(|| call.not_found())?;
    api.admit_request(call, &mut eviction, options.dry_run).await?;
    let tree = pod.to_value();
    let phase = value::text(&tree, "status.phase");
    let ignores_budgets = matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.meta().deleting;
    if !ignores_budgets {
        spend(api, call, &tree, options.dry_run).await?;
    }
    if !options.dry_run {
        mark(api, call, &mut options).await?;
    }
    api.delete_admitted(call, &options).await?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(value_response(StatusCode::CREATED, success))
}

/// Writes on the pod why it goes. Its owner reads that from what is left of it: a Job may be told not to count such an end.
async fn mark(api: &Api, call: &Call<'_>, options: &mut DeleteOptions) -> Result<(), ApiError> {
    let (key, now) = (call.key(), api.now());
    let marked = api.change(call.resource, &key, false, |old, object| {
        api.check_preconditions(call.resource, object, options)?;
        let mut new = old.clone();
        disrupted(&mut new, &now);
        Ok(Change::Put(new))
    });
    let marked = marked.await?.ok_or_else(|| call.not_found())?.object();
    // Whoever wants only a certain version gone means the one before this mark.
    if options.resource_version.is_some() {
        options.resource_version = Some(marked.revision().to_string());
    }
    Ok(())
}

fn disrupted(pod: &mut Value, now: &str) {
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

/// Takes one disruption from the pod's budget.
async fn spend(api: &Api, call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let Some(budgets) = api.registry.stored("policy", "poddisruptionbudgets") else { return Ok(()) };
    let filter = Filter::namespace(&call.info.namespace);
    let labels =
        |key: &str| value::at(pod, "metadata.labels").and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let (all, _) = budgets.cache.list(&filter, None, 0);
    let covering: Vec<_> = all
        .into_iter()
        .filter(|budget| {
            let budget = budget.to_value();
            let selector = value::at(&budget, "spec.selector").map(LabelSelector::from_value);
            matches!(selector, Some(Ok(selector)) if selector.matches(labels))
        })
        .collect();
    let budget = match covering.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(ApiError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let healthy = value::list(pod, "status.conditions")
        .iter()
        .any(|condition| value::text(condition, "type") == "Ready" && value::text(condition, "status") == "True");
    let name = call.info.name.clone();
    let now = api.now();
    let key = budgets.key(&budget.meta().namespace, &budget.meta().name);
    let changed = api.change(budgets, &key, dry_run, |old, _| {
        let (current, desired) = (value::int(old, "status.currentHealthy"), value::int(old, "status.desiredHealthy"));
        let enough = current >= desired && desired.unwrap_or(0) > 0;
        let always = value::text(old, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if !healthy && (always || enough) {
            return Ok(Change::Keep);
        }
        allow(old)?;
        let mut new = old.clone();
        let left = value::int(old, "status.disruptionsAllowed").unwrap_or(0) - 1;
        value::set(&mut new, "status.disruptionsAllowed", left);
        let status = value::object_mut(&mut new, "status");
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        value::as_object_mut(disrupted).insert(name.clone(), json!(now));
        Ok(Change::Put(new))
    });
    changed.await?;
    Ok(())
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
