//! DeviceClasses.

use machinery::Value;
use machinery::status::FieldError;
use rules::names::is_extended;

use crate::checks::lists::slice;
use crate::checks::{At, Errors};
use crate::resource::devices::{MOST_CONFIGURATIONS, configuration, selectors};
use crate::strategy::{Flags, Strategy};

pub struct DeviceClasses;

impl Strategy for DeviceClasses {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        class_spec(&At::root(class).at("spec"), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        class_spec(&At::root(new).at("spec"), Some(&At::root(old).at("spec")), &mut errors);
        errors.into_vec()
    }
}

fn class_spec(spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let same = |field: &str| old.is_some_and(|old| old.at(field).value() == spec.at(field).value());
    selectors(&spec.at("selectors"), same("selectors"), errors);
    let stored = same("config");
    slice(&spec.at("config"), MOST_CONFIGURATIONS, errors, |config, errors| configuration(config, stored, errors));
    let extended = spec.at("extendedResourceName");
    if extended.is_set() && !is_extended(extended.text()) {
        errors.invalid(&extended, "must be a valid extended resource name");
    }
}
