//! What several kinds say about devices: selectors, taints, configuration, names.

use std::collections::HashSet;

use machinery::names;

use crate::checks::lists::slice;
use crate::checks::{At, Errors, expressions};

pub const MOST_CONFIGURATIONS: usize = 32;
const MOST_SELECTORS: usize = 32;
const MOST_EXPRESSION: usize = 10 * 1024;
const MOST_PARAMETERS: usize = 10 * 1024;
const MOST_BINDING_CONDITIONS: usize = 4;
const MOST_ID: usize = 32;
pub const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

pub fn selectors(list: &At<'_, '_>, stored: bool, errors: &mut Errors) {
    slice(list, MOST_SELECTORS, errors, |selector, errors| {
        let cel = selector.at("cel");
        if !cel.is_set() {
            return errors.required(&cel, "");
        }
        let expression = cel.at("expression");
        if stored {
            return;
        }
        if expression.text().len() > MOST_EXPRESSION {
            errors.too_long(&expression, MOST_EXPRESSION);
        } else {
            expressions::device(&expression, errors);
        }
    });
}

/// What keeps claims away from a device.
pub fn device_taint(at: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let value = at.at("value");
    errors.label_name(&at.at("key"));
    if !value.text().is_empty() {
        errors.problems(&value, names::is_label_value(value.text()));
    }
    if old.is_none_or(|old| old.text_at("effect") != at.text_at("effect")) {
        errors.required_one_of(&at.at("effect"), &EFFECTS);
    }
}

pub fn configuration(at: &At<'_, '_>, stored: bool, errors: &mut Errors) {
    let opaque = at.at("opaque");
    if !opaque.is_set() {
        return errors.required(&opaque, "");
    }
    raw_object(&opaque.at("parameters"), if stored { usize::MAX } else { MOST_PARAMETERS }, errors);
    driver_name(&opaque.at("driver"), errors);
}

/// The name of a driver of devices or of volumes, in letters of either case.
fn driver_name(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    if at.text().len() > 63 {
        errors.too_long(at, 63);
    }
    errors.problems(at, names::is_dns1123_subdomain_caseless(at.text()));
}

/// Parameters that only a driver understands; that they are an object is known all the same.
pub fn raw_object(at: &At<'_, '_>, most: usize, errors: &mut Errors) {
    if !at.is_set() {
        errors.required(at, "");
    } else if at.value().to_string().len() > most {
        errors.too_long(at, most);
    } else if !at.value().is_object() {
        errors.invalid_value(at, "<value omitted>", "must be a valid JSON object");
    }
}

/// The name of a pool of devices: parts of a path, each a domain.
pub fn pool_name(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 253;
    if !errors.required_text(at) {
        return;
    }
    if at.text().len() > MOST {
        errors.too_long(at, MOST);
    }
    for part in at.text().split('/') {
        for problem in names::is_dns1123_subdomain(part) {
            errors.invalid_value(at, part, problem);
        }
    }
}

/// What must come true, and what must not, before a pod is bound to a device's node.
pub fn binding_conditions(at: &At<'_, '_>, errors: &mut Errors) {
    let (wanted, failures) = (at.at("bindingConditions"), at.at("bindingFailureConditions"));
    for list in [&wanted, &failures] {
        slice(list, MOST_BINDING_CONDITIONS, errors, |name, errors| errors.label_name(name));
    }
    for list in [&wanted, &failures] {
        let mut seen: HashSet<&str> = HashSet::new();
        for name in list.items() {
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
        }
    }
    for name in failures.items().filter(|name| wanted.items().any(|other| other.text() == name.text())) {
        errors.invalid_text(&name, "bindingFailureConditions must not overlap with bindingConditions");
    }
    if wanted.is_empty() && !failures.is_empty() {
        errors.invalid(&wanted, "bindingConditions are required to use bindingFailureConditions");
    }
    if failures.is_empty() && !wanted.is_empty() {
        errors.invalid(&failures, "bindingFailureConditions are required to use bindingConditions");
    }
}

/// The name of an attribute or a capacity: an identifier, of some domain or of the driver's own.
pub fn qualified(at: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let identifier = |id: &str, errors: &mut Errors| {
        if id.len() > MOST_ID {
            errors.too_long(at, MOST_ID);
        }
        for problem in names::is_c_identifier(id) {
            errors.invalid_value(at, id, problem);
        }
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(id, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid_value(at, "", "the domain must not be empty");
            } else {
                if domain.len() > 63 {
                    errors.too_long(at, 63);
                }
                for problem in names::is_dns1123_subdomain(&domain.to_lowercase()) {
                    errors.invalid_value(at, domain, problem);
                }
            }
            if id.is_empty() {
                errors.invalid_value(at, "", "the name must not be empty");
            } else {
                identifier(id, errors);
            }
        }
        _ => {}
    }
}

pub fn fully_qualified(at: &At<'_, '_>, errors: &mut Errors) {
    qualified(at, at.text(), errors);
    if !at.text().contains('/') {
        errors.invalid_text(at, "a fully qualified name must be a domain and a name separated by a slash");
    }
}
