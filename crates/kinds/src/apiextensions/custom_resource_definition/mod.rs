//! CustomResourceDefinitions.
//!
//! Upstream checks them in an older form, in which what all versions have in common stands at the top; its paths show it.

pub mod columns;
mod conversion;
pub mod convert;
#[cfg(test)]
mod goldens;
mod internal;
pub mod schema;
pub mod structural;
#[cfg(test)]
mod tests;
mod warnings;

use std::borrow::Cow;

use ::apiextensions::as_go_writes;
use ::apiextensions::definition::{APPROVAL, Approval, CLEANUP, Conditions, approval_of, condition_is};
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors, IMMUTABLE};
use crate::keep::keep;
use crate::strategy::{Flags, Strategy};

pub struct Definitions;

impl Strategy for Definitions {
    fn flags(&self) -> Flags {
        Flags {
            is_long: true,
            judges_finalizers: false,
            says_once: false,
            allows_unconditional_update: false,
            counts_generations: true,
            ..Flags::USUAL
        }
    }

    fn default(&self, definition: &mut Value) {
        if let Cow::Owned(written) = as_go_writes(definition) {
            *definition = written;
        }
        if value::list(definition, "status.storedVersions").is_empty() {
            remember_storage(definition);
        }
        let kind = value::text(definition, "spec.names.kind").to_owned();
        if value::text(definition, "spec.names.singular").is_empty() && !kind.is_empty() {
            value::set(definition, "spec.names.singular", kind.to_lowercase());
        }
        if value::text(definition, "spec.names.listKind").is_empty() && !kind.is_empty() {
            value::set(definition, "spec.names.listKind", format!("{kind}List"));
        }
        value::set_default(definition, "spec.conversion", json!({"strategy": "None"}));
        // Upstream's own form of a webhook is the two fields alone, so that one with neither is none.
        let webhook = value::at(definition, "spec.conversion.webhook").and_then(Value::as_object);
        if webhook.is_some_and(|webhook| webhook.values().all(Value::is_null)) {
            value::remove(definition, "spec.conversion.webhook");
        }
        if value::at(definition, "spec.conversion.webhook.clientConfig.service").is_some_and(Value::is_object) {
            value::set_default(definition, "spec.conversion.webhook.clientConfig.service.port", 443);
        }
    }

    fn prepare_for_create(&self, definition: &mut Value) {
        let names = json!({"plural": "", "kind": ""});
        value::set(definition, "status", json!({"acceptedNames": names, "storedVersions": []}));
        remember_storage(definition);
    }

    /// A definition goes when its objects have gone: whoever cleans up takes its finalizer away.
    fn holds(&self, definition: &Value) -> bool {
        value::at(definition, "metadata.deletionTimestamp").is_none()
    }

    fn prepare_for_deletion(&self, definition: &mut Value) {
        let mut finalizers = value::list(definition, "metadata.finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(json!(CLEANUP));
            value::set(definition, "metadata.finalizers", finalizers);
        }
        let now = value::text(definition, "metadata.deletionTimestamp").to_owned();
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        Conditions::of(definition, &now).set("Terminating", "True", "InstanceDeletionPending", message);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        remember_storage(new);
    }

    fn validate(&self, definition: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(definition);
        let wanted = format!("{}.{}", root.text_at("spec.names.plural"), root.text_at("spec.group"));
        for name in ["metadata.generateName", "metadata.name"].map(|field| root.at(field)) {
            if !name.text().is_empty() && name.text() != wanted {
                errors.invalid_text(&name, "must be spec.names.plural+\".\"+spec.group");
            }
        }
        validate_spec(&root.at("spec"), None, &mut errors);
        validate_names(&root.at("status.acceptedNames"), &mut errors);
        stored_versions(&root, &mut errors);
        approval(&root, None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        validate_spec(&spec, Some(old), &mut errors);
        let always = ["group", "names.plural"];
        let served = ["scope", "names.kind"].into_iter().filter(|_| condition_is(old, "Established", "True"));
        for field in served.chain(always) {
            if spec.text_at(field) != before.text_at(field) {
                errors.invalid_text(&spec.at(field), IMMUTABLE);
            }
        }
        validate_names(&fresh.at("status.acceptedNames"), &mut errors);
        stored_versions(&fresh, &mut errors);
        approval(&fresh, Some(&stale), &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_names(&At::root(new).at("status.acceptedNames"), &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::about(new, old)
    }
}

/// Why a definition that is stored would not be accepted today, if so: upstream once accepted schemas that are not structural, and keeps them. A reason
/// and a message, and whether it is certain.
pub fn violations(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    let mut errors = Errors::new();
    let root = At::root(definition);
    let preserve = root.at("spec.preserveUnknownFields");
    if preserve.flag() {
        errors.invalid(&preserve, "must be false");
    }
    for version in root.at("spec.versions").items().filter(|version| version.has("schema.openAPIV3Schema")) {
        let schema = version.at("schema.openAPIV3Schema");
        if let Some(why) = structural::unreadable(schema.value()) {
            let name = version.text_at("name");
            let message = format!("failed to check validation schema for version {name}: {why}");
            return Some(("Unknown", "StructuralError", message));
        }
        structural::validate(&schema, &mut errors);
    }
    let errors = errors.into_vec();
    (!errors.is_empty()).then(|| ("True", "Violations", machinery::status::aggregate(&errors)))
}

/// The version that objects are stored in is remembered, since objects may be stored in it for a long time.
fn remember_storage(definition: &mut Value) {
    let versions = value::list(definition, "spec.versions");
    let Some(name) =
        versions.iter().find(|version| value::flag(version, "storage")).map(|version| version["name"].clone())
    else {
        return;
    };
    let mut stored = value::list(definition, "status.storedVersions").to_vec();
    if !stored.contains(&name) {
        stored.push(name);
        value::set(definition, "status.storedVersions", stored);
    }
}

fn stored_versions(definition: &At<'_, '_>, errors: &mut Errors) {
    let (stored, versions) = (definition.at("status.storedVersions"), definition.at("spec.versions"));
    if stored.is_empty() {
        return errors.invalid_value(&stored, Value::Null, "must have at least one stored version");
    }
    for (at, version) in versions.items().enumerate().filter(|(_, version)| version.at("storage").flag()) {
        let name = version.text_at("name");
        // Upstream crosses a version off when it is first named.
        let again = versions.items().take(at).any(|before| before.text_at("name") == name);
        if again || !stored.items().any(|known| known.text() == name) {
            errors.invalid(&stored, format!("must have the storage version {name}"));
        }
    }
    for version in stored.items() {
        let name = version.text();
        if !versions.items().any(|known| known.text_at("name") == name) {
            errors.invalid_text(&version, format!("missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"));
        }
    }
}

/// Groups of the community need its approval; what they have had so far is not held against them.
fn approval(new: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let Some((approval, why)) = approval_of(new.value()) else { return };
    if old.and_then(|old| approval_of(old.value())).is_some_and(|(before, _)| before == approval) {
        return;
    }
    let annotations = new.at("metadata.annotations");
    let annotation = annotations.key(APPROVAL);
    match approval {
        Approval::Missing => errors.required(&annotation, why),
        Approval::Invalid => errors.invalid_text(&annotation, why),
        Approval::Given | Approval::Bypassed => {}
    }
}

/// What all versions have alike, if they do and have it at all.
fn common<'v>(versions: &At<'_, 'v>, field: &str) -> Option<&'v Value> {
    let first = value::at(versions.value().get(0)?, field)?;
    versions.items().all(|version| value::at(version.value(), field) == Some(first)).then_some(first)
}

/// Judges a spec; `old` is the definition that it changes.
fn validate_spec(spec: &At<'_, '_>, old: Option<&Value>, errors: &mut Errors) {
    let group = spec.at("group");
    if errors.required_text(&group) {
        let problems = names::is_dns1123_subdomain(group.text());
        if !problems.is_empty() {
            errors.invalid(&group, problems.join(","));
        } else if !group.text().contains('.') {
            errors.invalid(&group, "should be a domain with at least one dot");
        }
    }
    errors.required_one_of(&spec.at("scope"), &["Cluster", "Namespaced"]);
    let versions = spec.at("versions");
    for version in versions.items() {
        if !version.has("schema.openAPIV3Schema") {
            errors.required(&version.at("schema.openAPIV3Schema"), "");
        }
    }
    let preserve = spec.at("preserveUnknownFields");
    if preserve.flag() {
        if versions.items().any(|version| schema::has_defaults(&version.at("schema.openAPIV3Schema"))) {
            errors.invalid(&preserve, "must be false in order to use defaults in the schema");
        }
        if old.is_none_or(|old| !value::flag(&old["spec"], "preserveUnknownFields")) {
            errors.invalid(
                &preserve,
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            );
        }
    }
    validate_versions(spec, &versions, old, errors);
    for field in ["names.plural", "names.singular", "names.kind", "names.listKind"] {
        errors.required_text(&spec.at(field));
    }
    validate_names(&spec.at("names"), errors);
    conversion::validate(&spec.at("conversion"), preserve.flag(), old, errors);
}

fn validate_versions(spec: &At<'_, '_>, versions: &At<'_, '_>, old: Option<&Value>, errors: &mut Errors) {
    let common = |field: &str| common(versions, field);
    let unchanged = |version: &At<'_, '_>| {
        let mut before = old.into_iter().flat_map(|old| value::list(old, "spec.versions"));
        let before = before.find(|before| value::text(before, "name") == version.text_at("name"));
        before.is_some_and(|before| before["schema"] == *version.at("schema").value())
    };
    for version in versions.items() {
        version_name(&version.at("name"), errors);
        deprecation(&version, errors);
        if common("schema").is_none() {
            let status = version.has("subresources.status");
            schema::validate(&version.at("schema"), status, unchanged(&version), errors);
        }
        if common("subresources").is_none() {
            validate_subresources(&version.at("subresources"), errors);
        }
        if common("additionalPrinterColumns").is_none() {
            version.at("additionalPrinterColumns").items().for_each(|column| validate_column(&column, errors));
        }
        let selectable = version.at("selectableFields");
        if common("selectableFields").is_none() && !selectable.is_empty() {
            if common("schema").is_none() && version.has("schema.openAPIV3Schema") {
                schema::selectable_fields(&selectable, &version.at("schema.openAPIV3Schema"), errors);
            } else {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.invalid_value(&selectable, "", detail);
            }
        }
    }
    let shown = || internal::versions(versions.value(), |field| common(field).is_some());
    let names: Vec<&str> = versions.items().map(|version| version.text_at("name")).collect();
    if (0..names.len()).any(|at| names[..at].contains(&names[at])) {
        errors.push(internal::invalid(versions, shown(), "must contain unique version names"));
    }
    if versions.items().filter(|version| version.at("storage").flag()).count() != 1 {
        errors.push(internal::invalid(versions, shown(), "must have exactly one version marked as storage version"));
    }
    let first = versions.index(0);
    if let Some(name) = names.first().filter(|name| !name.is_empty()) {
        version_name(&At::part(&format!("{spec}.version"), &json!(name)), errors);
    }
    if let Some(schema) = common("schema") {
        let status = versions.items().any(|version| version.has("subresources.status"));
        let path = format!("{spec}.validation");
        schema::validate(&At::part(&path, schema), status, unchanged(&first), errors);
    }
    if let Some(subresources) = common("subresources") {
        validate_subresources(&At::part(&format!("{spec}.subresources"), subresources), errors);
    }
    if let Some(columns) = common("additionalPrinterColumns") {
        let path = format!("{spec}.additionalPrinterColumns");
        At::part(&path, columns).items().for_each(|column| validate_column(&column, errors));
    }
    if let Some(selectable) =
        common("selectableFields").filter(|fields| fields.as_array().is_some_and(|fields| !fields.is_empty()))
    {
        let (path, schema_path) = (format!("{spec}.selectableFields"), format!("{spec}.schema.openAPIV3Schema"));
        let selectable = At::part(&path, selectable);
        match common("schema.openAPIV3Schema") {
            Some(schema) => schema::selectable_fields(&selectable, &At::part(&schema_path, schema), errors),
            None => errors.invalid_value(&selectable, "", "may only be set when validations.schema is included"),
        }
    }
}

fn version_name(name: &At<'_, '_>, errors: &mut Errors) {
    let problems = names::is_dns1035_label(name.text());
    if !problems.is_empty() {
        errors.invalid_text(name, problems.join(","));
    }
}

fn deprecation(version: &At<'_, '_>, errors: &mut Errors) {
    let warning = version.at("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    if !version.at("deprecated").flag() {
        return errors.invalid(&warning, "can only be set for deprecated versions");
    }
    if warning.text().len() > 256 {
        errors.invalid(&warning, "must be <= 256 characters long");
    }
    if warning.text().is_empty() {
        errors.invalid(&warning, "must not be an empty string");
    }
    if let Some((index, _)) = warning.text().char_indices().find(|(_, c)| c.is_control()) {
        errors.invalid(
            &warning,
            format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"),
        );
    }
}

fn validate_names(at: &At<'_, '_>, errors: &mut Errors) {
    let mut label = |name: &At<'_, '_>, mixed: bool| {
        let text = if mixed { name.text().to_lowercase() } else { name.text().to_owned() };
        let problems = names::is_dns1035_label(&text);
        if !problems.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid_text(name, format!("{prefix}{}", problems.join(",")));
        }
    };
    for (field, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = at.at(field);
        if !name.text().is_empty() {
            label(&name, mixed);
        }
    }
    at.at("shortNames").items().for_each(|name| label(&name, false));
    at.at("categories").items().for_each(|name| label(&name, false));
    if !at.text_at("kind").is_empty() && at.text_at("kind") == at.text_at("listKind") {
        errors.invalid(&at.at("listKind"), "kind and listKind may not be the same");
    }
}

fn validate_column(column: &At<'_, '_>, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    errors.required_text(&column.at("name"));
    let (kind, format) = (column.at("type"), column.at("format"));
    let detail = format!("must be one of {}", TYPES.join(","));
    if kind.text().is_empty() {
        errors.required(&kind, detail);
    } else if !TYPES.contains(&kind.text()) {
        errors.invalid(&kind, detail);
    }
    if !format.text().is_empty() && !FORMATS.contains(&format.text()) {
        errors.invalid(&format, format!("must be one of {}", FORMATS.join(",")));
    }
    let path = column.named("JSONPath", "jsonPath");
    if errors.required_text(&path) {
        simple_path(&path, errors);
    }
}

/// A path of fields from the root. Whether it is in order.
fn simple_path(at: &At<'_, '_>, errors: &mut Errors) -> bool {
    let good = at.text().starts_with('.');
    if !good {
        errors.invalid_text(at, "must be a simple json path starting with .");
    }
    good
}

fn validate_subresources(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.has("scale") {
        return;
    }
    for (field, prefix) in [("scale.specReplicasPath", ".spec"), ("scale.statusReplicasPath", ".status")] {
        let path = at.at(field);
        if errors.required_text(&path) && simple_path(&path, errors) && !path.text().starts_with(&format!("{prefix}."))
        {
            errors.invalid(&path, format!("should be a json path under {prefix}"));
        }
    }
    let selector = at.at("scale.labelSelectorPath");
    let below = [".spec.", ".status."].iter().any(|prefix| selector.text().starts_with(prefix));
    if !selector.text().is_empty() && simple_path(&selector, errors) && !below {
        errors.invalid(&selector, "should be a json path under either .spec or .status");
    }
}
