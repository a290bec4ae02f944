//! Jobs.
//!
//! `spec` and `policies` check what is written, `status` what the controller says.

pub mod columns;
pub mod policies;
pub mod spec;
pub mod status;
#[cfg(test)]
mod tests;

use machinery::object::Field;
use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::batch::job::spec::{MANY_COMPLETIONS, MOST_PARALLEL_OF_MANY, default_patterns, job_spec};
use crate::batch::job::status::{job_status, status_update};
use crate::batch::name_warning;
use crate::checks::workloads::template_warnings;
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::defaults;
use crate::strategy::{Flags, Strategy};

/// The labels that tie pods to their job: the new ones and the ones from before.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const TEMPLATE_LABELS: &str = "spec.template.metadata.labels";

/// A job without labels has those of its pods. Whether it was given some.
fn label_as_template(job: &mut Value) -> bool {
    let unlabelled =
        value::at(job, "metadata.labels").and_then(Value::as_object).is_none_or(|labels| labels.is_empty());
    let labels =
        value::at(job, TEMPLATE_LABELS).and_then(Value::as_object).filter(|labels| unlabelled && !labels.is_empty());
    let Some(labels) = labels.cloned() else { return false };
    value::set(job, "metadata.labels", Value::Object(labels));
    true
}

pub struct Jobs;

impl Strategy for Jobs {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::count_found_at("status.successful", &["status.succeeded"])] }
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, orphans_by_default: true, ..Flags::USUAL }
    }

    fn default(&self, job: &mut Value) {
        defaults::default(job, "spec.template.spec");
        if value::at(job, "spec.completions").is_none() && value::at(job, "spec.parallelism").is_none() {
            value::set(job, "spec.completions", 1);
        }
        value::set_default(job, "spec.parallelism", 1);
        let per_index = value::at(job, "spec.backoffLimitPerIndex").is_some();
        value::set_default(job, "spec.backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
        // A job that is not there yet is given them as its pods will have them.
        if value::at(job, "metadata.uid").is_some() {
            label_as_template(job);
        }
        value::set_default(job, "spec.completionMode", "NonIndexed");
        value::set_default(job, "spec.suspend", false);
        let fails = value::at(job, "spec.podFailurePolicy").is_some();
        value::set_default(job, "spec.podReplacementPolicy", if fails { "Failed" } else { "TerminatingOrFailed" });
        value::set_default(job, "spec.manualSelector", false);
        default_patterns(job, "spec");
    }

    fn take_labels(&self, job: &mut Value) -> bool {
        label_as_template(job)
    }

    fn return_labels(&self, job: &mut Value) {
        if value::at(job, "metadata.labels") == value::at(job, TEMPLATE_LABELS) {
            value::remove(job, "metadata.labels");
        }
    }

    /// A job chooses its pods by its own uid, unless the user insists on another way.
    fn prepare_for_create(&self, job: &mut Value) {
        pod::drop_disabled(value::at_mut(job, "spec.template.spec"));
        value::remove(job, "spec.scheduling");
        value::set(job, "status", json!({}));
        if value::flag(job, "spec.manualSelector") {
            label_as_template(job);
            return;
        }
        let uid = value::text(job, "metadata.uid").to_owned();
        let name = value::text(job, "metadata.name").to_owned();
        let template = value::object_mut(job, "spec").entry("template").or_insert(Value::Null);
        let metadata = value::object_mut(template, "metadata");
        let labels = value::as_object_mut(metadata.entry("labels").or_insert(Value::Null));
        for label in UID_LABELS {
            labels.insert(label.to_owned(), json!(uid));
        }
        for label in NAME_LABELS {
            labels.insert(label.to_owned(), json!(name));
        }
        if let Some(spec) = value::at_mut(job, "spec").and_then(Value::as_object_mut) {
            let selector = spec.entry("selector").or_insert_with(|| json!({}));
            value::object_mut(selector, "matchLabels").insert(UID_LABELS[0].to_owned(), json!(uid));
        }
        // Upstream fills in defaults whenever it reads an object, so this one has the new labels from the beginning.
        label_as_template(job);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, "spec.template.spec"));
        value::remove(new, "spec.scheduling");
        label_as_template(new);
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(job);
        generated_selector(&root, &mut errors);
        job_spec(&root.at("spec"), &mut errors);
        chosen_pods(&root.at("spec"), &mut errors);
        host_names(&root, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        job_spec(&spec, &mut errors);
        chosen_pods(&spec, &mut errors);
        completions(&spec, &before, &mut errors);
        errors.immutable(&spec.at("selector"), &before.at("selector"));
        template_update(&spec, &stale, &mut errors);
        for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
            errors.immutable(&spec.at(field), &before.at(field));
        }
        host_names(&fresh, &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        job_status(&At::root(new), &mut errors);
        status_update(&At::root(new), &At::root(old), &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings: Vec<String> = name_warning(new, old).into_iter().collect();
        let spec = value::at(new, "spec").unwrap_or(&Value::Null);
        let number = |field: &str| value::int(spec, field);
        if value::text(spec, "completionMode") == "Indexed"
            && number("completions").is_some_and(|completions| completions > MANY_COMPLETIONS)
            && number("parallelism").is_some_and(|parallelism| parallelism > MOST_PARALLEL_OF_MANY)
        {
            warnings.push("In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail".to_owned());
        }
        warnings.extend(template_warnings(new, old, "spec.template"));
        warnings
    }
}

fn generated_selector(job: &At<'_, '_>, errors: &mut Errors) {
    let chosen = job.at("spec.selector");
    if job.at("spec.manualSelector").flag() || !chosen.is_set() {
        return;
    }
    let (uid, name) = (job.text_at("metadata.uid"), job.text_at("metadata.name"));
    let metadata = job.at("spec.template.metadata");
    let labels = metadata.at("labels");
    let expected: Vec<(&str, &str)> =
        UID_LABELS.iter().map(|label| (*label, uid)).chain(NAME_LABELS.iter().map(|label| (*label, name))).collect();
    for (label, wanted) in &expected {
        let given = labels.key(label);
        if !given.is_set() {
            errors.required(&given, format!("must be '{wanted}'"));
        } else if given.text() != *wanted {
            errors.invalid_value(&given, labels.value().clone(), format!("must be '{wanted}'"));
        }
    }
    // What is no selector is reported where it is checked.
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else { return };
    if !selector.matches(|key| expected.iter().find(|(label, _)| *label == key).map(|(_, value)| *value)) {
        errors.invalid(&chosen, "`selector` not auto-generated");
    }
}

fn chosen_pods(spec: &At<'_, '_>, errors: &mut Errors) {
    let chosen = spec.at("selector");
    if chosen.is_set() {
        errors.label_selector(&chosen);
    } else {
        errors.required(&chosen, "");
    }
    let labels = spec.at("template.metadata.labels");
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else { return };
    // Without a selector nothing is chosen.
    if !chosen.is_set() || !selector.matches_labels(labels.value()) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
}

/// The pods of an indexed job are hosts that are called after it.
fn host_names(job: &At<'_, '_>, errors: &mut Errors) {
    let completions = job.at("spec.completions").int().unwrap_or(0);
    if job.at("spec.completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.at("metadata.name");
    let last = format!("{}-{}", name.text(), completions - 1);
    if !names::is_dns1123_label(&last).is_empty() {
        errors.invalid_text(&name, format!("will not able to create pod with invalid DNS label: {last}"));
    }
}

pub fn completions(spec: &At<'_, '_>, before: &At<'_, '_>, errors: &mut Errors) {
    let (new, old) = (spec.at("completions"), before.at("completions"));
    if spec.text_at("completionMode") != "Indexed" {
        return errors.immutable(&new, &old);
    }
    if new.value() != old.value() && new.is_set() && new.value() != spec.at("parallelism").value() {
        errors.invalid(&new, "can only be modified in tandem with spec.parallelism");
    }
}

/// The template stays, except that where and with what the pods of a job that does not run yet will run may still change.
fn template_update(spec: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let before = old.at("spec");
    let suspended = before.at("suspend").flag();
    let condition = old.at("status.conditions");
    let started = old.has("status.startTime");
    let is_suspended = condition
        .items()
        .any(|condition| condition.text_at("type") == "Suspended" && condition.text_at("status") == "True");
    let idle = suspended && (!started || is_suspended) && old.at("status.active").int().unwrap_or(0) == 0;
    let template = spec.at("template");
    let mut expected = before.at("template").value().clone();
    if idle {
        for path in [
            "metadata.labels",
            "metadata.annotations",
            "spec.nodeSelector",
            "spec.tolerations",
            "spec.schedulingGates",
            "spec.affinity.nodeAffinity",
        ] {
            match value::at(template.value(), path) {
                Some(kept) => value::set(&mut expected, path, kept.clone()),
                None => {
                    value::remove(&mut expected, path);
                }
            }
        }
        // An affinity in which nothing else was may come and go with that of nodes.
        let known = value::at(&expected, "spec.affinity").and_then(Value::as_object).map(value::Object::is_empty);
        match (template.has("spec.affinity"), known) {
            (true, None) => value::set(&mut expected, "spec.affinity", json!({})),
            (false, Some(true)) => drop(value::remove(&mut expected, "spec.affinity")),
            _ => {}
        }
        for list in ["spec.containers", "spec.initContainers"] {
            let now = value::list(template.value(), list).to_vec();
            for (container, now) in value::list_mut(&mut expected, list).iter_mut().zip(now) {
                if container["name"] == now["name"] {
                    container["resources"] = now["resources"].clone();
                }
            }
        }
    }
    if idle {
        // Everything else of the metadata may change as well.
        let spec = template.at("spec");
        if spec.value() != expected.get("spec").unwrap_or(&Value::Null) {
            errors.invalid(&spec, "field is immutable");
        }
    } else if *template.value() != expected {
        errors.invalid(&template, "field is immutable");
    }
}
