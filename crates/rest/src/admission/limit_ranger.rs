//! LimitRanger: defaults and bounds for what containers, pods and claims of a namespace ask for.

use machinery::quantity::Quantity;
use machinery::status::ApiError;
use machinery::{Value, value};
use rules::pod_resources::{Amounts, Side, amounts, of, of_pod};
use serde_json::json;
use storage::cache::Filter;

use super::pods::{List, placed, spec};
use super::{Operation, Request};
use crate::verbs::Api;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const MAX_MILLI: i64 = i64::MAX / 1000;

/// Whether the request can change what is limited.
fn concerns(request: &Request<'_>) -> bool {
    let resize = request.resource.name.group.is_empty()
        && request.resource.name.resource == "pods"
        && request.info.subresource == "resize"
        && request.operation == Operation::Update;
    let pod = request.is_for("", "pods") && request.operation == Operation::Create;
    let claim = request.is_for("", "persistentvolumeclaims")
        && matches!(request.operation, Operation::Create | Operation::Update);
    resize || pod || claim
}

fn limit_ranges(api: &Api, namespace: &str) -> Vec<Value> {
    let Some(ranges) = api.registry.stored("", "limitranges") else { return Vec::new() };
    let (found, _) = ranges.cache.list(&Filter::namespace(namespace), None, 0);
    found.iter().map(|range| range.to_value()).collect()
}

pub fn admit(api: &Api, request: &Request<'_>, new: &mut Value) {
    if !concerns(request) || request.resource.name.resource != "pods" {
        return;
    }
    for range in limit_ranges(api, &request.info.namespace) {
        fill_in(new, &range);
    }
}

/// Refuses what is out of bounds.
pub fn validate(api: &Api, request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(new) = new.filter(|_| concerns(request)) else { return Ok(()) };
    if old.is_some_and(|old| value::at(old, "metadata.deletionTimestamp").is_some()) {
        return Ok(());
    }
    let is_pod = request.resource.name.resource == "pods";
    for range in limit_ranges(api, &request.info.namespace) {
        let problems = if is_pod { check_pod(new, &range) } else { check_claim(new, &range) };
        if let Some(why) = super::together(&problems) {
            return Err(request.forbid(new, &why));
        }
    }
    Ok(())
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    value::list(range, "spec.limits").iter().filter(move |limit| value::text(limit, "type") == kind)
}

fn fill_in(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    for limit in limits_of(range, "Container") {
        requests.extend(amounts(limit.get("defaultRequest")));
        limits.extend(amounts(limit.get("default")));
    }
    let mut notes = Vec::new();
    for (list, kind) in [("spec.containers", "container"), ("spec.initContainers", "init container")] {
        for container in value::list_mut(pod, list) {
            let name = value::text(container, "name").to_owned();
            let set_limits = set_missing(container, "limits", &limits);
            let set_requests = set_missing(container, "requests", &requests);
            for (set, what) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {kind} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let metadata = value::object_mut(pod, "metadata");
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        value::as_object_mut(annotations).insert(ANNOTATION.to_owned(), note.into());
    }
}

fn set_missing(container: &mut Value, side: &str, defaults: &Amounts) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        let present = value::at(container, "resources").and_then(|resources| resources.get(side));
        if present.is_none_or(|present| present.get(name).is_none()) {
            let resources = value::object_mut(container, "resources");
            let side = resources.entry(side).or_insert_with(|| json!({}));
            value::as_object_mut(side).insert(name.clone(), amount.to_string().into());
            set.push(name.clone());
        }
    }
    set
}

fn check_pod(pod: &Value, range: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (_, _, container) in placed(spec(pod), &[List::Plain, List::Init]) {
        let (requests, limits) = (of(container, Side::Requests), of(container, Side::Limits));
        problems.extend(check(range, "Container", &requests, &limits, &OF_PODS));
    }
    let (requests, limits) = (of_pod(pod, Side::Requests), of_pod(pod, Side::Limits));
    problems.extend(check(range, "Pod", &requests, &limits, &OF_PODS));
    problems
}

fn check_claim(claim: &Value, range: &Value) -> Vec<String> {
    let empty = Value::Null;
    let requests = of(value::at(claim, "spec").unwrap_or(&empty), Side::Requests);
    check(range, "PersistentVolumeClaim", &requests, &Amounts::new(), &OF_CLAIMS)
}

/// How a bound is enforced, by its field.
type Rule = (&'static str, fn(&Bound<'_>) -> Option<String>);

const OF_PODS: [Rule; 3] = [
    ("min", |bound| bound.minimum()),
    ("max", |bound| bound.maximum()),
    ("maxLimitRequestRatio", |bound| bound.ratio()),
];
/// A claim has requests only.
const OF_CLAIMS: [Rule; 2] = [("min", |bound| bound.minimum()), ("max", |bound| bound.maximum_request())];

fn check(range: &Value, kind: &str, requests: &Amounts, limits: &Amounts, rules: &[Rule]) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in limits_of(range, kind) {
        for (field, enforce) in rules {
            for (name, enforced) in &amounts(limit.get(*field)) {
                let bound = Bound { kind, name, enforced, request: requests.get(name), limit: limits.get(name) };
                problems.extend(enforce(&bound));
            }
        }
    }
    problems
}

/// One bound, and what is asked for.
struct Bound<'a> {
    kind: &'a str,
    name: &'a str,
    enforced: &'a Quantity,
    request: Option<&'a Quantity>,
    limit: Option<&'a Quantity>,
}

impl Bound<'_> {
    fn named(&self, which: &str) -> String {
        format!("{which} {} usage per {} is {}", self.name, self.kind, self.enforced)
    }

    fn minimum(&self) -> Option<String> {
        let bound = || self.named("minimum");
        match (self.request, self.limit) {
            (None, _) => Some(format!("{}.  No request is specified", bound())),
            (Some(request), _) if request < self.enforced => Some(format!("{}, but request is {request}", bound())),
            (_, Some(limit)) if limit < self.enforced => Some(format!("{}, but limit is {limit}", bound())),
            _ => None,
        }
    }

    fn maximum(&self) -> Option<String> {
        let bound = || self.named("maximum");
        match (self.request, self.limit) {
            (_, None) => Some(format!("{}.  No limit is specified", bound())),
            (_, Some(limit)) if limit > self.enforced => Some(format!("{}, but limit is {limit}", bound())),
            (Some(request), _) if request > self.enforced => Some(format!("{}, but request is {request}", bound())),
            _ => None,
        }
    }

    fn maximum_request(&self) -> Option<String> {
        let bound = || self.named("maximum");
        match self.request {
            None => Some(format!("{}.  No request is specified", bound())),
            Some(request) if request > self.enforced => Some(format!("{}, but request is {request}", bound())),
            Some(_) => None,
        }
    }

    fn ratio(&self) -> Option<String> {
        let bound = || format!("{} max limit to request ratio per {} is {}", self.name, self.kind, self.enforced);
        let Some(request) = self.request.filter(|request| !request.is_zero()) else {
            return Some(format!("{}, but no request is specified or request is 0", bound()));
        };
        let Some(limit) = self.limit.filter(|limit| !limit.is_zero()) else {
            return Some(format!("{}, but no limit is specified or limit is 0", bound()));
        };
        // At the precision of thousandths, where the numbers are not too large for it.
        let small = [request, limit, self.enforced].iter().all(|quantity| quantity.value() <= MAX_MILLI);
        let number = |quantity: &Quantity| if small { quantity.milli_value() as f64 } else { quantity.value() as f64 };
        let shown = number(limit) / number(request);
        let most = match self.enforced.value() {
            large if large > MAX_MILLI => large as f64,
            _ => self.enforced.milli_value() as f64 / 1000.0,
        };
        (shown > most).then(|| format!("{}, but provided ratio is {shown:.6}", bound()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(kind: &str, limit: Value) -> Value {
        let mut limit = limit;
        limit["type"] = json!(kind);
        json!({"spec": {"limits": [limit]}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_fill_in_what_is_missing_and_are_noted() {
        let mut new = pod(json!({"requests": {"memory": "1Gi"}}));
        fill_in(
            &mut new,
            &range(
                "Container",
                json!({"default": {"cpu": "1", "memory": "2Gi"}, "defaultRequest": {"cpu": "100m", "memory": "1Mi"}}),
            ),
        );
        let resources = &new["spec"]["containers"][0]["resources"];
        assert_eq!(
            *resources,
            json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}})
        );
        assert_eq!(
            new["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
        );
    }

    #[test]
    fn bounds_are_upstreams_words() {
        let check = |resources: Value, limit: Value, expect: &[&str]| {
            assert_eq!(check_pod(&pod(resources), &range("Container", limit)), expect);
        };
        let both = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        check(both("100m", "1"), json!({"min": {"cpu": "50m"}, "max": {"cpu": "1"}}), &[]);
        check(
            json!({}),
            json!({"min": {"cpu": "50m"}}),
            &["minimum cpu usage per Container is 50m.  No request is specified"],
        );
        check(
            both("10m", "1"),
            json!({"min": {"cpu": "50m"}}),
            &["minimum cpu usage per Container is 50m, but request is 10m"],
        );
        check(
            both("10m", "2"),
            json!({"max": {"cpu": "1"}}),
            &["maximum cpu usage per Container is 1, but limit is 2"],
        );
        check(
            json!({}),
            json!({"max": {"cpu": "1"}}),
            &["maximum cpu usage per Container is 1.  No limit is specified"],
        );
        check(
            both("100m", "1"),
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000"],
        );
    }

    #[test]
    fn claims_are_bounded_by_what_they_ask_for() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        let range = range("PersistentVolumeClaim", json!({"max": {"storage": "2Gi"}, "min": {"storage": "1Gi"}}));
        assert_eq!(
            check_claim(&claim, &range),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"]
        );
    }
}
