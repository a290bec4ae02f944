//! CSIStorageCapacities.

use machinery::status::FieldError;
use machinery::{Value, names};

use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct CsiStorageCapacities;

impl Strategy for CsiStorageCapacities {
    fn flags(&self) -> Flags {
        Flags { allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn validate(&self, capacity: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(capacity);
        errors.label_selector(&root.at("nodeTopology"));
        let class = root.at("storageClassName");
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
        errors.quantity_not_negative(&root.at("capacity"));
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        for field in ["nodeTopology", "storageClassName"] {
            errors.immutable(&new.at(field), &old.at(field));
        }
        errors.into_vec()
    }
}
