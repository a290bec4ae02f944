//! What upstream says about kinds of this group.

use machinery::status::FieldError;
use serde_json::json;

use crate::coordination::lease_candidate::LeaseCandidates;
use crate::storagemigration::storage_version_migration::Migrations;
use crate::strategy::Strategy;

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
