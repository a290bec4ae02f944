//! VolumeAttributesClasses.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::{At, Errors};
use crate::storage::classes::{parameters, provisioner};
use crate::strategy::Strategy;

pub struct VolumeAttributesClasses;

impl Strategy for VolumeAttributesClasses {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        provisioner(&root.at("driverName"), &mut errors);
        let given = root.at("parameters");
        parameters(&given, &mut errors);
        if given.is_empty() {
            errors.required(&given, "must contain at least one key/value pair");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        for field in ["driverName", "parameters"] {
            if fresh.at(field).value() != stale.at(field).value() {
                errors.forbidden(&fresh.at(field), format!("updates to {field} are forbidden."));
            }
        }
        errors.extend(self.validate(new));
        errors.into_vec()
    }
}
