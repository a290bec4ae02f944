//! ResourceQuotas.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::core::pod::{defaults, resources};
use crate::strategy::Strategy;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

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
