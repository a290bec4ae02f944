//! Nodes.

pub mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use machinery::names::ip;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::{defaults, resources, scheduling};
use crate::strategy::{Flags, Strategy};
use crate::wording::internal;

pub struct Nodes;

impl Strategy for Nodes {
    /// How a kubelet is configured is no longer kept in the API.
    fn prepare_for_status_update(&self, new: &mut Value, _old: &Value) {
        value::remove(new, "status.config");
    }

    fn fields(&self) -> &'static [Field] {
        const { &[Field::flag("spec.unschedulable")] }
    }

    fn flags(&self) -> Flags {
        Flags {
            // A node brings its status along when it registers.
            keeps_status_on_create: true,
            ..Flags::USUAL
        }
    }

    fn default(&self, node: &mut Value) {
        for list in ["status.capacity", "status.allocatable"] {
            if let Some(list) = value::at_mut(node, list) {
                defaults::round_up(list);
            }
        }
        if let Some(capacity) = value::at(node, "status.capacity").cloned() {
            value::set_default(node, "status.allocatable", capacity);
        }
        // Either of the two ways to name the range of its pods says the other.
        let single = value::text(node, "spec.podCIDR").to_owned();
        let first = value::list(node, "spec.podCIDRs").first().and_then(Value::as_str).map(str::to_owned);
        match first {
            None if !single.is_empty() => value::set(node, "spec.podCIDRs", vec![single]),
            // The single one is the older, and an older client knows no other.
            Some(first) if !single.is_empty() && single != first => value::set(node, "spec.podCIDRs", vec![single]),
            Some(first) if single.is_empty() => value::set(node, "spec.podCIDR", first),
            _ => {}
        }
    }

    fn prepare_for_create(&self, node: &mut Value) {
        for field in ["spec.configSource", "spec.podPreemptionPolicy", "status.config"] {
            value::remove(node, field);
        }
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        for field in ["spec.configSource", "spec.podPreemptionPolicy"] {
            value::remove(new, field);
        }
    }

    fn validate(&self, node: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(node);
        taints(&root, &mut errors);
        amounts(&root, &mut errors);
        features(&root.at("status.declaredFeatures"), &mut errors);
        pod_ranges(&root.at("spec.podCIDRs"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        update(&fresh, &stale, &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(new, old)
    }

    fn warnings(&self, node: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if value::at(node, "spec.configSource").is_some() {
            warnings.push("spec.configSource: the spec.configSource field is deprecated since v1.22".to_owned());
        }
        if !value::text(node, "spec.externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        warnings
    }
}

/// The addresses for the pods of a node: one range of each family at most.
fn pod_ranges(ranges: &At<'_, '_>, errors: &mut Errors) {
    for range in ranges.items() {
        errors.extend(ip::is_valid_cidr_for_legacy_field(&range.to_string(), range.text(), true, &[]));
    }
    // Upstream takes it for its own fault that it cannot compare what cannot be read.
    let unread = ranges.items().position(|range| ip::parse_cidr_sloppy(range.text()).is_none());
    if let Some(position) = unread.filter(|_| ranges.len() > 1) {
        errors.internal(
            ranges,
            format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{position}]: <nil> (invalid CIDR address: {})",
                ranges.index(position).text()
            ),
        );
    }
    let families: Vec<bool> = ranges
        .items()
        .filter_map(|range| ip::parse_cidr_sloppy(range.text()))
        .map(|(address, _)| address.is_ipv4())
        .collect();
    if ranges.len() > 2 || (ranges.len() == 2 && families.first() == families.last()) {
        errors.invalid(ranges, "may specify no more than one CIDR for each IP family");
    }
}

fn update(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    amounts(new, errors);
    features(&new.at("status.declaredFeatures"), errors);
    let list = new.at("status.addresses");
    for (index, address) in list.items().enumerate() {
        if list.items().take(index).any(|known| known.value() == address.value()) {
            errors.duplicate(&address, address.value().clone());
        }
    }
    let (ranges, before) = (new.at("spec.podCIDRs"), old.at("spec.podCIDRs"));
    if ranges.value() != before.value() {
        pod_ranges(&ranges, errors);
    }
    if !before.is_empty() && ranges.value() != before.value() {
        errors.forbidden(&ranges, "node updates may not change podCIDR except from \"\" to valid");
    }
    let (provider, known) = (new.at("spec.providerID"), old.at("spec.providerID"));
    if !known.text().is_empty() && provider.text() != known.text() {
        let detail = if provider.text().is_empty() {
            "field cannot be cleared once set"
        } else {
            "field cannot be modified once set"
        };
        errors.invalid_value(&provider, Value::Null, detail);
    }
    taints(new, errors);
    if new.at("spec.externalID").text() != old.at("spec.externalID").text() {
        errors.forbidden(&new.at("spec.externalID"), "may not be updated");
    }
}

/// Upstream speaks of taints as if they were metadata.
fn taints(node: &At<'_, '_>, errors: &mut Errors) {
    let metadata = node.at("metadata");
    let list = At::root(node.value());
    let list = list.at("spec.taints");
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for (index, taint) in list.items().enumerate() {
        let path = format!("{metadata}.taints[{index}]");
        let shown = At::part(&path, taint.value());
        errors.label_name(&shown.at("key"));
        let problems = names::is_label_value(taint.text_at("value"));
        if !problems.is_empty() {
            errors.invalid_text(&shown.at("value"), problems.join(";"));
        }
        let effect = shown.at("effect");
        if errors.required_text(&effect) {
            scheduling::taint_effect(&effect, errors);
        }
        let key = (taint.text_at("effect"), taint.text_at("key"));
        if seen.contains(&key) {
            let mut error = FieldError::duplicate(path.clone(), taint.value().clone());
            error.shown = Some(internal::compact(taint.value(), "core.Taint"));
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        } else {
            seen.insert(key);
        }
    }
}

fn amounts(node: &At<'_, '_>, errors: &mut Errors) {
    for list in ["status.capacity", "status.allocatable"] {
        let list = node.at(list);
        for (resource, amount) in list.entries() {
            let path = format!("{list}.{resource}");
            resources::amount(resource, &At::part(&path, amount.value()), errors);
        }
    }
}

fn features(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, feature) in list.items().enumerate() {
        let name = feature.text();
        if index > 0 {
            let before = list.index(index - 1);
            match before.text().cmp(name) {
                std::cmp::Ordering::Equal => errors.duplicate(&feature, name),
                std::cmp::Ordering::Greater => errors.invalid(&feature, "list must be sorted alphabetically"),
                std::cmp::Ordering::Less => {}
            }
        }
        if name.len() > 253 {
            errors.invalid(&feature, format!("invalid feature name {name:?}: must be no more than 253 characters"));
        } else if !is_feature(name) {
            errors.invalid(&feature, format!("invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"));
        }
    }
}

fn is_feature(name: &str) -> bool {
    name.split('/').enumerate().all(|(index, segment)| {
        let first = segment.bytes().next().unwrap_or(b' ');
        let starts = if index == 0 { first.is_ascii_uppercase() } else { first.is_ascii_alphabetic() };
        starts && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}
