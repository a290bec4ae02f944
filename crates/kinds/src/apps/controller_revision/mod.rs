//! ControllerRevisions.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::{At, Errors};
use crate::strategy::Strategy;

/// ControllerRevisions: what a set was, unchanging.
pub struct ControllerRevisions;

impl Strategy for ControllerRevisions {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        errors.not_negative(&root.at("revision"));
        let data = root.at("data");
        match data.value() {
            Value::Object(_) => {}
            Value::Null => errors.required(&data, "data is mandatory"),
            _ => errors.required(&data, "data must be a valid JSON object"),
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        errors.not_negative(&new.at("revision"));
        errors.immutable(&new.at("data"), &old.at("data"));
        errors.into_vec()
    }
}
