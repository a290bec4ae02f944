//! PriorityClasses.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};

use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    /// What may change in a class is nothing that anybody has to catch up with.
    fn desired_state_changed(&self, _new: &Value, _old: &Value) -> bool {
        false
    }

    fn default(&self, class: &mut Value) {
        value::set_default(class, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        const HIGHEST: i64 = 1_000_000_000;
        let mut errors = Errors::new();
        let root = At::root(class);
        let (name, priority) = (root.at("metadata.name"), root.at("value").int().unwrap_or(0));
        if name.text().starts_with("system-") {
            let known = match name.text() {
                "system-node-critical" => Some(2_000_001_000),
                "system-cluster-critical" => Some(2_000_000_000),
                _ => None,
            };
            let why = match known {
                None => Some(format!("{} is not a known system priority class", name.text())),
                Some(wanted) if wanted != priority => {
                    Some(format!("value of {} PriorityClass must be {wanted}", name.text()))
                }
                Some(_) if root.at("globalDefault").flag() => {
                    Some(format!("globalDefault of {} PriorityClass must be false", name.text()))
                }
                Some(_) => None,
            };
            if let Some(why) = why {
                errors.forbidden(
                    &name,
                    format!(
                        "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                    ),
                );
            }
        } else if priority > HIGHEST {
            errors
                .forbidden(&root.at("value"), format!("maximum allowed value of a user defined priority is {HIGHEST}"));
        }
        let policy = root.at("preemptionPolicy");
        if policy.is_set() {
            errors.required_one_of(&policy, &["PreemptLowerPriority", "Never"]);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        if new.at("value").int().unwrap_or(0) != old.at("value").int().unwrap_or(0) {
            errors.forbidden(&new.at("value"), "may not be changed in an update.");
        }
        errors.immutable(&new.at("preemptionPolicy"), &old.at("preemptionPolicy"));
        errors.into_vec()
    }
}
