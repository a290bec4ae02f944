//! What ConfigMaps and Secrets have in common: keys with data, which may be fixed.

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};

/// The most that all values together may hold.
pub const MOST: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

pub fn check_key(key: &str, entry: &At<'_, '_>, errors: &mut Errors) {
    for problem in names::is_config_map_key(key) {
        errors.invalid_value(entry, key, problem);
    }
}

/// How many bytes a value holds.
pub fn bytes(encoded: &str) -> usize {
    encoded.len() / 4 * 3 - encoded.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

/// An object that says it is immutable stays so, and as it is.
pub fn stays_fixed(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if value::flag(old, "immutable") {
        if !value::flag(new, "immutable") {
            errors.push(FieldError::forbidden("immutable", FIXED));
        }
        let changed = fields.iter().filter(|field| new.get(**field) != old.get(**field));
        errors.extend(changed.map(|field| FieldError::forbidden(*field, FIXED)));
    }
    errors
}
