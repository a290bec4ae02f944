//! The spec of a Job, wherever one is written.

use machinery::{Value, value};

use crate::batch::job::policies::{failure_policy, success_policy};
use crate::checks::rare_names::domain_prefixed_path;
use crate::checks::{At, Errors};
use crate::core::pod::spec as pod_spec;

const MOST_PARALLEL: i64 = 100_000;

/// Above so many completions, an indexed job with a limit per index has tighter bounds.
pub const MANY_COMPLETIONS: i64 = 100_000;
pub const MOST_PARALLEL_OF_MANY: i64 = 10_000;
const MOST_FAILED_OF_MANY: i64 = 10_000;

/// A condition that is waited for is waited for to be true.
pub fn default_patterns(object: &mut Value, spec: &str) {
    for rule in value::list_mut(object, &format!("{spec}.podFailurePolicy.rules")) {
        for pattern in value::list_mut(rule, "onPodConditions") {
            value::set_default(pattern, "status", "True");
        }
    }
}

/// What jobs and the templates of jobs must have right.
pub fn job_spec(spec: &At<'_, '_>, errors: &mut Errors) {
    let number = |field: &str| spec.at(field).int();
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(&spec.at(field));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(&spec.at("managedBy"), errors);
    let mode = spec.at("completionMode");
    errors.one_of_if_set(&mode, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    } else if !mode.is_set() || mode.text() == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if number(field).is_some() {
                errors.invalid(&spec.at(field), "requires indexed completion mode");
            }
        }
    }
    let failure = spec.at("podFailurePolicy");
    if failure.is_set() {
        failure_policy(spec, &failure, errors);
    }
    let success = spec.at("successPolicy");
    if success.is_set() {
        if mode.text() == "Indexed" {
            success_policy(spec, &success, errors);
        } else {
            errors.invalid(&success, "requires indexed completion mode");
        }
    }
    let supported: &[&str] = if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    errors.one_of_if_set(&spec.at("podReplacementPolicy"), supported);
    let template = spec.at("template");
    pod_spec::validate_template(&template, errors);
    let policy = template.at("spec.restartPolicy");
    match policy.text() {
        "Always" | "" => errors.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if failure.is_set() => {
            errors.invalid(&policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(&policy, &["OnFailure", "Never"]),
    }
}

/// Who takes care of the job, if it is not the job controller: a domain and a path.
fn managed_by(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 63;
    if !at.is_set() {
        return;
    }
    domain_prefixed_path(at, errors);
    if at.text().len() > MOST {
        errors.too_long(at, MOST);
    }
}

fn indexed(spec: &At<'_, '_>, errors: &mut Errors) {
    let (completions, parallelism, failed) =
        (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    if !completions.is_set() {
        errors.required(&completions, "when completion mode is Indexed");
    }
    if parallelism.int().is_some_and(|number| number > MOST_PARALLEL) {
        errors.invalid(
            &parallelism,
            format!("must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"),
        );
    }
    if let (Some(all), Some(most)) = (completions.int(), failed.int())
        && most > all
    {
        errors.invalid(&failed, "must be less than or equal to completions");
    }
    if failed.int().is_some_and(|most| most > MOST_PARALLEL) {
        errors.invalid(&failed, format!("must be less than or equal to {MOST_PARALLEL}"));
    }
    if completions.int().is_some_and(|number| number > MANY_COMPLETIONS) && spec.has("backoffLimitPerIndex") {
        let rest = format!("when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        if !failed.is_set() {
            errors.required(&failed, format!("must be specified when completions is above {MANY_COMPLETIONS}"));
        }
        if parallelism.int().is_some_and(|number| number > MOST_PARALLEL_OF_MANY) {
            errors.invalid(&parallelism, format!("must be less than or equal to {MOST_PARALLEL_OF_MANY} {rest}"));
        }
        if failed.int().is_some_and(|number| number > MOST_FAILED_OF_MANY) {
            errors.invalid(&failed, format!("must be less than or equal to {MOST_FAILED_OF_MANY} {rest}"));
        }
    }
}
