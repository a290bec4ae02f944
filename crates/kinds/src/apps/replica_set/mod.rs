//! ReplicaSets.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::workloads::{
    TEMPLATE, TEMPLATE_SPEC, immutable, replica_status, selector_and_template, template_warnings,
};
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::defaults;
use crate::strategy::{Flags, Strategy};

pub struct ReplicaSets;

impl Strategy for ReplicaSets {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.replicas", 1);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("replicas"));
        errors.not_negative(&spec.at("minReadySeconds"));
        selector_and_template(&spec, "deployment", "ReplicaSet", &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        replica_status(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}
