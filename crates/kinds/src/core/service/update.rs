//! What of a Service may not change.

use crate::checks::{At, Errors};
use crate::core::service::validation::is_headless;

pub const ONCE: &str = "may not change once set";

pub fn addresses_stay(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let (after, before) = (new.at("spec.clusterIPs"), old.at("spec.clusterIPs"));
    if after.len() == before.len() {
        for (address, known) in after.items().zip(before.items()) {
            if address.text() != known.text() {
                errors.invalid_value(&address, after.value().clone(), ONCE);
            }
        }
        return;
    }
    if after.is_empty() {
        return errors.invalid_value(&after.index(0), after.value().clone(), "primary clusterIP can not be unset");
    }
    if !before.is_empty() && after.index(0).text() != before.index(0).text() {
        errors.invalid_value(&after.index(0), after.value().clone(), ONCE);
    }
    let policy = new.at("spec.ipFamilyPolicy");
    if after.len() < before.len() && policy.text() != "SingleStack" {
        errors.invalid(&policy, "must be set to 'SingleStack' when releasing the secondary clusterIP");
    }
}

pub fn families_stay(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let (after, before) = (new.at("spec.ipFamilies"), old.at("spec.ipFamilies"));
    let first = after.index(0);
    if after.len() < before.len() && new.at("spec.clusterIPs").is_empty() {
        errors.invalid_value(&first, after.value().clone(), "primary ipFamily can not be unset");
    }
    if after.len() == before.len() {
        for _ in after.items().zip(before.items()).filter(|(family, known)| family.text() != known.text()) {
            errors.invalid_value(&first, after.value().clone(), ONCE);
        }
        return;
    }
    if !after.is_empty() && !before.is_empty() && first.text() != before.index(0).text() {
        errors.invalid_value(&first, new.at("spec.clusterIPs").value().clone(), ONCE);
    }
    let policy = new.at("spec.ipFamilyPolicy");
    if after.len() == 1 && before.len() > 1 && policy.text() != "SingleStack" {
        errors.invalid(&policy, "must be set to 'SingleStack' when releasing the secondary ipFamily");
    }
}
