//! ServiceCIDRs.

pub mod columns;
#[cfg(test)]
mod tests;

use machinery::Value;
use machinery::names::ip;
use machinery::status::FieldError;

use crate::checks::{At, Errors, IMMUTABLE};
use crate::keep::keep_object_meta;
use crate::strategy::{Flags, Strategy};

pub struct ServiceCidrs;

impl Strategy for ServiceCidrs {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, ..Flags::USUAL }
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        service_ranges(&At::root(object).at("spec"), &mut errors);
        errors.into_vec()
    }

    /// A range stays, and one of the other family may come.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (after, before) = (fresh.at("spec.cidrs"), stale.at("spec.cidrs"));
        let grows = before.len() == 1 && after.len() == 2;
        if after.len() != before.len() && !grows {
            errors.invalid(&after, IMMUTABLE);
            return errors.into_vec();
        }
        for (range, known) in after.items().zip(before.items()) {
            if range.value() != known.value() {
                errors.invalid(&range, IMMUTABLE);
            }
        }
        if grows {
            service_ranges(&fresh.at("spec"), &mut errors);
        }
        errors.into_vec()
    }
}

fn service_ranges(spec: &At<'_, '_>, errors: &mut Errors) {
    let ranges = spec.at("cidrs");
    if ranges.is_empty() {
        return errors.required(&ranges, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        return errors.invalid_value(&ranges, spec.value().clone(), "may only hold up to 2 values");
    }
    for range in ranges.items() {
        errors.extend(ip::is_valid_cidr(&range.to_string(), range.text()));
    }
    let families: Vec<bool> = ranges
        .items()
        .filter_map(|range| ip::parse_cidr_sloppy(range.text()))
        .map(|(address, _)| address.is_ipv4())
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        errors.invalid(
            &ranges,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}
