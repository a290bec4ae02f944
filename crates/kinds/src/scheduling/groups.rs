//! What PodGroups and the templates of Workloads have in common.

use machinery::names;

use crate::checks::lists::{set, slice};
use crate::checks::{At, Errors};

pub const MOST_CLAIMS: usize = 4;
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// What a group and a template of one have in common.
pub fn scheduled(spec: &At<'_, '_>, errors: &mut Errors) {
    let policy = spec.at("schedulingPolicy");
    one_member(&policy, &["basic", "gang"], errors);
    for field in ["gang.minCount", "gang.minGroupCount"] {
        let count = policy.at(field);
        if count.int().is_some_and(|count| count < 1) {
            errors.invalid_int(&count, "must be greater than or equal to 1");
        }
    }
    slice(&spec.at("schedulingConstraints.topology"), 1, errors, |constraint, errors| {
        let key = constraint.at("key");
        if errors.required_text(&key) {
            errors.label_name(&key);
        }
    });
    let claims = spec.at("resourceClaims");
    set(
        &claims,
        MOST_CLAIMS,
        |claim| claim.text_at("name"),
        errors,
        |claim, errors| {
            label(&claim.at("name"), errors);
            one_member(claim, &["resourceClaimName", "resourceClaimTemplateName"], errors);
            for field in ["resourceClaimName", "resourceClaimTemplateName"] {
                domain(&claim.at(field), false, errors);
            }
        },
    );
    let mode = spec.at("disruptionMode");
    if mode.is_set() {
        one_member(&mode, &["single", "all"], errors);
    }
    domain(&spec.at("priorityClassName"), false, errors);
    let priority = spec.at("priority");
    if priority.int().is_some_and(|priority| priority > HIGHEST_PRIORITY) {
        errors.invalid_int(&priority, format!("must be less than or equal to {HIGHEST_PRIORITY}"));
    }
    errors.one_of_if_set(&spec.at("preemptionPolicy"), &["Never", "PreemptLowerPriority"]);
}

/// Exactly one of several.
fn one_member(at: &At<'_, '_>, members: &[&str], errors: &mut Errors) {
    let set: Vec<&str> = members.iter().copied().filter(|member| at.has(member)).collect();
    if set.len() != 1 {
        let names: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
        let shown = if set.is_empty() { String::new() } else { format!("{{{}}}", set.join(", ")) };
        errors.invalid_value(at, shown, format!("must specify exactly one of: {}", names.join(", ")));
    }
}

pub fn label(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(at) {
        errors.problems(at, names::is_dns1123_label(at.text()));
    }
}

pub fn domain(at: &At<'_, '_>, required: bool, errors: &mut Errors) {
    if at.text().is_empty() {
        if required {
            errors.required(at, "");
        }
        return;
    }
    errors.problems(at, names::is_dns1123_subdomain(at.text()));
}
