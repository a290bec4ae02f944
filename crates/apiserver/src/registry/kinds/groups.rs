//! PodGroups and Workloads: pods that are scheduled together, and the templates they are made from.

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names};

use super::super::strategy::Strategy;
use super::common::{At, Errors};
use super::devices::{set, slice};
use super::policy::conditions;

const MOST_TEMPLATES: usize = 8;
const MOST_CLAIMS: usize = 4;
const MOST_DEPTH: usize = 4;
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// PodGroups.
pub struct PodGroups;

impl Strategy for PodGroups {
    fn allows_unconditional_update(&self) -> bool {
        false
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

/// Workloads.
pub struct Workloads;

impl Strategy for Workloads {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, workload: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(workload);
        let spec = root.at("spec");
        let controller = spec.at("controllerRef");
        if controller.is_set() {
            domain(&controller.at("apiGroup"), false, &mut errors);
            for field in ["kind", "name"] {
                let part = controller.at(field);
                if errors.required_text(&part) {
                    errors.problems(&part, names::is_path_segment_name(part.text()));
                }
            }
        }
        let (plain, composite) = (spec.at("podGroupTemplates"), spec.at("compositePodGroupTemplates"));
        if plain.is_empty() == composite.is_empty() {
            let detail = "must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`";
            let said = if plain.is_empty() { "" } else { "{podGroupTemplates, compositePodGroupTemplates}" };
            errors.invalid_value(&spec, said, detail);
        }
        templates(&spec, &mut errors);
        let mut known = plain.items().map(|template| template.text_at("name").to_owned()).collect();
        unique_names(&spec, &mut known, &mut errors);
        for template in composite.items() {
            if depth(&template) > MOST_DEPTH - 1 {
                let inner = template.at("compositePodGroupTemplates").value().clone();
                errors.invalid_value(&template, inner, format!("maximum template hierarchy depth is {MOST_DEPTH}"));
            }
        }
        let mut first = None;
        if !plain.items().all(|template| same_priority(&template, &mut first)) {
            errors.invalid_value(&spec, Value::Null, "detected multiple priority configurations");
        } else if !composite.items().all(|template| same_priority(&template, &mut first)) {
            let detail = "all priority and priorityClassName values must be identical, detected multiple values";
            errors.invalid_value(&spec, Value::Null, detail);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        errors.immutable(&spec.at("controllerRef"), &before.at("controllerRef"));
        let (now, then) = (spec.at("podGroupTemplates"), before.at("podGroupTemplates"));
        for template in now.items() {
            match then.items().position(|old| old.text_at("name") == template.text_at("name")) {
                Some(index) => unchanged(&template, &then.index(index), &mut errors),
                None => errors.forbidden(&template, "item may not be added after creation"),
            }
        }
        for (index, template) in then.items().enumerate() {
            if !now.items().any(|new| new.text_at("name") == template.text_at("name")) {
                errors.forbidden(&now.index(index), "item may not be removed after creation");
            }
        }
        errors.extend(self.validate(new));
        errors.into_vec()
    }
}

/// The templates at one level, and below.
fn templates(at: &At<'_, '_>, errors: &mut Errors) {
    let name = |template: &At<'_, '_>| -> String { template.text_at("name").to_owned() };
    for (field, composite) in [("podGroupTemplates", false), ("compositePodGroupTemplates", true)] {
        let list = at.at(field);
        let mut seen: HashSet<String> = HashSet::new();
        slice(&list, MOST_TEMPLATES, errors, |template, errors| {
            label(&template.at("name"), errors);
            if seen.contains(&name(template)) {
                errors.duplicate(template, name(template));
            }
            seen.insert(name(template));
            scheduled(template, errors);
            if composite {
                let children = ["podGroupTemplates", "compositePodGroupTemplates"];
                if children.iter().all(|children| template.at(children).is_empty()) {
                    let detail = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate";
                    errors.invalid_value(template, name(template), detail);
                }
                templates(template, errors);
            }
        });
    }
}

/// What a group and a template of one have in common.
fn scheduled(spec: &At<'_, '_>, errors: &mut Errors) {
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

fn unchanged(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    for field in [
        "schedulingPolicy.basic",
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    ] {
        errors.immutable(&new.at(field), &old.at(field));
    }
    let (gang, before) = (new.at("schedulingPolicy.gang"), old.at("schedulingPolicy.gang"));
    match (gang.is_set(), before.is_set()) {
        (true, false) => errors.invalid(&gang, "field cannot be set once created"),
        (false, true) => errors.invalid(&gang, "field cannot be cleared once set"),
        _ => {}
    }
}

/// Exactly one of several.
fn one_member(at: &At<'_, '_>, members: &[&str], errors: &mut Errors) {
    let said: Vec<&str> = members.iter().copied().filter(|member| at.has(member)).collect();
    if said.len() != 1 {
        let names: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
        let shown = if said.is_empty() { String::new() } else { format!("{{{}}}", said.join(", ")) };
        errors.invalid_value(at, shown, format!("must specify exactly one of: {}", names.join(", ")));
    }
}

fn label(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(at) {
        errors.problems(at, names::is_dns1123_label(at.text()));
    }
}

fn domain(at: &At<'_, '_>, required: bool, errors: &mut Errors) {
    if at.text().is_empty() {
        if required {
            errors.required(at, "");
        }
        return;
    }
    errors.problems(at, names::is_dns1123_subdomain(at.text()));
}

/// A name is taken once in the whole tree; doubles within one list are said elsewhere.
fn unique_names(at: &At<'_, '_>, known: &mut Vec<String>, errors: &mut Errors) {
    let composite = at.at("compositePodGroupTemplates");
    take_names(&composite, known, errors);
    for template in composite.items() {
        take_names(&template.at("podGroupTemplates"), known, errors);
        unique_names(&template, known, errors);
    }
}

fn take_names(list: &At<'_, '_>, known: &mut Vec<String>, errors: &mut Errors) {
    let names: Vec<String> = list.items().map(|template| template.text_at("name").to_owned()).collect();
    for (index, name) in names.iter().enumerate().filter(|(_, name)| known.contains(name)) {
        errors.duplicate(&list.index(index).at("name"), name.as_str());
    }
    known.extend(names);
}

/// How many levels of composite templates there are from here on.
fn depth(template: &At<'_, '_>) -> usize {
    1 + template.at("compositePodGroupTemplates").items().map(|inner| depth(&inner)).max().unwrap_or(0)
}

/// Whether a template and all below it have the priority of the first.
fn same_priority(template: &At<'_, '_>, first: &mut Option<(String, Option<i64>)>) -> bool {
    let own = (template.text_at("priorityClassName").to_owned(), template.at("priority").int());
    let same = *first.get_or_insert_with(|| own.clone()) == own;
    let children = ["compositePodGroupTemplates", "podGroupTemplates"];
    same && children.iter().all(|list| template.at(list).items().all(|inner| same_priority(&inner, first)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(found: Vec<FieldError>, expected: &[&str]) {
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_group_has_one_policy_that_stays() {
        let group = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 5}});
        check(PodGroups.validate(&group), &[]);
        let both = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 0}, "basic": {}}}});
        check(
            PodGroups.validate(&both),
            &[
                "spec.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
                "spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1",
            ],
        );
        let mut new = group.clone();
        new["spec"]["priority"] = json!(6);
        check(PodGroups.validate_update(&new, &group), &["spec.priority: Invalid value: 6: field is immutable"]);
    }

    #[test]
    fn templates_of_a_workload_are_one_family() {
        let template =
            |name: &str, priority: i64| json!({"name": name, "schedulingPolicy": {"basic": {}}, "priority": priority});
        let workload = |templates: Value| json!({"spec": {"podGroupTemplates": templates}});
        check(Workloads.validate(&workload(json!([template("a", 1), template("b", 1)]))), &[]);
        check(
            Workloads.validate(&workload(json!([template("a", 1), template("a", 2)]))),
            &[
                "spec.podGroupTemplates[1]: Duplicate value: \"a\"",
                "spec: Invalid value: null: detected multiple priority configurations",
            ],
        );
        let one = workload(json!([template("a", 1)]));
        check(
            Workloads.validate_update(&workload(json!([template("b", 1)])), &one),
            &[
                "spec.podGroupTemplates[0]: Forbidden: item may not be added after creation",
                "spec.podGroupTemplates[0]: Forbidden: item may not be removed after creation",
            ],
        );
    }
}
