//! LeaseCandidates.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::rare_names::is_semantic_version;
use crate::checks::{At, Errors};
use crate::coordination::lease::lease_strategy;
use crate::strategy::{Flags, NameRule, Strategy};

/// LeaseCandidates: who may hold a lease, and which version it would speak.
pub struct LeaseCandidates;

impl Strategy for LeaseCandidates {
    fn flags(&self) -> Flags {
        Flags { judges_finalizers: false, allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::ConfigMapKey
    }

    fn validate(&self, candidate: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(candidate);
        let spec = root.at("spec");
        errors.required_text(&spec.at("leaseName"));
        let (emulated, binary) = (spec.at("emulationVersion"), spec.at("binaryVersion"));
        let version = |at: &At<'_, '_>, errors: &mut Errors| {
            if !at.text().is_empty() && !is_semantic_version(at.text()) {
                errors.invalid_text(at, "must be a valid semantic version");
            }
        };
        version(&emulated, &mut errors);
        if errors.required_text(&binary) {
            version(&binary, &mut errors);
            if !emulated.text().is_empty() && order(binary.text()) < order(emulated.text()) {
                errors.invalid_text(&binary, "must be greater than or equal to `emulationVersion`");
            }
        }
        let strategy = spec.at("strategy");
        if errors.required_text(&strategy) {
            if strategy.text() == "OldestEmulationVersion" && order(emulated.text()) == order("") {
                let detail = "must be specified when `strategy` is 'OldestEmulationVersion'";
                errors.required(&emulated, detail);
            }
            let place = strategy.to_string();
            lease_strategy(&At::part(&place, spec.value()), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        errors.immutable(&At::root(new).at("spec.leaseName"), &At::root(old).at("spec.leaseName"));
        errors.into_vec()
    }
}

/// What versions are ordered by: their numbers, and a release after what came before it. What is none is the least.
fn order(version: &str) -> ([u64; 3], bool) {
    let version = version.split('+').next().unwrap_or_default();
    let (core, early) = version.split_once('-').map_or((version, false), |(core, _)| (core, true));
    let mut numbers = [0; 3];
    for (slot, part) in numbers.iter_mut().zip(core.split('.')) {
        *slot = part.parse().unwrap_or(0);
    }
    (numbers, !early && !core.is_empty() && numbers != [0; 3])
}
