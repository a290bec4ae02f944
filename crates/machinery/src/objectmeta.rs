//! What is right in `metadata`, for every kind alike.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use crate::gvk::GroupVersion;
use crate::names::{self, NameFn};
use crate::status::FieldError;
use crate::value::{int, list, text};

/// The most bytes that the keys and values of all annotations may add up to.
pub const MAX_ANNOTATIONS: usize = 256 << 10;

const MAX_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;
const MAX_REASON: usize = 1 << 10;
const MAX_MESSAGE: usize = 32 << 10;
const IMMUTABLE: &str = "field is immutable";

/// Checks the metadata of an object that is created. Its name has been generated already, where that was asked for.
pub fn validate_object_meta(meta: &Value, namespaced: bool, name_fn: NameFn, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        let problems = name_fn(prefix, true).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.generateName"), prefix, problem)));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "name or generateName is required"));
    } else {
        let problems = name_fn(name, false).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.name"), name, problem)));
    }
    let namespace = text(meta, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(format!("{path}.namespace"), "")),
        (true, false) => {
            let problems = names::is_dns1123_label(namespace).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.namespace"), namespace, problem)));
        }
        (false, false) => errors.push(FieldError::forbidden(format!("{path}.namespace"), "not allowed on this type")),
        (false, true) => {}
    }
    validate_generation(meta, path, &mut errors);
    validate_collections(meta, path, &mut errors);
    validate_finalizers(&list_of_text(meta, "finalizers"), &format!("{path}.finalizers"), &mut errors);
    validate_managed_fields(meta, &format!("{path}.managedFields"), &mut errors);
    errors
}

/// Checks the metadata of an object that is updated: what every object must have right, whatever its kind says of names, and
/// what may not change.
pub fn validate_object_meta_update(new: &Value, old: &Value, namespaced: bool, path: &str) -> Vec<FieldError> {
    let mut errors = validate_object_meta(new, namespaced, names::name_is_path_segment, path);
    validate_change(new, old, path, &mut errors);
    errors
}

/// What upstream finds beyond [`validate_object_meta_update`] where two parts of it look at an update, one after the other: what may not change
/// once more, and twice more what is wrong with lists and maps, because the first part does not look at these only once.
pub fn validate_object_meta_again(new: &Value, old: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_collections(new, path, &mut errors);
    validate_change(new, old, path, &mut errors);
    validate_collections(new, path, &mut errors);
    errors
}

fn validate_collections(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_labels(&meta["labels"], &format!("{path}.labels"), errors);
    validate_annotations(&meta["annotations"], &format!("{path}.annotations"), errors);
    validate_owner_references(meta, &format!("{path}.ownerReferences"), errors);
}

/// What an update may not change.
fn validate_change(new: &Value, old: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !old["deletionTimestamp"].is_null() {
        let (new, old) = (list_of_text(new, "finalizers"), list_of_text(old, "finalizers"));
        let mut extra: Vec<&str> = new.into_iter().filter(|finalizer| !old.contains(finalizer)).collect();
        if !extra.is_empty() {
            extra.sort_unstable();
            extra.dedup();
            let shown: Vec<String> = extra.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            errors.push(FieldError::forbidden(
                format!("{path}.finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    shown.join(", ")
                ),
            ));
        }
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(format!("{path}.resourceVersion"), "", "must be specified for an update"));
    }
    let (generation, before) = (int(new, "generation").unwrap_or(0), int(old, "generation").unwrap_or(0));
    if generation < before {
        errors.push(FieldError::invalid(format!("{path}.generation"), generation, "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        if text(new, field) != text(old, field) {
            errors.push(FieldError::invalid(format!("{path}.{field}"), text(new, field), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new[field] != old[field] {
            errors.push(FieldError::invalid(format!("{path}.{field}"), new[field].clone(), IMMUTABLE));
        }
    }
}

/// Takes out owners that are given twice; the uids of those that were.
pub fn dedup_owner_references(object: &mut Value) -> Vec<String> {
    let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
        return Vec::new();
    };
    let mut twice = Vec::new();
    let mut seen = HashSet::with_capacity(owners.len());
    owners.retain(|owner| {
        let is_new = seen.insert(owner.clone());
        if !is_new {
            twice.push(text(owner, "uid").to_owned());
        }
        is_new
    });
    twice
}

/// Checks that finalizers of built-in kinds are among the few with plain names, or say whose they are.
pub fn validate_kube_finalizers(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    for (at, finalizer) in list_of_text(meta, "finalizers").into_iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{path}.finalizers[{at}]"), finalizer, detail));
        }
    }
}

/// Checks a map of labels (or null), wherever one stands.
pub fn validate_labels(labels: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let problems = names::is_qualified_name(key).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, key.as_str(), problem)));
        let value = value.as_str().unwrap_or_default();
        let problems = names::is_label_value(value).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, value, problem)));
    }
}

/// Checks a map of annotations (or null). Their keys may be of either case.
pub fn validate_annotations(annotations: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Well-formed keys need no lower-case copy.
        if names::is_qualified_name(key).is_empty() {
            continue;
        }
        let problems = names::is_qualified_name(&key.to_lowercase()).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, key.as_str(), problem)));
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(path, MAX_ANNOTATIONS));
    }
}

/// Checks a `metav1.LabelSelector` (or null).
pub fn validate_label_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_labels(&selector["matchLabels"], &format!("{path}.matchLabels"), errors);
    for (at, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        let values = list_of_text(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(format!("{path}.operator"), other, "not a valid selector operator"));
            }
        }
        let key = text(expression, "key");
        let problems = names::is_qualified_name(key).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.key"), key, problem)));
        for (at, value) in values.iter().enumerate() {
            let problems = names::is_label_value(value).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.values[{at}]"), *value, problem)));
        }
    }
}

/// Checks the name of a writer of fields.
pub fn validate_field_manager(manager: &str, path: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > MAX_MANAGER {
        errors.push(FieldError::too_long(path, MAX_MANAGER));
    }
    for (at, letter) in manager.char_indices().filter(|(_, letter)| !is_print(*letter)) {
        let code = u32::from(letter);
        errors.push(FieldError::invalid(path, manager, format!("invalid character U+{code:04X} (at position {at})")));
    }
}

/// The name of a writer of fields: the one it gives itself, or what its user agent has before the first slash.
pub fn field_manager<'a>(manager: &'a str, user_agent: &'a str) -> Cow<'a, str> {
    if !manager.is_empty() {
        return manager.into();
    }
    let name = user_agent.split('/').next().unwrap_or_default();
    if name.len() <= MAX_MANAGER && name.chars().all(is_print) {
        return name.into();
    }
    let mut short = String::new();
    for letter in name.chars().filter(|letter| is_print(*letter)) {
        if short.len() + letter.len_utf8() > MAX_MANAGER {
            break;
        }
        short.push(letter);
    }
    short.into()
}

/// Checks a list of `metav1.Condition`.
pub fn validate_conditions(conditions: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (at, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(path.as_str(), kind));
        }
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), "is required"));
        } else {
            let problems = names::is_qualified_name(kind).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.type"), kind, problem)));
        }
        match text(condition, "status") {
            "" => errors.push(FieldError::required(format!("{path}.status"), "")),
            "True" | "False" | "Unknown" => {}
            other => {
                let supported = ["False", "True", "Unknown"];
                errors.push(FieldError::not_supported(format!("{path}.status"), other, supported));
            }
        }
        let observed = int(condition, "observedGeneration").unwrap_or(0);
        if observed < 0 {
            let detail = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(format!("{path}.observedGeneration"), observed, detail));
        }
        if text(condition, "lastTransitionTime").is_empty() {
            errors.push(FieldError::required(format!("{path}.lastTransitionTime"), ""));
        }
        let reason = text(condition, "reason");
        if reason.is_empty() {
            errors.push(FieldError::required(format!("{path}.reason"), ""));
        } else {
            let problems = names::is_valid_condition_reason(reason).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.reason"), reason, problem)));
            if reason.len() > MAX_REASON {
                errors.push(FieldError::too_long(format!("{path}.reason"), MAX_REASON));
            }
        }
        if text(condition, "message").len() > MAX_MESSAGE {
            errors.push(FieldError::too_long(format!("{path}.message"), MAX_MESSAGE));
        }
    }
}

/// Go's notion of a printable character: letters, marks, numbers, punctuation, symbols, and the plain space.
fn is_print(letter: char) -> bool {
    letter == ' '
        || !(letter.is_control()
            || letter.is_whitespace()
            || matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{f0000}'..))
}

fn list_of_text<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    list(value, path).iter().map(|item| item.as_str().unwrap_or_default()).collect()
}

fn validate_generation(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let generation = int(meta, "generation").unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.generation"), generation, detail));
    }
}

fn validate_owner_references(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let references = list(meta, "ownerReferences");
    let mut controller: Option<String> = None;
    for (at, reference) in references.iter().enumerate() {
        let path_at = format!("{path}[{at}]");
        let (api_version, kind, name) =
            (text(reference, "apiVersion"), text(reference, "kind"), text(reference, "name"));
        let version = GroupVersion::parse(api_version);
        if api_version.is_empty() {
            errors.push(FieldError::required(format!("{path_at}.apiVersion"), "must not be empty"));
        } else if version.as_ref().is_none_or(|version| version.version.is_empty()) {
            let detail = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(format!("{path_at}.apiVersion"), api_version, detail));
        }
        for field in ["kind", "name", "uid"] {
            if text(reference, field).is_empty() {
                errors.push(FieldError::required(format!("{path_at}.{field}"), "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path_at, reference.clone(), detail));
        }
        if reference["controller"] == true {
            let this = format!("{kind}/{name}");
            match &controller {
                None => controller = Some(this),
                Some(first) => errors.push(FieldError::invalid(
                    path,
                    references.to_vec(),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"),
                )),
            }
        }
    }
}

fn validate_finalizers(finalizers: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for finalizer in finalizers {
        let problems = names::is_qualified_name(finalizer).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, *finalizer, problem)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers.to_vec(), detail));
    }
}

/// Checks the record of field owners.
pub fn validate_managed_fields(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (at, entry) in list(meta, "managedFields").iter().enumerate() {
        let path = format!("{path}[{at}]");
        match text(entry, "operation") {
            "" => errors.push(FieldError::required(format!("{path}.operation"), "must not be empty")),
            "Apply" | "Update" => {}
            other => {
                errors.push(FieldError::not_supported(format!("{path}.operation"), other, ["Apply", "Update"]));
            }
        }
        let fields_type = text(entry, "fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(FieldError::invalid(format!("{path}.fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        validate_field_manager(text(entry, "manager"), &format!("{path}.manager"), errors);
        if text(entry, "subresource").len() > MAX_SUBRESOURCE {
            errors.push(FieldError::too_long(format!("{path}.subresource"), MAX_SUBRESOURCE));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(meta: Value) -> Vec<String> {
        let errors = validate_object_meta(&meta, true, names::name_is_dns_subdomain, "metadata");
        errors.iter().map(|error| error.to_string().split(" (e.g.").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn created_metadata_is_checked_whole() {
        let good = json!({
            "name": "a", "namespace": "n", "generateName": "a-", "labels": {"a/b": "c"}, "annotations": {"Ä": "x", "A/B": "x"},
        });
        assert_eq!(created(good).len(), 1, "the umlaut alone is wrong");
        assert_eq!(
            created(json!({"generation": -1})),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        assert_eq!(
            created(json!({"name": "a", "namespace": "n", "annotations": {"a": "x".repeat(MAX_ANNOTATIONS)}})),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
        assert_eq!(
            created(json!({"name": "a", "namespace": "n", "finalizers": ["orphan", "foregroundDeletion", "-"]}))[1],
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\",\"-\"]: finalizer orphan and foregroundDeletion cannot be both set"
        );
        let cluster =
            validate_object_meta(&json!({"name": "a", "namespace": "n"}), false, names::name_is_dns_label, "metadata");
        assert_eq!(cluster[0].to_string(), "metadata.namespace: Forbidden: not allowed on this type");
    }

    #[test]
    fn owners_and_writers_are_checked() {
        let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": true});
        assert_eq!(
            created(json!({"name": "a", "namespace": "n", "ownerReferences": [owner("x"), owner("y")]}))[0]
                .split("]: ")
                .nth(1),
            Some(
                "Only one reference can have Controller set to true. Found \"true\" in references for ReplicaSet/x and ReplicaSet/y"
            )
        );
        assert_eq!(
            created(json!({"name": "a", "namespace": "n", "ownerReferences": [{"apiVersion": "a/b/c", "kind": "K"}]})),
            [
                "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>",
                "metadata.ownerReferences[0].name: Required value: must not be empty",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ]
        );
        assert_eq!(
            created(
                json!({"name": "a", "namespace": "n", "managedFields": [{"operation": "Make", "fieldsType": "V2", "manager": "a\n"}]})
            ),
            [
                "metadata.managedFields[0].operation: Unsupported value: \"Make\": supported values: \"Apply\", \"Update\"",
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\n\": invalid character U+000A (at position 1)",
            ]
        );
    }

    #[test]
    fn updates_leave_identity_alone() {
        let old = json!({"name": "a", "uid": "1", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]});
        let validate_object_meta_update =
            |new: &Value, old: &Value, path: &str| super::validate_object_meta_update(new, old, false, path);
        let mut new = old.clone();
        new["resourceVersion"] = json!("7");
        assert_eq!(validate_object_meta_update(&new, &old, "metadata"), []);
        let errors = validate_object_meta_update(
            &json!({"name": "b", "uid": "2", "generation": 1, "finalizers": ["z", "x", "y"]}),
            &old,
            "metadata",
        );
        let errors: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        assert_eq!(
            errors,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"y\", \"z\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
        // What a new object must have right, a changed one must, too; its name was judged when it was made.
        let changed = json!({"name": "A", "resourceVersion": "7", "finalizers": ["A b/c"], "labels": {"a": "-"}});
        let errors = validate_object_meta_update(&changed, &json!({"name": "A"}), "metadata");
        let paths: Vec<&str> = errors.iter().map(|error| &*error.path).collect();
        assert_eq!(paths, ["metadata.labels", "metadata.finalizers"]);
    }

    #[test]
    fn writers_are_named_after_themselves_or_their_agent() {
        assert_eq!(field_manager("me", "kubectl/v1"), "me");
        assert_eq!(field_manager("", "kubectl/v1.32 (linux)"), "kubectl");
        assert_eq!(field_manager("", "ku\u{7}be"), "kube");
        assert_eq!(field_manager("", &"x".repeat(200)).len(), 128);
    }

    #[test]
    fn conditions_are_checked() {
        let good = json!({"type": "Ready", "status": "True", "reason": "AllGood", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut errors = Vec::new();
        validate_conditions(
            &[good.clone(), good, json!({"type": "X", "status": "Maybe", "reason": "1"})],
            "status.conditions",
            &mut errors,
        );
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "status.conditions[1]",
                "status.conditions[2].status",
                "status.conditions[2].lastTransitionTime",
                "status.conditions[2].reason"
            ]
        );
    }
}
