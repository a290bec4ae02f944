//! ConfigMaps.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::{At, Errors};
use crate::core::data::{MOST, bytes, check_key, stays_fixed};
use crate::strategy::Strategy;

pub struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let (data, binary) = (root.at("data"), root.at("binaryData"));
        let mut size = 0;
        for (key, entry) in data.entries() {
            check_key(key, &entry, &mut errors);
            if binary.key(key).is_set() {
                errors.invalid_value(&entry, key, "duplicate of key present in binaryData");
            }
            size += entry.text().len();
        }
        for (key, entry) in binary.entries() {
            check_key(key, &entry, &mut errors);
            size += bytes(entry.text());
        }
        if size > MOST {
            errors.push(FieldError::too_long("", MOST));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = stays_fixed(new, old, &["data", "binaryData"]);
        errors.extend(self.validate(new));
        errors
    }
}
