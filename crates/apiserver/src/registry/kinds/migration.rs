//! StorageVersionMigrations and LeaseCandidates: how a cluster changes its own versions.

use machinery::status::FieldError;
use machinery::{Value, names};

use super::super::strategy::{NameRule, Strategy};
use super::common::{At, Errors};
use super::policy::{conditions, lease_strategy};
use super::slices::is_semantic_version;

/// StorageVersionMigrations.
pub struct Migrations;

impl Strategy for Migrations {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, migration: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(migration);
        let (resource, group) = (root.at("spec.resource.resource"), root.at("spec.resource.group"));
        let joined = |at: &At<'_, '_>, problems: Vec<String>, errors: &mut Errors| {
            if !problems.is_empty() {
                errors.invalid_text(at, problems.join(","));
            }
        };
        if resource.text().is_empty() {
            errors.required(&resource, "resource is required to be set");
        } else {
            joined(&resource, names::is_dns1035_label(resource.text()), &mut errors);
        }
        if !group.text().is_empty() {
            joined(&group, names::is_dns1123_subdomain(group.text()), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        errors.immutable(&At::root(new).at("spec"), &At::root(old).at("spec"));
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (status, before) = (fresh.at("status"), stale.at("status"));
        let version = status.at("resourceVersion");
        let number = version.text();
        let legal = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        if !number.is_empty() && !legal {
            errors.invalid_text(&version, format!("resource version is not well formed: {number}"));
        }
        let list = status.at("conditions");
        conditions(&list, &mut errors);
        if !before.text_at("resourceVersion").is_empty() {
            errors.immutable(&version, &before.at("resourceVersion"));
        }
        let holds = |status: &At<'_, '_>, kind: &str| {
            let conditions = status.at("conditions");
            conditions.items().any(|one| one.text_at("type") == kind && one.text_at("status") == "True")
        };
        if holds(&status, "Succeeded") && holds(&status, "Failed") {
            errors.invalid(&list, "Both success and failed conditions cannot be true at the same time");
        }
        for (kind, name) in [("Succeeded", "Success"), ("Failed", "Failed")] {
            if holds(&before, kind) && !holds(&status, kind) {
                errors.invalid(&list, format!("{name} condition cannot be set to false once it is true"));
            }
        }
        errors.into_vec()
    }
}

/// LeaseCandidates: who may hold a lease, and which version it would speak.
pub struct LeaseCandidates;

impl Strategy for LeaseCandidates {
    fn name_rule(&self) -> NameRule {
        NameRule::ConfigMapKey
    }

    fn allows_unconditional_update(&self) -> bool {
        false
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn migrations_name_a_resource_and_end_once() {
        assert_eq!(
            shown(Migrations.validate(&json!({"spec": {"resource": {}}}))),
            ["spec.resource.resource: Required value: resource is required to be set"]
        );
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let done = json!({"status": {"resourceVersion": "5", "conditions": [condition("Succeeded", "True")]}});
        let undone = json!({"status": {"resourceVersion": "6", "conditions": [condition("Succeeded", "False")]}});
        let errors = shown(Migrations.validate_status_update(&undone, &done));
        assert_eq!(errors[0], "status.resourceVersion: Invalid value: \"6\": field is immutable");
        assert!(errors[1].ends_with("Success condition cannot be set to false once it is true"), "{}", errors[1]);
    }

    #[test]
    fn candidates_say_which_version_they_speak() {
        let candidate = |binary: &str, emulated: &str| json!({"spec": {"leaseName": "l", "binaryVersion": binary, "emulationVersion": emulated, "strategy": "OldestEmulationVersion"}});
        assert!(LeaseCandidates.validate(&candidate("1.37.0", "1.36.0")).is_empty());
        assert_eq!(
            shown(LeaseCandidates.validate(&candidate("1.35.0", "1.36.0"))),
            ["spec.binaryVersion: Invalid value: \"1.35.0\": must be greater than or equal to `emulationVersion`"]
        );
        assert_eq!(
            shown(LeaseCandidates.validate(&candidate("1.35", ""))),
            [
                "spec.binaryVersion: Invalid value: \"1.35\": must be a valid semantic version",
                "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
            ]
        );
    }
}
