//! Resizing: other requests and limits for containers that go on running, and for the pod as a whole.
//!
//! The subresource takes from what it is sent only what a resize may say; `defaults` completes what is said of the whole pod, at
//! its creation too, once admission has added all containers that there will be.

use machinery::quantity::Quantity;
use machinery::status::FieldError;
use machinery::{Value, value};
use rules::names::{is_huge_page, is_of_whole_pods};
use rules::qos::class_in;

use crate::checks::{At, Errors};
use crate::core::pod::spec::MIRROR;
use crate::core::pod::{drop_disabled, resources, spec};
use crate::keep::{keep, keep_object_meta};

/// Takes over resources and resize policies; everything else stays. Containers that come, go or change places are left for
/// [`validate`] to refuse.
pub fn prepare(new: &mut Value, old: &Value) {
    let same_length = |list: &str| {
        let path = format!("spec.{list}");
        value::list(new, &path).len() == value::list(old, &path).len()
    };
    if same_length("containers") && same_length("initContainers") {
        let sent = value::remove(new, "spec").unwrap_or_default();
        keep(new, old, "spec");
        keep(new, old, "status");
        keep_object_meta(new, old);
        for list in ["containers", "initContainers"] {
            take_over(new, value::list(&sent, list), list);
        }
        match sent.get("resources").filter(|whole| whole.is_object()) {
            Some(whole) => value::set(new, "spec.resources", whole.clone()),
            // Whoever does not know of the field does not take it away.
            None => keep(new, old, "spec.resources"),
        }
        defaults(new);
    }
    drop_disabled(value::at_mut(new, "spec"));
}

fn take_over(pod: &mut Value, sent: &[Value], list: &str) {
    let path = format!("spec.{list}");
    let known = value::list(pod, &path);
    if known.iter().zip(sent).any(|(known, sent)| value::text(known, "name") != value::text(sent, "name")) {
        value::set(pod, &path, sent.to_vec());
        return;
    }
    for (container, sent) in value::list_mut(pod, &path).iter_mut().zip(sent) {
        for field in ["resources", "resizePolicy"] {
            keep(container, sent, field);
        }
    }
}

/// What the API server adds to a pod whose resources are given as a whole: what its containers need and may use together,
/// where nothing is said of it.
pub fn defaults(pod: &mut Value) {
    let Some(spec) = value::at_mut(pod, "spec").filter(|spec| has_pod_resources(spec)) else { return };
    let list = |spec: &Value, kind: &str| {
        value::at(spec, "resources").and_then(|whole| whole.get(kind)).and_then(Value::as_object).cloned()
    };
    let (mut requests, mut limits) =
        (list(spec, "requests").unwrap_or_default(), list(spec, "limits").unwrap_or_default());
    let most = resources::aggregate(spec, "limits");
    for (resource, sum) in most.iter().filter(|(resource, _)| is_huge_page(resource)) {
        if !requests.contains_key(resource) && !limits.contains_key(resource) {
            limits.insert(resource.clone(), sum.to_string().into());
        }
    }
    for (resource, sum) in resources::aggregate(spec, "requests") {
        if matches!(resource.as_str(), "cpu" | "memory") && !requests.contains_key(&resource) {
            requests.insert(resource, sum.to_string().into());
        }
    }
    for (resource, limit) in &limits {
        if is_of_whole_pods(resource) && !requests.contains_key(resource) {
            requests.insert(resource.clone(), limit.clone());
        }
    }
    for (resource, request) in &requests {
        if !is_of_whole_pods(resource) || limits.contains_key(resource) || !all_limit(spec, resource) {
            continue;
        }
        let Some(sum) = most.get(resource) else { continue };
        let request = Quantity::from_value(request).and_then(Result::ok);
        let limit = request.filter(|request| request > sum).unwrap_or_else(|| sum.clone());
        limits.insert(resource.clone(), limit.to_string().into());
    }
    for (kind, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            value::set(spec, &format!("resources.{kind}"), Value::Object(list));
        }
    }
}

/// Whether anything is said of the pod as a whole.
fn has_pod_resources(spec: &Value) -> bool {
    spec.get("resources").is_some_and(has_amounts)
}

fn has_amounts(resources: &Value) -> bool {
    let list = |kind: &str| resources.get(kind).and_then(Value::as_object).is_some_and(|list| !list.is_empty());
    list("requests") || list("limits")
}

/// Whether every container says how much of a resource it may use at most.
fn all_limit(spec: &Value, resource: &str) -> bool {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| value::list(spec, list))
        .all(|container| value::at(container, "resources.limits").is_some_and(|limits| limits.get(resource).is_some()))
}

/// Other requests and limits for containers that go on running.
pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
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
    let class = if class.is_empty() { class_in(old).as_str() } else { class };
    if class != class_in(new).as_str() {
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
    if has_pod_resources(spec.value()) || has_pod_resources(before.value()) {
        pod_level(&spec, &before, &mut errors);
    }
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
    if before.is_set() && !after.is_set() {
        return errors.forbidden(&after, "pod-level resources cannot be removed");
    }
    for kind in ["requests", "limits"] {
        if removed(&after.value()[kind], &before.value()[kind]) {
            errors.forbidden(&after.at(kind), format!("pod-level resource {kind} cannot be removed"));
        }
    }
    let mut munged = after.value().clone();
    restore(&mut munged, before.value());
    if munged != *before.value() && !(before.value().is_null() && munged == Value::Object(Default::default())) {
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
    if let Some(resources) =
        spec.get_mut("resources").filter(|resources| has_amounts(resources) || has_amounts(&old["resources"]))
    {
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
