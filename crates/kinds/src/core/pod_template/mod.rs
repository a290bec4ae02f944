//! PodTemplates.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};

use crate::checks::{At, Errors};
use crate::core::pod::drop_disabled;
use crate::core::pod::{defaults, spec, warnings};
use crate::strategy::{Flags, Strategy};

pub struct PodTemplates;

impl Strategy for PodTemplates {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, "template.spec");
    }

    fn prepare_for_create(&self, new: &mut Value) {
        drop_disabled(value::at_mut(new, "template.spec"));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_disabled(value::at_mut(new, "template.spec"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let at = At::root(object);
        spec::validate_template(&at.at("template"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::of_template(new, "template")
    }
}
