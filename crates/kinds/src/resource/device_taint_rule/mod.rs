//! DeviceTaintRules.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::conditions::conditions;
use crate::checks::{At, Errors};
use crate::core::pod::volumes::csi_driver_name;
use crate::resource::devices::{device_taint, pool_name};
use crate::resource::resource_claim::status::MOST_DEVICE_CONDITIONS;
use crate::strategy::{Flags, Strategy};

pub struct DeviceTaintRules;

impl Strategy for DeviceTaintRules {
    fn flags(&self) -> Flags {
        Flags {
            status_resets_metadata: true,
            allows_unconditional_update: false,
            counts_generations: true,
            ..Flags::USUAL
        }
    }

    fn stamp(&self, rule: &mut Value, now: &dyn Fn() -> String) {
        value::set_default(rule, "spec.taint.timeAdded", now());
    }

    fn validate(&self, rule: &Value) -> Vec<FieldError> {
        taint_rule(rule, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        taint_rule(new, Some(old))
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let list = root.at("status.conditions");
        conditions(&list, &mut errors);
        if list.len() > MOST_DEVICE_CONDITIONS {
            errors.too_many(&list, MOST_DEVICE_CONDITIONS);
        }
        errors.into_vec()
    }
}

fn taint_rule(rule: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(rule);
    let selector = root.at("spec.deviceSelector");
    if selector.has("driver") {
        csi_driver_name(&selector.at("driver"), &mut errors);
    }
    if selector.has("pool") {
        pool_name(&selector.at("pool"), &mut errors);
    }
    if selector.has("device") {
        let device = selector.at("device");
        errors.problems(&device, names::is_dns1123_label(device.text()));
    }
    let before = old.map(At::root);
    let before = before.as_ref().map(|old| old.at("spec.taint"));
    device_taint(&root.at("spec.taint"), before.as_ref(), &mut errors);
    errors.into_vec()
}
