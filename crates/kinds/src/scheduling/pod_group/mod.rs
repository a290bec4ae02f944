//! PodGroups.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::conditions::conditions;
use crate::checks::lists::set;
use crate::checks::{At, Errors};
use crate::scheduling::groups::{MOST_CLAIMS, domain, label, scheduled};
use crate::scheduling::workload::unchanged;
use crate::strategy::{Flags, Strategy};

pub struct PodGroups;

impl Strategy for PodGroups {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn validate(&self, group: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(group);
        let spec = root.at("spec");
        let workload = spec.at("workloadRef");
        if spec.has("parentCompositePodGroupName") && !workload.is_set() {
            errors.required(&workload, "must be set when parentCompositePodGroupName is set");
        }
        if workload.is_set() {
            domain(&workload.at("workloadName"), true, &mut errors);
            label(&workload.at("templateName"), &mut errors);
        }
        scheduled(&spec, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        let (spec, before) = (new.at("spec"), old.at("spec"));
        for field in ["parentCompositePodGroupName", "workloadRef"] {
            errors.immutable(&spec.at(field), &before.at(field));
        }
        unchanged(&spec, &before, &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        conditions(&status.at("conditions"), &mut errors);
        let claims = root.at("spec.resourceClaims");
        let statuses = status.at("resourceClaimStatuses");
        set(
            &statuses,
            MOST_CLAIMS,
            |claim| claim.text_at("name"),
            &mut errors,
            |claim, errors| {
                let name = claim.at("name");
                if !claims.items().any(|claim| claim.text_at("name") == name.text()) {
                    errors.invalid_text(&name, "must match the name of an entry in `spec.resourceClaims`");
                }
            },
        );
        errors.into_vec()
    }
}
