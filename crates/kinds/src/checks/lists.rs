//! Lists of a bounded length, and lists that are sets.

use std::collections::HashSet;

use crate::checks::{At, Errors};

/// A list whose items are right one by one, and not too many.
pub fn slice(list: &At<'_, '_>, most: usize, errors: &mut Errors, mut item: impl FnMut(&At<'_, '_>, &mut Errors)) {
    if list.len() > most {
        return errors.too_many(list, most);
    }
    for at in list.items() {
        item(&at, errors);
    }
}

/// As [`slice()`], each item of another name.
pub fn set<'v>(
    list: &At<'_, 'v>,
    most: usize,
    key: impl Fn(&At<'_, 'v>) -> &'v str,
    errors: &mut Errors,
    item: impl FnMut(&At<'_, '_>, &mut Errors),
) {
    if list.len() > most {
        return errors.too_many(list, most);
    }
    slice(list, most, errors, item);
    let mut seen: HashSet<&str> = HashSet::new();
    for at in list.items() {
        let name = key(&at);
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.insert(name);
    }
}
