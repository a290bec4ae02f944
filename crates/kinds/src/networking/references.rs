//! References to objects of other groups.

use machinery::names;

use crate::checks::{At, Errors};

pub fn group(at: &At<'_, '_>, errors: &mut Errors) {
    if at.is_set() {
        errors.problems(at, names::is_dns1123_subdomain(at.text()));
    }
}
