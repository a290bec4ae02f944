//! CSINodes.

pub mod columns;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors, IMMUTABLE};
use crate::core::pod::volumes::csi_driver_name;
use crate::keep::keep_object_meta;
use crate::strategy::{Flags, Strategy};
use crate::wording::internal;

pub struct CsiNodes;

impl Strategy for CsiNodes {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
    }

    /// The health of volumes is behind a gate that is off.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
        value::remove(new, "status.storageHealth");
    }

    fn validate(&self, node: &Value) -> Vec<FieldError> {
        const MOST_ID: usize = 256;
        let mut errors = Errors::new();
        let root = At::root(node);
        let mut seen: HashSet<&str> = HashSet::new();
        for driver in root.at("spec.drivers").items() {
            let name = driver.at("name");
            csi_driver_name(&name, &mut errors);
            let id = driver.at("nodeID");
            errors.required_text(&id);
            if id.text().len() > MOST_ID {
                errors.invalid(&id, format!("must be {MOST_ID} characters or less"));
            }
            errors.not_negative(&driver.at("allocatable.count"));
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
            let keys = driver.at("topologyKeys");
            for (index, key) in keys.items().enumerate() {
                if key.text().is_empty() {
                    errors.required(&driver, "");
                }
                if keys.items().take(index).any(|known| known.value() == key.value()) {
                    errors.duplicate(&driver, key.text());
                }
                for problem in names::is_qualified_name(key.text()) {
                    errors.invalid_value(&driver, key.text(), problem);
                }
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            value::remove(&mut driver, "allocatable");
            driver
        };
        let list = value::list(new, "spec.drivers");
        for before in value::list(old, "spec.drivers") {
            let same = list.iter().find(|driver| driver["name"] == before["name"]);
            if let Some(driver) = same.filter(|driver| without_count(driver) != without_count(before)) {
                let driver = without_count(driver);
                let shown = internal::compact(&driver, "storage.CSINodeDriver");
                let mut error = FieldError::invalid("spec.drivers", driver, IMMUTABLE);
                error.shown = Some(shown);
                errors.push(error);
            }
        }
        errors.into_vec()
    }
}
