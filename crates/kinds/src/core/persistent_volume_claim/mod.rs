//! PersistentVolumeClaims, and their specs wherever one is written.

pub mod columns;
#[cfg(test)]
mod tests;

use machinery::quantity::{Format, Quantity};
use machinery::status::FieldError;
use machinery::{Value, names, value};
use rules::names::is_native;
use serde_json::json;

use crate::checks::{At, Errors};
use crate::core::pod::{defaults, warnings};
use crate::strategy::Strategy;
use crate::wording::internal;

/// What a volume can be used for.
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub struct PersistentVolumeClaims;

impl Strategy for PersistentVolumeClaims {
    /// The health of volumes is behind a gate that is off.
    fn prepare_for_status_update(&self, new: &mut Value, _old: &Value) {
        value::remove(new, "status.healthStatus");
    }

    fn default(&self, claim: &mut Value) {
        value::set_default(claim, "spec.volumeMode", "Filesystem");
        value::set_default(claim, "status.phase", "Pending");
        for kind in ["spec.resources.requests", "spec.resources.limits"] {
            if let Some(list) = value::at_mut(claim, kind) {
                defaults::round_up(list);
            }
        }
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        value::set(claim, "status", json!({"phase": "Pending"}));
        drop_foreign_source(claim);
        drop_odd_source(claim);
        one_source(claim);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        if ["spec.dataSource", "spec.dataSourceRef"].iter().all(|path| value::at(old, path).is_none()) {
            drop_foreign_source(new);
            drop_odd_source(new);
        }
        // An older client may not know of the newer of the two fields.
        one_source(new);
    }

    fn validate(&self, claim: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_spec(&At::root(claim).at("spec"), true, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        validate_spec(&fresh.at("spec"), false, &mut errors);
        update(&fresh, &stale, &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        const RESIZING: [&str; 5] = [
            "ControllerResizeInProgress",
            "ControllerResizeInfeasible",
            "NodeResizeInProgress",
            "NodeResizeInfeasible",
            "NodeResizePending",
        ];
        let mut errors = Errors::new();
        let root = At::root(new);
        for (_, amount) in root.at("status.capacity").entries() {
            valid_amount(&amount, &mut errors);
        }
        let statuses = root.at("status.allocatedResourceStatuses");
        for (resource, status) in statuses.entries() {
            resource_key(resource, &statuses, &mut errors);
            if !RESIZING.contains(&status.text()) {
                let mut sorted = RESIZING;
                sorted.sort_unstable();
                errors.push(FieldError::not_supported(statuses.to_string(), resource, sorted));
            }
        }
        let allocated = root.at("status.allocatedResources");
        for (resource, amount) in allocated.entries() {
            resource_key(resource, &allocated, &mut errors);
            valid_amount(&amount, &mut errors);
        }
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings::fractional_storage(&At::root(new).at("spec"), &mut warnings);
        warnings
    }
}

fn resource_key(resource: &str, at: &At<'_, '_>, errors: &mut Errors) {
    let problems = names::is_qualified_name(resource);
    let good = problems.is_empty();
    for problem in problems {
        errors.invalid_value(at, resource, problem);
    }
    if good && is_native(resource) && resource != "storage" {
        errors.push(FieldError::not_supported(at.to_string(), resource, ["storage"]));
    }
}

/// An amount that is not below zero, in other words than elsewhere.
pub fn valid_amount(at: &At<'_, '_>, errors: &mut Errors) {
    if let Some(quantity) = at.quantity().filter(|quantity| quantity.value() < 0) {
        errors.invalid_value(at, quantity.value(), "must be a valid resource quantity");
    }
}

/// An amount above zero.
pub fn positive_amount(at: &At<'_, '_>, errors: &mut Errors) {
    if let Some(quantity) = at.quantity().filter(|quantity| quantity.signum() <= 0) {
        errors.invalid_value(at, quantity.to_string(), "must be greater than zero");
    }
}

/// Contents from other namespaces are behind a gate that is off.
fn drop_foreign_source(claim: &mut Value) {
    if !value::text(claim, "spec.dataSourceRef.namespace").is_empty() {
        value::remove(claim, "spec.dataSourceRef");
    }
}

/// The older field knows claims and snapshots; whatever else it says has always been ignored.
fn drop_odd_source(claim: &mut Value) {
    let Some(source) = value::at(claim, "spec.dataSource").filter(|source| source.is_object()) else { return };
    let kind = (value::text(source, "apiGroup"), value::text(source, "kind"));
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")].contains(&kind);
    if !known && value::at(claim, "spec.dataSourceRef").is_none_or(Value::is_null) {
        value::remove(claim, "spec.dataSource");
    }
}

/// Either of the two ways to say where the contents come from says the other.
fn one_source(claim: &mut Value) {
    let old = value::at(claim, "spec.dataSource").filter(|source| source.is_object()).cloned();
    let new = value::at(claim, "spec.dataSourceRef").filter(|source| source.is_object()).cloned();
    match (old, new) {
        (Some(old), None) => value::set(claim, "spec.dataSourceRef", old),
        (None, Some(new)) if value::text(&new, "namespace").is_empty() => value::set(claim, "spec.dataSource", new),
        _ => {}
    }
}

/// The modes of a volume or a claim.
pub fn access_modes(at: &At<'_, '_>, errors: &mut Errors) {
    for mode in at.items() {
        if !ACCESS_MODES.contains(&mode.text()) {
            errors.push(FieldError::not_supported(at.to_string(), mode.text(), ACCESS_MODES));
        }
    }
    let has = |wanted: &dyn Fn(&str) -> bool| at.items().any(|mode| wanted(mode.text()));
    if has(&|mode| mode == "ReadWriteOncePod")
        && has(&|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode))
    {
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The spec of a claim. The groups of its sources are judged when it is `made`.
pub fn validate_spec(spec: &At<'_, '_>, made: bool, errors: &mut Errors) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    errors.label_selector(&spec.at("selector"));
    access_modes(&modes, errors);
    let list = spec.named("resources", "resources.requests");
    let storage = list.key("storage");
    match storage.quantity() {
        None => errors.required(&storage, ""),
        Some(_) => positive_amount(&storage, errors),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.at(field);
        if !class.text().is_empty() {
            errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
        }
        if field == "storageClassName" {
            errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
            sources(spec, made, errors);
        }
    }
}

fn sources(spec: &At<'_, '_>, made: bool, errors: &mut Errors) {
    let (old, new) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for source in [&old, &new] {
        if !source.is_set() {
            continue;
        }
        errors.required_text(&source.at("name"));
        errors.required_text(&source.at("kind"));
        let group = source.at("apiGroup");
        if group.text().is_empty() && source.text_at("kind") != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid_value(source, source.text_at("kind"), detail);
        }
        if made && !group.text().is_empty() {
            errors.problems(&group, names::is_dns1123_subdomain(group.text()));
        }
        let namespace = source.at("namespace");
        if !namespace.text().is_empty() {
            errors.problems(&namespace, names::name_is_dns_label(namespace.text(), false));
        }
    }
    if !old.is_set() || !new.is_set() {
        return;
    }
    // Upstream shows the path of the field where its value should be, and a path shows nothing of itself.
    let mut refuse = |why: &str| {
        let mut error = FieldError::invalid(spec.to_string(), json!({}), why);
        error.shown = Some("{}".to_owned());
        errors.push(error);
    };
    if !new.text_at("namespace").is_empty() {
        refuse("may not be specified when dataSourceRef.namespace is specified");
    } else if ["apiGroup", "kind", "name"].iter().any(|field| old.at(field).value() != new.at(field).value()) {
        refuse("must match dataSourceRef");
    }
}

/// A claim stays as it was made, except that a bound one may ask for more, and for other attributes.
fn update(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (spec, before) = (new.at("spec"), old.at("spec"));
    let (mut after, mut earlier) = (spec.value().clone(), before.value().clone());
    if value::text(&earlier, "volumeName").is_empty()
        && let Some(volume) = after.get("volumeName").cloned()
    {
        value::set(&mut earlier, "volumeName", volume);
    }
    let class_annotation =
        |claim: &At<'_, '_>| claim.at("metadata.annotations").key(BETA_CLASS).value().as_str().map(str::to_owned);
    let (annotated, was_annotated) = (class_annotation(new), class_annotation(old));
    let named = spec.at("storageClassName").value().as_str().map(str::to_owned);
    let was_named = before.has("storageClassName");
    let upgraded = !was_named
        && was_annotated.is_some()
        && named == was_annotated
        && (annotated.is_none() || annotated == was_annotated);
    if upgraded {
        value::remove(&mut after, "storageClassName");
    } else {
        if annotated.clone().unwrap_or_default() != was_annotated.clone().unwrap_or_default() {
            let annotations = new.at("metadata.annotations");
            errors.invalid_value(&annotations.at(BETA_CLASS), annotated.unwrap_or_default(), "field is immutable");
        }
        if !was_named && named.is_some() && (was_annotated.is_none() || named == was_annotated) {
            value::remove(&mut after, "storageClassName");
        }
    }
    if new.at("status.phase").text() == "Bound" {
        if let Some(size) = value::at(&earlier, "resources.requests.storage").cloned() {
            value::set(&mut after, "resources.requests.storage", size);
        }
        match earlier.get("volumeAttributesClassName").cloned() {
            Some(class) => value::set(&mut after, "volumeAttributesClassName", class),
            None => {
                value::remove(&mut after, "volumeAttributesClassName");
            }
        }
    }
    if after != earlier {
        let shown = internal::difference(&earlier, &after, "core.PersistentVolumeClaimSpec");
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&spec, format!("{detail}\n{shown}"));
    }
    // Nothing is the least amount there is.
    let size = |claim: &At<'_, '_>, path: &str| {
        claim.at(path).quantity().unwrap_or_else(|| Quantity::new(0, Format::BinarySi))
    };
    let asked = "spec.resources.requests.storage";
    let now = size(new, asked);
    if now < size(old, asked) && now <= size(old, "status.capacity.storage") {
        errors.forbidden(&spec.at("resources.requests.storage"), "field can not be less than status.capacity");
    }
    let mode = At::root(spec.value());
    let was = At::root(before.value());
    errors.immutable(&mode.at("volumeMode"), &was.at("volumeMode"));
    let class = spec.at("volumeAttributesClassName");
    if class.value() != before.at("volumeAttributesClassName").value()
        && old.has("status.currentVolumeAttributesClassName")
    {
        if !class.is_set() {
            errors.forbidden(
                &class,
                "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil",
            );
        } else if class.text().is_empty() {
            errors.forbidden(
                &class,
                "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
            );
        }
    }
}
