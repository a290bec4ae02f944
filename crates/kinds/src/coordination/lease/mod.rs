//! Leases.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};

use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct Leases;

impl Strategy for Leases {
    fn flags(&self) -> Flags {
        Flags { judges_finalizers: false, creates_on_update: true, allows_unconditional_update: false, ..Flags::USUAL }
    }

    /// Who should hold a lease is coordinated behind a gate that is off.
    fn prepare_for_create(&self, new: &mut Value) {
        value::remove(new, "spec.strategy");
        value::remove(new, "spec.preferredHolder");
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        self.prepare_for_create(new);
    }

    fn validate(&self, lease: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(lease);
        let spec = root.at("spec");
        let duration = spec.at("leaseDurationSeconds");
        if duration.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&duration, "must be greater than 0");
        }
        errors.not_negative(&spec.at("leaseTransitions"));
        let strategy = spec.at("strategy");
        if strategy.is_set() {
            let place = strategy.to_string();
            lease_strategy(&At::part(&place, spec.value()), &mut errors);
        }
        if !spec.text_at("preferredHolder").is_empty() && strategy.text().is_empty() {
            errors.forbidden(&spec.at("preferredHolder"), "may only be specified if `strategy` is defined");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

/// Upstream names the strategy within itself.
pub fn lease_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let strategy = at.at("strategy");
    if !strategy.text().contains('/') {
        errors.one_of(&strategy, &["OldestEmulationVersion"]);
    } else {
        errors.label_name(&strategy);
    }
}
