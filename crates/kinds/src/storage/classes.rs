//! What StorageClasses and VolumeAttributesClasses have in common.

use machinery::names;

use crate::checks::{At, Errors};

pub fn provisioner(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(at) {
        let lower = at.text().to_lowercase();
        for problem in names::is_qualified_name(&lower) {
            errors.invalid_value(at, lower.as_str(), problem);
        }
    }
}

pub fn parameters(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 512;
    const MOST_BYTES: usize = 256 * 1024;
    if at.len() > MOST {
        errors.too_long(at, MOST);
    }
    let mut size = 0;
    for (key, parameter) in at.entries() {
        if key.is_empty() {
            errors.invalid_value(at, key, "field can not be empty.");
        }
        size += key.len() + parameter.text().len();
    }
    if size > MOST_BYTES {
        errors.too_long(at, MOST_BYTES);
    }
}
