//! PodDisruptionBudgets.

pub mod columns;
pub mod subresources;
#[cfg(test)]
mod tests;

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::conditions::conditions;
use crate::checks::workloads::{not_above_all, number_or_percent};
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct DisruptionBudgets;

impl Strategy for DisruptionBudgets {
    fn flags(&self) -> Flags {
        Flags {
            judges_finalizers: false,
            counts_generations: true,
            // A budget must be written by somebody who has seen the one before.
            allows_unconditional_update: false,
            ..Flags::USUAL
        }
    }

    fn prepare_for_create(&self, budget: &mut Value) {
        let status = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        value::set(budget, "status", status);
    }

    fn validate(&self, budget: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(budget);
        let spec = root.at("spec");
        let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
        if least.is_set() && most.is_set() {
            errors.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
        }
        for bound in [least, most] {
            if bound.is_set() {
                number_or_percent(&bound, &mut errors);
                not_above_all(&bound, &mut errors);
            }
        }
        errors.label_selector(&spec.at("selector"));
        errors.one_of_if_set(&spec.at("unhealthyPodEvictionPolicy"), &["AlwaysAllow", "IfHealthyBudget"]);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        conditions(&status.at("conditions"), &mut errors);
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            errors.not_negative(&status.at(field));
        }
        errors.into_vec()
    }
}
