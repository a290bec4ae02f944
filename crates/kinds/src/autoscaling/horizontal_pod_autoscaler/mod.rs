//! HorizontalPodAutoscalers, in v2.

pub mod columns;
pub mod convert;
#[cfg(test)]
mod tests;

use machinery::gvk::GroupVersion;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::rare_names::typed_reference;
use crate::checks::{At, Errors};
use crate::core::pod::resources;
use crate::strategy::{Flags, Strategy};

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub struct Autoscalers;

impl Strategy for Autoscalers {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        value::set_default(object, "spec.minReplicas", 1);
        if value::list(object, "spec.metrics").is_empty() {
            let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
            value::set(object, "spec.metrics", cpu);
        }
        if value::at(object, "spec.behavior").is_some_and(Value::is_object) {
            let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
            let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
            for (rules, policies) in [("spec.behavior.scaleUp", up), ("spec.behavior.scaleDown", down)] {
                value::set_default(object, &format!("{rules}.selectPolicy"), "Max");
                value::set_default(object, &format!("{rules}.policies"), policies);
            }
            value::set_default(object, "spec.behavior.scaleUp.stabilizationWindowSeconds", 0);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        value::set(object, "status", json!({"desiredReplicas": 0, "currentMetrics": null}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
        errors.not_negative(&least);
        let bound = most.int().unwrap_or(0);
        if least.int().is_some_and(|least| bound < least) {
            errors.invalid_int(&most, "must be greater than or equal to `minReplicas`");
        }
        let scaled = spec.at("scaleTargetRef");
        // Of what the core group has, this alone can be scaled.
        target(&scaled, scaled.text_at("kind") == "ReplicationController", &mut errors);
        metrics(&spec, &mut errors);
        for rules in ["behavior.scaleUp", "behavior.scaleDown"] {
            let rules = spec.at(rules);
            if rules.is_set() {
                scaling_rules(&rules, &mut errors);
            }
        }
        // Upstream says last what the schema alone can say.
        match bound {
            0 => errors.required(&most, ""),
            1.. => {}
            _ => errors.invalid(&most, "must be greater than or equal to 1"),
        }
        errors.into_vec()
    }

    /// What was scaled before the rule for its version came may go on to be scaled.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        const VERSION: &str = "spec.scaleTargetRef.apiVersion";
        let mut errors = self.validate(new);
        if value::text(new, VERSION) == value::text(old, VERSION) {
            errors.retain(|error| error.path != VERSION);
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        errors.not_negative(&root.at("status.currentReplicas"));
        errors.not_negative(&root.at("status.desiredReplicas"));
        for condition in root.at("status.conditions").items() {
            errors.not_negative(&condition.at("observedGeneration"));
        }
        errors.into_vec()
    }
}

/// What is scaled, or what is measured.
fn target(at: &At<'_, '_>, core: bool, errors: &mut Errors) {
    typed_reference(at, "kind", errors);
    let version = at.at("apiVersion");
    match GroupVersion::parse(version.text()) {
        None if !version.text().is_empty() => {
            errors.invalid(&version, format!("unexpected GroupVersion string: {}", version.text()));
        }
        Some(version) if !version.group.is_empty() => {}
        _ if core => {}
        _ => errors.invalid_text(&version, "apiVersion must specify API group"),
    }
}

fn metrics(spec: &At<'_, '_>, errors: &mut Errors) {
    let list = spec.at("metrics");
    for metric in list.items() {
        validate_metric(&metric, errors);
    }
    let outside = list.items().any(|metric| matches!(metric.text_at("type"), "Object" | "External"));
    if spec.at("minReplicas").int() == Some(0) && !outside {
        errors.forbidden(
            &list,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
}

fn validate_metric(metric: &At<'_, '_>, errors: &mut Errors) {
    let kind = metric.at("type");
    let kinds = SOURCES.map(|(kind, _)| kind);
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric source type");
    }
    errors.one_of(&kind, &kinds);
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|source| metric.has(source))
        .collect();
    if let Some(first) = present.first() {
        validate_source(first, &metric.at(first), errors);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text()).map_or("", |(_, source)| source);
    if expected.is_empty() {
        errors.one_of(&kind, &kinds);
    } else if !metric.has(expected) {
        errors.required(&metric.at(expected), "must populate information for the given metric source");
    }
    if present.len() != 1 {
        for source in present.iter().filter(|source| **source != expected) {
            errors.forbidden(&metric.at(source), "must populate the given metric source only");
        }
    }
}

fn validate_source(kind: &str, at: &At<'_, '_>, errors: &mut Errors) {
    let goal = at.at("target");
    let (value, average, utilization) = (goal.at("value"), goal.at("averageValue"), goal.at("averageUtilization"));
    match kind {
        "object" => {
            target(&at.at("describedObject"), true, errors);
            identifier(&at.at("metric"), errors);
            metric_target(&goal, errors);
            if !value.is_set() && !average.is_set() {
                errors.required(&average, "must set either a target value or averageValue");
            }
        }
        "external" => {
            identifier(&at.at("metric"), errors);
            metric_target(&goal, errors);
            match (value.is_set(), average.is_set()) {
                (false, false) => {
                    errors.required(&average, "must set either a target value for metric or a per-pod target")
                }
                (true, true) => {
                    errors.forbidden(&value, "may not set both a target value for metric and a per-pod target")
                }
                _ => {}
            }
        }
        "pods" => {
            identifier(&at.at("metric"), errors);
            metric_target(&goal, errors);
            if !average.is_set() {
                errors.required(&average, "must specify a positive target averageValue");
            }
        }
        _ => {
            let name = at.at("name");
            if name.text().is_empty() {
                errors.required(&name, "must specify a resource name");
            } else if kind == "containerResource" {
                resources::container_name(name.text(), &name, errors);
            }
            let container = at.at("container");
            if kind == "containerResource" {
                if container.text().is_empty() {
                    errors.required(&container, "must specify a container");
                } else {
                    errors.problems(&container, names::is_dns1123_label(container.text()));
                }
            }
            metric_target(&goal, errors);
            match (utilization.is_set(), average.is_set()) {
                (false, false) => {
                    errors.required(&utilization, "must set either a target raw value or a target utilization")
                }
                (true, true) => {
                    errors.forbidden(&average, "may not set both a target raw value and a target utilization")
                }
                _ => {}
            }
        }
    }
}

fn identifier(at: &At<'_, '_>, errors: &mut Errors) {
    let name = at.at("name");
    if name.text().is_empty() {
        errors.required(&name, "must specify a metric name");
    } else {
        errors.problems(&name, names::is_path_segment_name(name.text()));
    }
}

fn metric_target(at: &At<'_, '_>, errors: &mut Errors) {
    let kind = at.at("type");
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        errors.invalid_text(&kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = at.at(field);
        if amount.quantity().is_some_and(|quantity| quantity.signum() <= 0) {
            errors.invalid(&amount, "must be positive");
        }
    }
    let utilization = at.at("averageUtilization");
    if utilization.int().is_some_and(|percent| percent < 1) {
        errors.invalid(&utilization, "must be greater than 0");
    }
}

fn scaling_rules(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST_WINDOW: i64 = 3600;
    const MOST_PERIOD: i64 = 1800;
    let window = at.at("stabilizationWindowSeconds");
    match window.int() {
        Some(..0) => errors.invalid(&window, "must be greater than or equal to zero"),
        Some(seconds) if seconds > MOST_WINDOW => {
            errors.invalid(&window, format!("must be less than or equal to {MOST_WINDOW}"))
        }
        _ => {}
    }
    errors.one_of_if_set(&at.at("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = at.at("policies");
    if policies.is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        errors.one_of(&policy.at("type"), &["Percent", "Pods"]);
        errors.positive(&policy.at("value"));
        let period = policy.at("periodSeconds");
        errors.positive(&period);
        if period.int().is_some_and(|seconds| seconds > MOST_PERIOD) {
            errors.invalid(&period, format!("must be less than or equal to {MOST_PERIOD}"));
        }
    }
    errors.quantity_not_negative(&at.at("tolerance"));
}
