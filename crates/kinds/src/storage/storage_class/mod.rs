//! StorageClasses.

pub mod columns;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, value};

use crate::checks::{At, Errors};
use crate::storage::classes::{parameters, provisioner};
use crate::strategy::Strategy;

pub struct StorageClasses;

impl Strategy for StorageClasses {
    fn default(&self, class: &mut Value) {
        value::set_default(class, "reclaimPolicy", "Delete");
        value::set_default(class, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        provisioner(&root.at("provisioner"), &mut errors);
        parameters(&root.at("parameters"), &mut errors);
        let policy = root.at("reclaimPolicy");
        if !policy.text().is_empty() {
            errors.one_of(&policy, &["Delete", "Retain"]);
        }
        let mode = root.at("volumeBindingMode");
        if mode.is_set() {
            errors.one_of(&mode, &["Immediate", "WaitForFirstConsumer"]);
        } else {
            errors.required(&mode, "");
        }
        topologies(&root.at("allowedTopologies"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errors.immutable_unshown(&fresh.at(field), &stale.at(field));
        }
        let mut all = self.validate(new);
        all.extend(errors.into_vec());
        all
    }
}

fn topologies(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, term) in list.items().enumerate() {
        let expressions = term.at("matchLabelExpressions");
        let mut keys: HashSet<&str> = HashSet::new();
        for expression in expressions.items() {
            let values = expression.at("values");
            if values.is_empty() {
                errors.required(&values, "");
            }
            for (position, topology) in values.items().enumerate() {
                if values.items().take(position).any(|known| known.value() == topology.value()) {
                    errors.duplicate(&topology, topology.text());
                }
            }
            errors.label_name(&expression.at("key"));
            let key = expression.text_at("key");
            if keys.contains(&key) {
                errors.duplicate(&expression.at("key"), key);
            }
            keys.insert(key);
        }
        // Upstream compares with as many empty terms as there are terms, besides those before.
        let empty = if expressions.is_empty() { list.len() } else { 0 };
        let known = list.items().take(index).filter(|known| known.value() == term.value()).count();
        for _ in 0..empty + known {
            errors.duplicate(&expressions, "");
        }
    }
}
