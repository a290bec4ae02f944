//! What the controller may say about a Job.

use std::collections::HashSet;

use machinery::{time, value};

use crate::batch::job::policies::{parse_indexes, without_value};
use crate::checks::{At, Errors};

fn is_true(job: &At<'_, '_>, kind: &str) -> bool {
    let conditions = value::list(job.value(), "status.conditions");
    conditions
        .iter()
        .any(|condition| value::text(condition, "type") == kind && value::text(condition, "status") == "True")
}

/// A status that makes sense by itself.
pub fn job_status(job: &At<'_, '_>, errors: &mut Errors) {
    let status = job.at("status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(&status.at(field));
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for list in ["succeeded", "failed"] {
        let uncounted = status.at("uncountedTerminatedPods");
        for uid in uncounted.at(list).items() {
            if uid.text().is_empty() {
                errors.invalid_text(&uid, "must not be empty");
            } else if seen.contains(&uid.text()) {
                errors.duplicate(&uid, uid.text());
            } else {
                seen.insert(uid.text());
            }
        }
    }
    let (complete, failed) = (is_true(job, "Complete"), is_true(job, "Failed"));
    let (target, met) = (is_true(job, "FailureTarget"), is_true(job, "SuccessCriteriaMet"));
    let conditions = status.at("conditions");
    for (wrong, detail) in [
        (complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (complete && target, "cannot set Complete=True and FailureTarget=true conditions"),
        (failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition"),
        (complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
        (met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        (
            job.has("spec.successPolicy") && complete && !met,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ] {
        if wrong {
            errors.push(without_value(&conditions, detail));
        }
    }
    let finished = complete || failed;
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if end.is_set() && !complete {
        errors.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
    }
    if !end.is_set() && complete {
        errors.required(&end, "completionTime is required for Complete jobs");
    }
    if let (Some(began), Some(ended)) = (time::parse_clamped(start.text()), time::parse_clamped(end.text()))
        && ended < began
    {
        errors.invalid(&end, "must be equal to or after `startTime`");
    }
    let number = |field: &str| status.at(field).int().unwrap_or(0);
    if finished && number("active") > 0 {
        errors.invalid(&status.at("active"), "active>0 is invalid for finished job");
    }
    if finished && !start.is_set() {
        errors.required(&start, "startTime is required for finished job");
    }
    if finished && !seen.is_empty() {
        errors.invalid(&status.at("uncountedTerminatedPods"), "must be empty for finished job");
    }
    if finished && number("terminating") > 0 {
        errors.invalid(&status.at("terminating"), "terminating>0 is invalid for finished job");
    }
    status_indexes(job, &status, errors);
    if number("ready") > number("active") {
        errors.invalid(&status.at("ready"), "cannot set more ready pods than active");
    }
}

fn status_indexes(job: &At<'_, '_>, status: &At<'_, '_>, errors: &mut Errors) {
    let (completed, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    let per_index = job.has("spec.backoffLimitPerIndex");
    if let Some(all) = job.at("spec.completions").int() {
        let done = parse_indexes(completed.text(), all);
        if let Err(why) = &done {
            errors.invalid_text(&completed, format!("error parsing completedIndexes: {why}"));
        }
        if failed.is_set() {
            let lost = parse_indexes(failed.text(), all);
            if let Err(why) = lost.as_ref()
                && per_index
            {
                errors.invalid(&failed, format!("error parsing failedIndexes: {why}"));
            }
            if let (Ok(done), Ok(lost)) = (done, lost) {
                let overlap = done.iter().flat_map(|done| lost.iter().map(move |lost| (done, lost)));
                let first = overlap
                    .filter(|(done, lost)| done.0 <= lost.1 && lost.0 <= done.1)
                    .map(|(done, lost)| done.0.max(lost.0))
                    .next();
                if let Some(index) = first {
                    errors.invalid(&failed, format!("failedIndexes and completedIndexes overlap at index: {index}"));
                }
            }
        }
    }
    if !completed.text().is_empty() && job.at("spec.completionMode").text() != "Indexed" {
        errors.invalid(&completed, "cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.is_set() && !per_index {
        errors.invalid(&failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
}

/// A status that goes on from the one before.
pub fn status_update(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let conditions = status.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            errors.push(without_value(&conditions, &format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    for counter in ["failed", "succeeded"] {
        let (now, then) = (status.at(counter).int().unwrap_or(0), before.at(counter).int().unwrap_or(0));
        if now < then {
            errors.invalid_int(&status.at(counter), format!("cannot decrease the {counter} counter"));
        }
    }
    let (end, ended) = (status.at("completionTime"), before.at("completionTime"));
    if end.is_set() && ended.is_set() && end.value() != ended.value() {
        errors.invalid(&end, "field is immutable");
    }
    let (start, started) = (status.at("startTime"), before.at("startTime"));
    if started.is_set() && start.value() != started.value() && !new.at("spec.suspend").flag() {
        errors.invalid(&start, "field is immutable for unsuspended job once set");
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(&conditions, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(
            &conditions,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ));
    }
}
