//! CSIDrivers.

pub mod columns;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy, desired_state};

pub struct CsiDrivers;

impl Strategy for CsiDrivers {
    fn flags(&self) -> Flags {
        Flags { allows_unconditional_update: false, ..Flags::USUAL }
    }

    /// Counted from the first change on, though not begun with 1.
    fn desired_state_changed(&self, new: &Value, old: &Value) -> bool {
        desired_state(new).ne(desired_state(old))
    }

    fn default(&self, driver: &mut Value) {
        for (field, filling) in [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("storageCapacity", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
            ("preventPodSchedulingIfMissing", json!(false)),
        ] {
            value::set_default(driver, &format!("spec.{field}"), filling);
        }
        if value::list(driver, "spec.volumeLifecycleModes").is_empty() {
            value::set(driver, "spec.volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let asked = |driver: &Value| value::list(driver, "spec.tokenRequests").to_vec();
        let changed = old.is_none_or(|old| asked(old) != asked(new));
        let open = !asked(new).is_empty() && value::at(new, "spec.serviceAccountTokenInSecrets").is_none();
        let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
        if changed && open { vec![warning.to_owned()] } else { Vec::new() }
    }

    fn validate(&self, driver: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(driver);
        let spec = root.at("spec");
        errors.one_of_if_set(&spec.at("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
        let requests = spec.at("tokenRequests");
        let mut seen: HashSet<&str> = HashSet::new();
        for request in requests.items() {
            let audience = request.at("audience");
            if seen.contains(&audience.text()) {
                errors.duplicate(&audience, audience.text());
            } else {
                seen.insert(audience.text());
            }
            let expiration = request.at("expirationSeconds");
            if expiration.int().is_some_and(|seconds| seconds < 600) {
                errors.invalid(&expiration, "may not specify a duration less than 10 minutes");
            }
            if expiration.int().is_some_and(|seconds| seconds > 1 << 32) {
                errors.invalid(&expiration, "may not specify a duration larger than 2^32 seconds");
            }
        }
        let modes = spec.at("volumeLifecycleModes");
        for mode in modes.items() {
            if !matches!(mode.text(), "Ephemeral" | "Persistent") {
                errors.push(FieldError::not_supported(modes.to_string(), mode.text(), ["Persistent", "Ephemeral"]));
            }
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.int().is_some_and(|seconds| seconds < 10) {
            errors.invalid(&period, "must be greater than or equal to 10 seconds");
        }
        let secrets = spec.at("serviceAccountTokenInSecrets");
        if secrets.is_set() && requests.is_empty() {
            errors.invalid(&secrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        let (spec, before) = (new.at("spec"), old.at("spec"));
        errors.immutable(&spec.named("attachedRequired", "attachRequired"), &before.at("attachRequired"));
        errors.immutable(&spec.at("volumeLifecycleModes"), &before.at("volumeLifecycleModes"));
        errors.into_vec()
    }
}
