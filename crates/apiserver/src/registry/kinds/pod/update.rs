//! What may change in a pod that is there: little, and some of it only through subresources of its own.

use machinery::names;
use machinery::quantity::Quantity;
use machinery::status::FieldError;
use machinery::{Value, value};

use super::super::super::internal;
use super::super::common::{At, Errors};
use super::security::APP_ARMOR;
use super::spec::{self, MIRROR};
use super::{quality, resources, scheduling};

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
    // A pod that is not yet to be scheduled may still be told where to go, more narrowly than before.
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

/// Other requests and limits for containers that go on running.
pub fn validate_resize(new: &Value, old: &Value) -> Vec<FieldError> {
    const ONLY: &str = "only cpu and memory resources are mutable";
    let (fresh, stale) = (At::root(new), At::root(old));
    let mut errors = Errors::new();
    if stale.at("metadata.annotations").key(MIRROR).is_set() {
        return vec![FieldError::forbidden("", "static pods cannot be resized")];
    }
    if stale.at("spec.os.name").text() == "windows" {
        return vec![FieldError::forbidden("", "windows pods cannot be resized")];
    }
    spec::validate_pod(&fresh, &mut errors);
    let (spec, before) = (fresh.at("spec"), stale.at("spec"));
    let class = value::text(old, "status.qosClass");
    let class = if class.is_empty() { quality(old) } else { class };
    if class != quality(new) {
        errors.invalid_value(
            &spec,
            value::text(new, "status.qosClass"),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let running = stale.at("status.containerStatuses");
    if running.items().find(|status| status.has("state.running")).is_some_and(|status| !status.has("resources")) {
        errors.forbidden(&spec, "Pod running on node without support for resize");
    }
    pod_level(&spec, &before, &mut errors);
    if !same_containers(&spec, &before, &mut errors) {
        return errors.into_vec();
    }
    let mut munged = spec.value().clone();
    restore_compute(&mut munged, before.value());
    for list in ["initContainers", "containers"] {
        for (index, container) in spec.at(list).items().enumerate() {
            let earlier = before.at(list);
            let earlier = earlier.index(index);
            for kind in ["requests", "limits"] {
                let (now, then) = (container.at("resources").value(), earlier.at("resources").value());
                if removed(&now[kind], &then[kind]) {
                    let resources = container.at("resources");
                    errors.forbidden(&resources.at(kind), format!("resource {kind} cannot be removed"));
                }
            }
            let other = value::list(&munged, list).get(index) != Some(earlier.value());
            if other && list == "containers" {
                errors.forbidden(&spec, ONLY);
            } else if other {
                errors
                    .forbidden(&container, "only cpu and memory resources for init or sidecar containers are mutable");
            }
            let restarts = container
                .at("resizePolicy")
                .items()
                .any(|policy| policy.text_at("restartPolicy") == "RestartContainer");
            let stays = container.text_at("restartPolicy") == "Always";
            if list == "initContainers" && !stays && restarts && container.value() != earlier.value() {
                errors.forbidden(
                    &container,
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                );
            }
        }
    }
    if spec.at("volumes").value() != before.at("volumes").value() {
        errors.forbidden(
            &spec.at("volumes"),
            "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled",
        );
    }
    if errors.is_empty() && munged != *before.value() {
        errors.forbidden(&spec, ONLY);
    }
    errors.into_vec()
}

fn removed(new: &Value, old: &Value) -> bool {
    old.as_object().into_iter().flatten().any(|(name, _)| new.get(name).is_none())
}

/// Requests and limits of the whole pod may change, but not go.
fn pod_level(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (after, before) = (new.at("resources"), old.at("resources"));
    if !before.is_set() {
        return;
    }
    if !after.is_set() {
        return errors.forbidden(&after, "pod-level resources cannot be removed");
    }
    for kind in ["requests", "limits"] {
        if removed(&after.value()[kind], &before.value()[kind]) {
            errors.forbidden(&after.at(kind), format!("pod-level resource {kind} cannot be removed"));
        }
    }
    let mut munged = after.value().clone();
    restore(&mut munged, before.value());
    if munged != *before.value() {
        errors.forbidden(new, "only cpu and memory resources are mutable at pod-level");
    }
}

fn same_containers(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in ["containers", "initContainers"] {
        let (after, earlier) = (new.at(list), old.at(list));
        if after.len() != earlier.len() {
            errors.forbidden(&after, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, known) in after.items().zip(earlier.items()) {
            if container.text_at("name") != known.text_at("name") {
                errors.forbidden(&container.at("name"), format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    errors.len() == before
}

/// Puts the old CPU and memory back, everywhere, so that what is left to differ must not.
fn restore_compute(spec: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let earlier = value::list(old, list).to_vec();
        for (container, earlier) in value::list_mut(spec, list).iter_mut().zip(earlier) {
            if let Some(resources) = container.get_mut("resources") {
                restore(resources, &earlier["resources"]);
            }
        }
    }
    if let Some(resources) = spec.get_mut("resources") {
        restore(resources, &old["resources"]);
        if old.get("resources").is_none() && resources.as_object().is_some_and(|resources| resources.is_empty()) {
            value::remove(spec, "resources");
        }
    }
}

fn restore(resources: &mut Value, old: &Value) {
    for kind in ["requests", "limits"] {
        let mut list = resources.get(kind).and_then(Value::as_object).cloned().unwrap_or_default();
        for resource in ["cpu", "memory"] {
            match old.get(kind).and_then(|old| old.get(resource)) {
                Some(kept) => {
                    list.insert(resource.to_owned(), kept.clone());
                }
                None => {
                    list.remove(resource);
                }
            }
        }
        if list.is_empty() && old.get(kind).is_none() {
            value::remove(resources, kind);
        } else {
            value::set(resources, kind, Value::Object(list));
        }
    }
}

/// What the API server adds to a pod whose resources are given as a whole: requests where there are limits.
pub fn default_pod_level(pod: &mut Value) {
    if !value::at(pod, "spec.resources").is_some_and(Value::is_object) {
        return;
    }
    let spec = value::at(pod, "spec").cloned().unwrap_or(Value::Null);
    let limits = value::at(&spec, "resources.limits").and_then(Value::as_object).cloned().unwrap_or_default();
    let given = value::at(&spec, "resources.requests").and_then(Value::as_object).cloned().unwrap_or_default();
    let sums = resources::aggregate(&spec, "requests");
    let mut requests = given.clone();
    for (resource, sum) in &sums {
        if !given.contains_key(resource)
            && (matches!(resource.as_str(), "cpu" | "memory") || resources::is_huge_page(resource))
        {
            requests.insert(resource.clone(), sum.to_string().into());
        }
    }
    for (resource, limit) in &limits {
        let known = given.contains_key(resource) || sums.contains_key(resource);
        if !known && Quantity::from_value(limit).is_some_and(|limit| limit.is_ok()) {
            requests.insert(resource.clone(), limit.clone());
        }
    }
    if !requests.is_empty() {
        value::set(pod, "spec.resources.requests", Value::Object(requests));
    }
}
