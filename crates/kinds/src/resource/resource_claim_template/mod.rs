//! ResourceClaimTemplates.

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::{At, Errors, immutable_spec};
use crate::core::pod::volumes::template_metadata;
use crate::resource::resource_claim::{claim_spec, drop_disabled, fill_requests};
use crate::strategy::Strategy;

pub struct ClaimTemplates;

impl Strategy for ClaimTemplates {
    fn default(&self, template: &mut Value) {
        fill_requests(template, "spec.spec");
    }

    fn validate(&self, template: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(template);
        template_metadata(&root.at("spec.metadata"), &mut errors);
        claim_spec(&root.at("spec.spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        // What is stored may be what an earlier version took for right.
        let mut errors = if new.get("spec") == old.get("spec") { Vec::new() } else { self.validate(new) };
        errors.extend(immutable_spec(new, old));
        errors
    }

    fn prepare_for_create(&self, new: &mut Value) {
        drop_disabled(new, "spec.spec");
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_disabled(new, "spec.spec");
    }
}
