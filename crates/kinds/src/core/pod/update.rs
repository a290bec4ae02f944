//! What may change in a pod that is there: little, and some of it only through subresources of its own.

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::security::APP_ARMOR;
use crate::core::pod::spec::MIRROR;
use crate::core::pod::{scheduling, spec};
use crate::wording::internal;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A change of the pod itself.
pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (At::root(new), At::root(old));
    spec::validate_pod(&new, &mut errors);
    annotations(&new, &old, &mut errors);
    let (spec, before) = (new.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        if !images(&spec.at(list), &before.at(list), &mut errors) {
            return errors.into_vec();
        }
    }
    deadline(&spec.at("activeDeadlineSeconds"), &before.at("activeDeadlineSeconds"), &mut errors);
    only_added(&spec.at("tolerations"), &before.at("tolerations"), &mut errors);
    only_removed(&spec.at("schedulingGates"), &before.at("schedulingGates"), &mut errors);
    if spec.value() != before.value() {
        rest_is_same(&spec, &before, &mut errors);
    }
    errors.into_vec()
}

/// Annotations that stay as the pod was made with.
pub fn annotations(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (new_all, old_all) = (new.at("metadata.annotations"), old.at("metadata.annotations"));
    for (key, before) in old_all.entries() {
        if new_all.key(key).value() == before.value() {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&new_all.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&new_all.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for (key, added) in new_all.entries().filter(|(key, _)| !old_all.key(key).is_set()) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&added, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&added, "may not add mirror pod annotation");
        }
    }
    spec::validate_annotations(&new_all, &new.at("spec"), errors);
}

/// The images may change, the containers may not. Whether there are as many as before.
fn images(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) -> bool {
    if new.len() != old.len() {
        errors.forbidden(new, "pod updates may not add or remove containers");
        return false;
    }
    for container in new.items() {
        let image = container.at("image");
        errors.required_text(&image);
        if image.text().trim() != image.text() {
            errors.invalid(&image, "must not have leading or trailing whitespace");
        }
    }
    true
}

fn deadline(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    match (new.int(), old.int()) {
        (Some(after), before) => {
            errors.int_problems(new, names::is_in_range(after, 0, i64::from(i32::MAX)));
            if before.is_some_and(|before| before < after) {
                errors.invalid(new, "must be less than or equal to previous value");
            }
        }
        (None, Some(_)) => errors.invalid(new, "must not update from a positive integer to nil value"),
        (None, None) => {}
    }
}

/// Tolerations stay, except for how long they hold; new ones may come.
fn only_added(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        value::remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    for before in old.items() {
        let before = without_seconds(before.value());
        if !new.items().any(|after| without_seconds(after.value()) == before) {
            errors.forbidden(new, "existing toleration can not be modified except its tolerationSeconds");
        }
    }
    scheduling::tolerations(new, errors);
}

fn only_removed(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    for gate in new.items() {
        let name = gate.text_at("name");
        if !old.items().any(|before| before.text_at("name") == name) {
            errors.forbidden(
                &gate.at("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            );
        }
    }
}

/// What is not one of the few fields that may change has not changed.
fn rest_is_same(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let before = old.value();
    let mut after = new.value().clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            value::list(before, list).iter().map(|container| container.get("image").cloned()).collect();
        for (container, image) in value::list_mut(&mut after, list).iter_mut().zip(images) {
            put(container, "image", image);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(&mut after, field, before.get(field).cloned());
    }
    let grace = "terminationGracePeriodSeconds";
    if value::int(before, grace).is_some_and(|seconds| seconds < 0) && value::int(&after, grace) == Some(1) {
        put(&mut after, grace, before.get(grace).cloned());
    }
    // A pod that is not yet to be scheduled may still be sent to other nodes, more narrowly than before.
    if !value::list(before, "schedulingGates").is_empty() {
        node_selector_grows(new, old, errors);
        put(&mut after, "nodeSelector", before.get("nodeSelector").cloned());
        node_affinity_grows(new, old, errors);
        let affinity = value::at(before, "affinity.nodeAffinity").cloned();
        match affinity {
            Some(affinity) => value::set(&mut after, "affinity.nodeAffinity", affinity),
            None => {
                value::remove(&mut after, "affinity.nodeAffinity");
            }
        }
        let emptied =
            value::at(&after, "affinity").and_then(Value::as_object).is_some_and(|affinity| affinity.is_empty());
        if emptied && before.get("affinity").is_none() {
            value::remove(&mut after, "affinity");
        }
    }
    if after != *before {
        errors.forbidden(
            new,
            format!(
                "pod updates may not change fields other than {UPDATABLE}\n{}",
                internal::difference(before, &after, "core.PodSpec")
            ),
        );
    }
}

fn put(object: &mut Value, field: &str, kept: Option<Value>) {
    match kept {
        Some(kept) => value::set(object, field, kept),
        None => {
            value::remove(object, field);
        }
    }
}

fn node_selector_grows(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (after, before) = (new.at("nodeSelector"), old.at("nodeSelector"));
    for (key, label) in before.entries() {
        if after.key(key).value() != label.value() {
            errors.invalid(&after, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
        }
    }
}

fn node_affinity_grows(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    const TERMS: &str = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (after, before) = (new.at(TERMS), old.at(TERMS));
    if before.is_empty() {
        return;
    }
    if before.len() != after.len() {
        return errors.invalid(&after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    }
    for (term, earlier) in after.items().zip(before.items()) {
        let grows = |field: &str| {
            let (now, then) = (value::list(term.value(), field), value::list(earlier.value(), field));
            now.len() >= then.len() && now[..then.len()] == *then
        };
        let was_empty = ["matchExpressions", "matchFields"].iter().all(|field| earlier.at(field).is_empty());
        let is_empty = ["matchExpressions", "matchFields"].iter().all(|field| term.at(field).is_empty());
        let allowed = if was_empty { is_empty } else { grows("matchExpressions") && grows("matchFields") };
        if !allowed {
            errors.invalid(&term, "only additions are allowed (no mutations or deletions)");
        }
    }
}

/// New containers to look around with; those that are there stay.
pub fn validate_ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (At::root(new), At::root(old));
    if old.at("metadata.annotations").key(MIRROR).is_set() {
        return vec![FieldError::forbidden("", "static pods do not support ephemeral containers")];
    }
    spec::validate_pod(&new, &mut errors);
    annotations(&new, &old, &mut errors);
    let (after, before) = (new.at("spec.ephemeralContainers"), old.at("spec.ephemeralContainers"));
    for container in before.items() {
        let name = container.text_at("name");
        match after.items().find(|candidate| candidate.text_at("name") == name) {
            None => errors.forbidden(&after, format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(same) if same.value() == container.value() => {}
            Some(changed) => {
                let shown = internal::difference(container.value(), changed.value(), "core.EphemeralContainer");
                errors.forbidden(&after, format!("existing ephemeral containers {name:?} may not be changed\n{shown}"));
            }
        }
    }
    errors.into_vec()
}
