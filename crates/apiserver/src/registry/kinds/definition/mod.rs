//! CustomResourceDefinitions.
//!
//! Upstream checks them in an older form, in which what all versions have in common stands at the top; its paths show it.

mod schema;

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::admission::{client_config, review_versions};
use super::common::{At, Errors};
use crate::rest::keep;

const APPROVAL: &str = "api-approved.kubernetes.io";

/// What everybody is told who writes a definition: it is checked and kept, and that is all.
const NOT_SERVED: &str =
    "custom resources are not served yet: the definition is kept, and nothing answers at its versions";

/// CustomResourceDefinitions.
pub struct Definitions;

impl Strategy for Definitions {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, definition: &mut Value) {
        let kind = value::text(definition, "spec.names.kind").to_owned();
        if value::text(definition, "spec.names.singular").is_empty() && !kind.is_empty() {
            value::set(definition, "spec.names.singular", kind.to_lowercase());
        }
        if value::text(definition, "spec.names.listKind").is_empty() && !kind.is_empty() {
            value::set(definition, "spec.names.listKind", format!("{kind}List"));
        }
        value::set_default(definition, "spec.conversion", json!({"strategy": "None"}));
        if value::at(definition, "spec.conversion.webhook.clientConfig.service").is_some_and(Value::is_object) {
            value::set_default(definition, "spec.conversion.webhook.clientConfig.service.port", 443);
        }
    }

    fn prepare_for_create(&self, definition: &mut Value) {
        // Whoever waits for a definition to be established reads here why it is not.
        let condition = json!({
            "type": "Established", "status": "False", "reason": "NotServed", "message": NOT_SERVED,
            "lastTransitionTime": value::at(definition, "metadata.creationTimestamp"),
        });
        let names = json!({"plural": "", "kind": ""});
        value::set(
            definition,
            "status",
            json!({"conditions": [condition], "acceptedNames": names, "storedVersions": []}),
        );
        remember_storage(definition);
    }

    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        vec![NOT_SERVED.to_owned()]
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        remember_storage(new);
    }

    fn validate(&self, definition: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(definition);
        let name = root.at("metadata.name");
        let wanted = format!("{}.{}", root.text_at("spec.names.plural"), root.text_at("spec.group"));
        if name.text() != wanted {
            errors.invalid_text(&name, "must be spec.names.plural+\".\"+spec.group");
        }
        validate_spec(&root.at("spec"), &mut errors);
        validate_names(&root.at("status.acceptedNames"), &mut errors);
        stored_versions(&root, &mut errors);
        approval(&root, None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        validate_spec(&spec, &mut errors);
        let conditions = value::list(old, "status.conditions");
        let established =
            conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True");
        if established {
            errors.immutable(&spec.at("scope"), &before.at("scope"));
            errors.immutable(&spec.at("names.kind"), &before.at("names.kind"));
        }
        errors.immutable(&spec.at("group"), &before.at("group"));
        errors.immutable(&spec.at("names.plural"), &before.at("names.plural"));
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
        return errors.invalid(&stored, "must have at least one stored version");
    }
    for version in versions.items().filter(|version| version.at("storage").flag()) {
        let name = version.text_at("name");
        if !stored.items().any(|known| known.text() == name) {
            errors.invalid(&stored, format!("must have the storage version {name}"));
        }
    }
    for version in stored.items() {
        let name = version.text();
        if !versions.items().any(|known| known.text_at("name") == name) {
            errors.invalid(&version, format!("missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"));
        }
    }
}

/// Groups of the community need its approval.
fn approval(new: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let group = new.text_at("spec.group");
    let guarded = |suffix: &str| group == suffix || group.ends_with(&format!(".{suffix}"));
    if !guarded("k8s.io") && !guarded("kubernetes.io") {
        return;
    }
    let annotations = new.at("metadata.annotations");
    let annotation = annotations.key(APPROVAL);
    if old.is_some_and(|old| old.at("metadata.annotations").key(APPROVAL).value() == annotation.value()) {
        return;
    }
    let text = annotation.text();
    if text.is_empty() {
        errors.required(&annotation, format!("protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"));
    } else if !text.starts_with("unapproved") && text.split_once("://").is_none_or(|(_, rest)| rest.is_empty()) {
        errors.invalid(&annotation, format!("protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"));
    }
}

/// What all versions have alike, if they do and have it at all.
fn common<'v>(versions: &At<'_, 'v>, field: &str) -> Option<&'v Value> {
    let first = value::at(versions.value().get(0)?, field)?;
    versions.items().all(|version| value::at(version.value(), field) == Some(first)).then_some(first)
}

fn validate_spec(spec: &At<'_, '_>, errors: &mut Errors) {
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
        errors.invalid(
            &preserve,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
    validate_versions(spec, &versions, errors);
    for field in ["names.plural", "names.singular", "names.kind", "names.listKind"] {
        errors.required_text(&spec.at(field));
    }
    validate_names(&spec.at("names"), errors);
    conversion(&spec.at("conversion"), errors);
}

fn validate_versions(spec: &At<'_, '_>, versions: &At<'_, '_>, errors: &mut Errors) {
    let (schema, subresources, columns) =
        (common(versions, "schema"), common(versions, "subresources"), common(versions, "additionalPrinterColumns"));
    for version in versions.items() {
        let name = version.at("name");
        let problems = names::is_dns1035_label(name.text());
        if !problems.is_empty() {
            errors.invalid_text(&name, problems.join(","));
        }
        deprecation(&version, errors);
        let status = version.has("subresources.status");
        if schema.is_none() {
            schema::validate(&version.at("schema"), status, errors);
        }
        if subresources.is_none() {
            validate_subresources(&version.at("subresources"), errors);
        }
        if columns.is_none() {
            for column in version.at("additionalPrinterColumns").items() {
                validate_column(&column, errors);
            }
        }
    }
    for (index, version) in versions.items().enumerate() {
        if versions.items().take(index).any(|known| known.text_at("name") == version.text_at("name")) {
            errors.invalid(versions, "must contain unique version names");
            break;
        }
    }
    if versions.items().filter(|version| version.at("storage").flag()).count() != 1 {
        errors.invalid(versions, "must have exactly one version marked as storage version");
    }
    if let Some(common) = schema {
        let status = versions.items().any(|version| version.has("subresources.status"));
        let path = format!("{spec}.validation");
        schema::validate(&At::part(&path, common), status, errors);
    }
    if let Some(common) = subresources {
        let path = format!("{spec}.subresources");
        validate_subresources(&At::part(&path, common), errors);
    }
    if let Some(common) = columns {
        let path = format!("{spec}.additionalPrinterColumns");
        for column in At::part(&path, common).items() {
            validate_column(&column, errors);
        }
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

fn conversion(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let strategy = at.at("strategy");
    errors.required_one_of(&strategy, &["None", "Webhook"]);
    let client = at.named("webhookClientConfig", "webhook.clientConfig");
    let versions = at.named("conversionReviewVersions", "webhook.conversionReviewVersions");
    if strategy.text() == "Webhook" {
        if client.is_set() {
            client_config(&client, errors);
        } else {
            errors.required(&client, "required when strategy is set to Webhook");
        }
        review_versions(&versions, "", errors);
    } else {
        errors.forbidden_if_set(&client, "should not be set when strategy is not set to Webhook");
        if !versions.is_empty() {
            errors.forbidden(&versions, "should not be set when strategy is not set to Webhook");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(definition: &Value) -> Vec<String> {
        let mut definition = definition.clone();
        Definitions.default(&mut definition);
        Definitions.prepare_for_create(&mut definition);
        Definitions.validate(&definition).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn definitions_are_checked_in_upstreams_words() {
        let good = json!({"metadata": {"name": "tabs.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "tabs", "kind": "Tab"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}}]}});
        assert_eq!(shown(&good), Vec::<String>::new());
        let mut bad = good.clone();
        bad["spec"]["group"] = json!("example");
        bad["spec"]["versions"][0]["storage"] = json!(false);
        bad["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "A", "type": "text", "jsonPath": "spec"}]);
        bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"properties": {"a": {"type": "array"}}});
        let errors = shown(&bad);
        for expected in [
            "metadata.name: Invalid value: \"tabs.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified",
            "status.storedVersions: Invalid value: []: must have at least one stored version",
        ] {
            assert!(errors.contains(&expected.to_owned()), "{expected} is not in {errors:#?}");
        }
    }
}
