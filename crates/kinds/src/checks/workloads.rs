//! What all kinds with a template of pods have in common: selectors that fit the template, numbers that may be percentages.

use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::{spec as pod_spec, warnings};

pub const TEMPLATE: &str = "spec.template";
pub const TEMPLATE_SPEC: &str = "spec.template.spec";

/// A value that upstream shows whole, though only its type is not supported.
pub fn not_supported(at: &At<'_, '_>, supported: &[&str]) -> FieldError {
    FieldError::not_supported(at.to_string(), at.value().clone(), supported.iter().copied())
}

/// What ReplicaSets and ReplicationControllers count.
pub fn replica_status(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(object);
    let status = root.at("status");
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
    not_above(&status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", &mut errors);
    errors.into_vec()
}

/// No count is above that of all replicas, and no more are available than ready.
pub fn not_above(status: &At<'_, '_>, fields: &[&str], ready: &str, errors: &mut Errors) {
    let number = |field: &str| status.at(field).int().unwrap_or(0);
    for field in fields {
        if number(field) > number("replicas") {
            errors.invalid_int(&status.at(field), "cannot be greater than status.replicas");
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        errors.invalid_int(&status.at("availableReplicas"), format!("cannot be greater than {ready}"));
    }
}

pub fn collisions(status: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let count = status.at("collisionCount");
    if value::int(old, "status.collisionCount").is_some_and(|before| count.int().is_none_or(|after| after < before)) {
        errors.invalid_int(&count, "cannot be decremented");
    }
}

/// Warnings about a template, unless nothing in it has changed.
pub fn template_warnings(new: &Value, old: Option<&Value>, path: &str) -> Vec<String> {
    let unchanged = old.is_some_and(|old| value::at(old, path) == value::at(new, path));
    if unchanged { Vec::new() } else { warnings::of_template(new, path) }
}

/// A selector that is there, in order, and not empty; and a template that it chooses.
pub fn selector_and_template(spec: &At<'_, '_>, what: &str, kind: &str, errors: &mut Errors) {
    let chosen = spec.at("selector");
    check_selector(&chosen, what, errors);
    let template = spec.at("template");
    matches_template(&chosen, &template, errors);
    pod_spec::validate_template(&template, errors);
    always_restarts(&template, kind, errors);
}

pub fn check_selector(at: &At<'_, '_>, what: &str, errors: &mut Errors) {
    if !at.is_set() {
        return errors.required(at, "");
    }
    errors.label_selector(at);
    if at.at("matchLabels").is_empty() && at.at("matchExpressions").is_empty() {
        errors.invalid(at, format!("empty selector is invalid for {what}"));
    }
}

pub fn matches_template(chosen: &At<'_, '_>, template: &At<'_, '_>, errors: &mut Errors) {
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else {
        return errors.invalid(chosen, "invalid label selector");
    };
    // Without a selector nothing is chosen, so no template fits.
    if (!chosen.is_set() || !selector.is_empty()) && !selector.matches_labels(template.at("metadata.labels").value()) {
        errors.invalid(&template.at("metadata.labels"), "`selector` does not match template `labels`");
    }
}

pub fn always_restarts(template: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    let policy = template.at("spec.restartPolicy");
    if policy.text() != "Always" {
        errors.not_supported(&policy, &["Always"]);
    }
    let deadline = template.at("spec.activeDeadlineSeconds");
    errors.forbidden_if_set(&deadline, &format!("activeDeadlineSeconds in {kind} is not Supported"));
}

/// A number, or a part of a whole.
pub fn number_or_percent(at: &At<'_, '_>, errors: &mut Errors) {
    match at.value() {
        Value::String(text) => errors.problems(at, names::is_valid_percent(text)),
        _ => errors.not_negative(at),
    }
}

/// The number, or the percentage as a number.
pub fn amount(at: &At<'_, '_>) -> i64 {
    match at.value() {
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// Not more than all of them.
pub fn not_above_all(at: &At<'_, '_>, errors: &mut Errors) {
    let is_percent = names::is_valid_percent(at.text()).is_empty();
    if is_percent && amount(at) > 100 {
        errors.invalid(at, "must not be greater than 100%");
    }
}

/// A field that stays as it was made.
pub fn immutable(new: &Value, old: &Value, path: &str) -> Option<FieldError> {
    let (before, after) = (value::at(old, path), value::at(new, path));
    (before != after).then(|| FieldError::invalid(path, after.cloned().unwrap_or(Value::Null), "field is immutable"))
}
