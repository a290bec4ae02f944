//! StorageVersionMigrations.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names};

use crate::checks::conditions::conditions;
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct Migrations;

impl Strategy for Migrations {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
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
