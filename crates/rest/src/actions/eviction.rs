//! Eviction: a deletion that disruption budgets may refuse.

use http::StatusCode;
use kinds::{budget, pod};
use machinery::rest::{Body, Response};
use machinery::selector::label::LabelSelector;
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;
use storage::cache::Filter;

use crate::verbs::body::{check_kind, read_optional};
use crate::verbs::commit::Change;
use crate::verbs::options::DeleteOptions;
use crate::verbs::{Api, Call, value_response};

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

/// Writes on the pod why it goes. Its owner reads that from what is left of it: a Job may be configured not to count such an end.
async fn mark(api: &Api, call: &Call<'_>, options: &mut DeleteOptions) -> Result<(), ApiError> {
    let (key, now) = (call.key(), api.now());
    let marked = api.change(call.writes(call.resource, &key), false, |old, object| {
        api.check_preconditions(call.resource, object, options)?;
        let mut new = old.clone();
        pod::disrupted(&mut new, &now);
        Ok(Change::Put(new))
    });
    let marked = marked.await?.ok_or_else(|| call.not_found())?.object();
    // Whoever wants only a certain version gone means the one before this mark.
    if options.resource_version.is_some() {
        options.resource_version = Some(marked.revision().to_string());
    }
    Ok(())
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
    let changed = api.change(call.writes(budgets, &key), dry_run, |old, _| {
        Ok(match budget::spend(old, healthy, &name, &now)? {
            Some(new) => Change::Put(new),
            None => Change::Keep,
        })
    });
    changed.await?;
    Ok(())
}
