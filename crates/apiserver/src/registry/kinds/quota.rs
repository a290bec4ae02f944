//! ResourceQuotas and LimitRanges.

use std::collections::HashSet;

use machinery::quantity::{Format, Quantity};
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::common::{At, Errors};
use super::pod::{defaults, resources};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// ResourceQuotas.
pub struct ResourceQuotas;

impl Strategy for ResourceQuotas {
    fn default(&self, quota: &mut Value) {
        for path in ["spec.hard", "status.hard", "status.used"] {
            if let Some(list) = value::at_mut(quota, path) {
                defaults::round_up(list);
            }
        }
    }

    fn prepare_for_create(&self, quota: &mut Value) {
        value::set(quota, "status", json!({}));
    }

    fn validate(&self, quota: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_spec(&At::root(quota).at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        validate_spec(&fresh.at("spec"), &mut errors);
        let (scopes, before) = (fresh.at("spec.scopes"), stale.at("spec.scopes"));
        let sorted = |list: &At<'_, '_>| {
            let mut scopes: Vec<String> = list.items().map(|scope| scope.text().to_owned()).collect();
            scopes.sort_unstable();
            scopes.dedup();
            scopes
        };
        if sorted(&scopes) != sorted(&before) {
            errors.invalid(&scopes, "field is immutable");
        }
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        amounts(&root.at("status.hard"), &mut errors);
        amounts(&root.at("status.used"), &mut errors);
        errors.into_vec()
    }
}

fn amounts(list: &At<'_, '_>, errors: &mut Errors) {
    for (resource, amount) in list.entries() {
        resources::name(resource, &amount, errors);
        if !resource.contains('/') && !resources::is_standard_for_quota(resource) {
            errors.invalid_value(&amount, resource, "must be a standard resource for quota");
        }
        resources::amount(resource, &amount, errors);
    }
}

fn validate_spec(spec: &At<'_, '_>, errors: &mut Errors) {
    amounts(&spec.at("hard"), errors);
    let scopes = spec.at("scopes");
    let limited: Vec<&str> = spec
        .at("hard")
        .entries()
        .map(|(resource, _)| resource)
        .filter(|resource| resources::is_standard_for_quota(resource))
        .collect();
    let applies = |scope: &str| limited.iter().filter(|resource| !fits(scope, resource)).count();
    for scope in scopes.items() {
        if !SCOPES.contains(&scope.text()) {
            errors.invalid(&scopes, "unsupported scope");
        }
        for _ in 0..applies(scope.text()) {
            errors.invalid(&scopes, "unsupported scope applied to resource");
        }
    }
    let given: Vec<&str> = scopes.items().map(|scope| scope.text()).collect();
    conflicts(&given, &scopes, &scopes, errors);
    let selector = spec.at("scopeSelector");
    if !selector.is_set() {
        return;
    }
    let expressions = selector.at("matchExpressions");
    for expression in expressions.items() {
        scope_expression(&selector, &expressions, &expression, applies(expression.text_at("scopeName")), errors);
    }
    let chosen: Vec<&str> = expressions.items().map(|expression| expression.text_at("scopeName")).collect();
    conflicts(&chosen, &expressions, &scopes, errors);
}

fn scope_expression(
    selector: &At<'_, '_>,
    list: &At<'_, '_>,
    expression: &At<'_, '_>,
    misfits: usize,
    errors: &mut Errors,
) {
    // Upstream speaks of the list, whichever expression is meant.
    let path = list.to_string();
    let shown = At::part(&path, expression.value());
    let (scope, operator, values) = (shown.at("scopeName"), shown.at("operator"), shown.at("values"));
    if !SCOPES.contains(&scope.text()) {
        errors.invalid_text(&scope, "unsupported scope");
    }
    for _ in 0..misfits {
        errors.invalid_value(list, selector.value().clone(), "unsupported scope applied to resource");
    }
    let needs_exists = matches!(
        scope.text(),
        "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
    );
    if needs_exists && operator.text() != "Exists" {
        errors.invalid_text(&operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
    }
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            errors
                .required(&values, "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.invalid(&values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.invalid_text(&operator, "not a valid selector operator"),
    }
}

fn conflicts(scopes: &[&str], at: &At<'_, '_>, shown: &At<'_, '_>, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid_value(at, shown.value().clone(), "conflicting scopes");
        }
    }
}

/// Whether a scope says anything about a resource.
fn fits(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// LimitRanges.
pub struct LimitRanges;

impl Strategy for LimitRanges {
    /// One without a name gets one that nobody else has.
    fn prepare_for_create(&self, range: &mut Value) {
        if value::text(range, "metadata.name").is_empty() {
            let uid = value::text(range, "metadata.uid").to_owned();
            value::set(range, "metadata.name", uid);
        }
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    /// What a limit for containers leaves out follows from what it says.
    fn default(&self, range: &mut Value) {
        for limit in value::list_mut(range, "spec.limits") {
            for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                if let Some(list) = limit.get_mut(field) {
                    defaults::round_up(list);
                }
            }
            if value::text(limit, "type") != "Container" {
                continue;
            }
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let source = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
                for (resource, amount) in source {
                    value::object_mut(limit, to).entry(resource).or_insert(amount);
                }
            }
        }
    }

    fn validate(&self, range: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(range);
        let mut seen: HashSet<&str> = HashSet::new();
        for limit in root.at("spec.limits").items() {
            let kind = limit.at("type");
            let problems = names::is_qualified_name(kind.text());
            let good = problems.is_empty();
            errors.problems(&kind, problems);
            if good
                && !kind.text().contains('/')
                && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            {
                errors.invalid(&kind, "must be a standard limit type or fully qualified");
            }
            if seen.contains(&kind.text()) {
                errors.duplicate(&kind, kind.text());
            }
            seen.insert(kind.text());
            validate_limit(&limit, kind.text(), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn validate_limit(limit: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let list = limit.at(field);
        if kind == "Pod" && matches!(field, "default" | "defaultRequest") {
            if !list.is_empty() {
                errors.forbidden(&list, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (resource, entry) in list.entries() {
            match kind {
                "Pod" | "Container" => resources::container_name(resource, &entry, errors),
                _ => {
                    resources::name(resource, &entry, errors);
                }
            }
        }
        if field == "defaultRequest"
            && kind == "PersistentVolumeClaim"
            && !limit.has("min.storage")
            && !limit.has("max.storage")
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&limit.at("limits"), detail);
        }
    }
    let lists = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(|field| limit.at(field));
    let mut all: Vec<&str> = lists.iter().flat_map(|list| list.entries().map(|(resource, _)| resource)).collect();
    all.sort_unstable();
    all.dedup();
    for resource in all {
        let skip = kind == "Pod";
        let [min, max, default, request, ratio] = lists.each_ref().map(|list| list.key(resource));
        let (default_amount, request_amount) =
            (default.quantity().filter(|_| !skip), request.quantity().filter(|_| !skip));
        let mut ordered = |low: &Option<Quantity>,
                           high: &Option<Quantity>,
                           at: &At<'_, '_>,
                           shown: &Option<Quantity>,
                           low_name: &str,
                           high_name: &str| {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
            {
                errors.invalid_value(
                    at,
                    shown.to_string(),
                    format!("{low_name} value {low} is greater than {high_name} value {high}"),
                );
            }
        };
        let (least, most) = (min.quantity(), max.quantity());
        ordered(&least, &most, &min, &least, "min", "max");
        ordered(&least, &request_amount, &request, &request_amount, "min", "default request");
        ordered(&request_amount, &most, &request, &request_amount, "default request", "max");
        ordered(&request_amount, &default_amount, &request, &request_amount, "default request", "default limit");
        ordered(&least, &default_amount, &default, &least, "min", "default");
        ordered(&default_amount, &most, &default, &most, "default", "max");
        if let Some(bound) = ratio.quantity() {
            if bound < Quantity::new(1, Format::DecimalSi) {
                errors.invalid_value(&ratio, bound.to_string(), format!("ratio {bound} is less than 1"));
            }
            if let (Some(least), Some(most)) = (&least, &most) {
                let limit = most.milli_value() as f64 / least.milli_value() as f64;
                if bound.milli_value() as f64 / 1000.0 > limit {
                    errors.invalid_value(
                        &ratio,
                        bound.to_string(),
                        format!("ratio {bound} is greater than max/min = {limit:.6}"),
                    );
                }
            }
        }
        if let (Some(limit), Some(wanted)) = (&default_amount, &request_amount)
            && (!resources::is_native(resource) || resources::is_huge_page(resource))
            && limit != wanted
        {
            let detail = format!("default value {limit} must equal to defaultRequest value {wanted} in {resource}");
            errors.invalid_value(&request, wanted.to_string(), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_and_limits_are_checked() {
        let quota = json!({"spec": {"hard": {"pods": "1", "odd": "1", "cpu": "-1"}, "scopes": ["BestEffort", "NotBestEffort"]}});
        let errors: Vec<String> = ResourceQuotas.validate(&quota).iter().map(ToString::to_string).collect();
        assert!(
            errors
                .contains(&"spec.hard[odd]: Invalid value: \"odd\": must be a standard resource for quota".to_owned()),
            "{errors:?}"
        );
        assert!(
            errors.contains(
                &"spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes".to_owned()
            ),
            "{errors:?}"
        );
        let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}});
        LimitRanges.default(&mut range);
        assert_eq!(range["spec"]["limits"][0]["defaultRequest"]["cpu"], "1");
        let errors: Vec<String> = LimitRanges.validate(&range).iter().map(ToString::to_string).collect();
        assert_eq!(errors[0], "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1");
    }
}
