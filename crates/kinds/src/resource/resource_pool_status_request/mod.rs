//! ResourcePoolStatusRequests.

pub mod columns;

use machinery::Value;
use machinery::status::FieldError;

use crate::checks::conditions::conditions;
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

/// Requests for the state of a pool, whose answer is final.
pub struct PoolStatusRequests;

impl Strategy for PoolStatusRequests {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (root, before) = (At::root(new), At::root(old));
        let status = root.at("status");
        if before.has("status") {
            errors.immutable(&status, &before.at("status"));
        } else if status.is_set() {
            conditions(&status.at("conditions"), &mut errors);
        }
        errors.into_vec()
    }
}
