//! Conditions in a status.

use machinery::objectmeta;

use crate::checks::{At, Errors};

/// `metav1.Condition`s, each type once.
pub fn conditions(list: &At<'_, '_>, errors: &mut Errors) {
    let mut found = Vec::new();
    let conditions = list.value().as_array().map_or(&[][..], Vec::as_slice);
    objectmeta::validate_conditions(conditions, &list.to_string(), &mut found);
    errors.extend(found);
}
