//! Workloads.

pub mod columns;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names};

use crate::checks::lists::slice;
use crate::checks::{At, Errors};
use crate::scheduling::groups::{domain, label, scheduled};
use crate::strategy::{Flags, Strategy};

const MOST_TEMPLATES: usize = 8;
const MOST_DEPTH: usize = 4;

pub struct Workloads;

impl Strategy for Workloads {
    fn flags(&self) -> Flags {
        Flags { allows_unconditional_update: false, ..Flags::USUAL }
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
            let shown = if plain.is_empty() { "" } else { "{podGroupTemplates, compositePodGroupTemplates}" };
            errors.invalid_value(&spec, shown, detail);
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

pub fn unchanged(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
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
