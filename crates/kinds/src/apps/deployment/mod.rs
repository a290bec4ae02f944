//! Deployments.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::workloads::{
    TEMPLATE, TEMPLATE_SPEC, amount, collisions, immutable, not_above, not_above_all, not_supported, number_or_percent,
    selector_and_template, template_warnings,
};
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::defaults;
use crate::keep::keep;
use crate::strategy::{Flags, Strategy, desired_state};

pub struct Deployments;

impl Strategy for Deployments {
    fn resets(&self, subresource: &str, has_status: bool) -> &'static [&'static str] {
        match subresource {
            "" if has_status => &["status"],
            "status" => &["spec", "metadata.labels"],
            _ => &[],
        }
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    /// Annotations count too: they are copied to the ReplicaSets.
    fn desired_state_changed(&self, new: &Value, old: &Value) -> bool {
        let annotations = |object| value::at(object, "metadata.annotations").filter(|map| !map.is_null());
        desired_state(new).ne(desired_state(old)) || annotations(new) != annotations(old)
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.replicas", 1);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.progressDeadlineSeconds", 600);
        value::set_default(object, "spec.strategy.type", "RollingUpdate");
        if value::text(object, "spec.strategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
            value::set_default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "metadata.labels");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("replicas"));
        selector_and_template(&spec, "deployment", "ReplicaSet", &mut errors);
        deployment_strategy(&spec.at("strategy"), &mut errors);
        errors.not_negative(&spec.at("minReadySeconds"));
        errors.not_negative(&spec.at("revisionHistoryLimit"));
        let deadline = spec.at("progressDeadlineSeconds");
        if let Some(seconds) = deadline.int() {
            errors.not_negative(&deadline);
            if seconds <= spec.at("minReadySeconds").int().unwrap_or(0) {
                errors.invalid(&deadline, "must be greater than minReadySeconds");
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
        not_above(&status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", &mut errors);
        collisions(&status, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}

fn deployment_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let rolling = at.at("rollingUpdate");
    match at.text_at("type") {
        "Recreate" => errors.forbidden_if_set(&rolling, "may not be specified when strategy `type` is 'Recreate'"),
        "RollingUpdate" if !rolling.is_set() => errors.required(&rolling, "this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            number_or_percent(&unavailable, errors);
            number_or_percent(&surge, errors);
            if amount(&unavailable) == 0 && amount(&surge) == 0 {
                errors.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
            }
            not_above_all(&unavailable, errors);
        }
        _ => errors.push(not_supported(at, &["Recreate", "RollingUpdate"])),
    }
}
