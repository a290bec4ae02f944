//! Empty lists and maps: where upstream's rules tell them from absent ones, and when they are forgotten.
//!
//! Upstream decodes an explicit `[]` into an empty list that is not nil. Hardly any of its rules asks for the difference, JSON
//! leaves both out, and its storage format cannot express it: so the few fields where it matters are named here, kept while an
//! object is judged, and gone once it is stored.

use facts::{Field, Schema, Type};
use serde_json::Value;

use crate::codec::Path;
use crate::value::Object;

/// How long an empty list or map is distinct from an absent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinct {
    Never,
    /// While the object is made. Changes compare what was with what will be, and there both are the same.
    OnCreate,
    Always,
}

/// The form an object is brought into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is encoded for others: what is left out when empty is left out.
    Shown,
    /// As a change of it is judged.
    Judged,
    /// As it is stored: fields that are always written are null when they are empty.
    Stored,
}

/// Whether an empty list or map in this field, of an object at `at`, is kept for those who judge the whole.
pub(super) fn is_distinct(of: &Type, field: &Field, at: &Path<'_>) -> bool {
    distinct(of, field) != Distinct::Never
        || is_claim_metadata(at) && is_forbidden_metadata(of, field)
        || is_template_metadata(at) && of.short_name() == "ObjectMeta" && field.name == "labels"
}

/// Whether this is the place of the metadata of a template of pods: labels that a selector does not choose are shown as they are.
fn is_template_metadata(at: &Path<'_>) -> bool {
    matches!(at, Path::Key(Path::Key(_, "template"), "metadata"))
}

/// What the template of a claim must not say of its claims.
fn is_forbidden_metadata(of: &Type, field: &Field) -> bool {
    of.short_name() == "ObjectMeta" && matches!(&*field.name, "finalizers" | "ownerReferences" | "managedFields")
}

/// Whether this is the place of the metadata in the template of a claim, of whichever kind.
fn is_claim_metadata(at: &Path<'_>) -> bool {
    matches!(at, Path::Key(Path::Key(Path::Root, "spec") | Path::Key(_, "volumeClaimTemplate"), "metadata"))
}

fn distinct(of: &Type, field: &Field) -> Distinct {
    let Some((package, name)) = of.name.rsplit_once('.') else { return Distinct::Never };
    match (name, &*field.name) {
        // An overhead that nobody defined is refused, one of nothing too; so are claims of a whole pod.
        ("PodSpec", "overhead") | ("ResourceRequirements", "claims") => Distinct::OnCreate,
        ("PersistentVolumeSpec", "capacity") => Distinct::Always,
        ("HPAScalingRules", "policies") => Distinct::Always,
        ("ResourceSliceSpec", "devices" | "sharedCounters") => Distinct::Always,
        ("DeviceAttribute", "bools" | "ints" | "strings" | "versions") => Distinct::Always,
        (
            "JSONSchemaProps",
            "allOf"
            | "anyOf"
            | "definitions"
            | "dependencies"
            | "enum"
            | "oneOf"
            | "patternProperties"
            | "x-kubernetes-list-map-keys",
        ) if package.ends_with(".v1") => Distinct::Always,
        _ => Distinct::Never,
    }
}

/// Brings an object into a form. Answers whether empties are left in it that no later form has.
pub fn settle(value: &mut Value, of: &Type, form: Form) -> bool {
    match value {
        Value::Object(fields) => settle_object(fields, of, form, 0),
        _ => false,
    }
}

fn settle_object(fields: &mut Object, of: &Type, form: Form, depth: usize) -> bool {
    let mut kept = false;
    fields.retain(|key, value| {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return true;
        }
        let Some(field) = of.field(key) else { return true };
        let empty = match &*value {
            Value::Array(items) => items.is_empty() && field.schema.list().is_some(),
            Value::Object(entries) => entries.is_empty() && field.schema.map().is_some(),
            _ => false,
        };
        if !empty {
            kept |= settle_value(value, &field.schema, form, depth + 1);
            return true;
        }
        // An empty list of managers asks to forget them all; whoever keeps the record sees to it.
        if field.name == "managedFields" && depth == 1 {
            return true;
        }
        match form {
            Form::Stored if field.always => *value = Value::Null,
            Form::Stored => return false,
            Form::Shown => return field.always,
            Form::Judged if distinct(of, field) == Distinct::Always => kept = true,
            Form::Judged if field.always => *value = Value::Null,
            Form::Judged => return false,
        }
        true
    });
    kept
}

fn settle_value(value: &mut Value, schema: &Schema, form: Form, depth: usize) -> bool {
    let mut kept = false;
    match (value, schema) {
        // An entry without bytes has none, once it was stored.
        (value @ Value::Null, Schema::Bytes) if form == Form::Stored => *value = Value::from(""),
        (Value::Object(entries), Schema::Map(map)) => {
            entries.values_mut().for_each(|entry| kept |= settle_value(entry, &map.values, form, depth + 1));
        }
        (Value::Object(fields), schema) => {
            if let Some(of) = schema.object() {
                kept = settle_object(fields, of, form, depth);
            }
        }
        (Value::Array(items), Schema::Array(list)) => {
            items.iter_mut().for_each(|item| kept |= settle_value(item, &list.items, form, depth + 1));
        }
        _ => {}
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::conform;
    use super::*;

    fn decoded(group: &str, version: &str, kind: &str, mut object: Value) -> (Value, &'static Type) {
        let of = facts::type_of(group, version, kind).expect("a kind").def();
        conform(&mut object, of).expect("fits");
        (object, of)
    }

    #[test]
    fn empties_that_rules_ask_for_survive_decoding_and_no_longer() {
        let spec = json!({"overhead": {}, "nodeSelector": {}, "tolerations": [], "containers": []});
        let (mut pod, of) =
            decoded("", "v1", "Pod", json!({"metadata": {"labels": {}, "finalizers": []}, "spec": spec}));
        assert_eq!(pod, json!({"metadata": {}, "spec": {"overhead": {}, "containers": []}}));
        let mut shown = pod.clone();
        assert!(!settle(&mut shown, of, Form::Shown));
        assert_eq!(shown["spec"], json!({"containers": []}));
        assert!(!settle(&mut pod, of, Form::Judged));
        assert_eq!(pod["spec"], json!({"containers": null}));
    }

    #[test]
    fn a_change_is_judged_with_the_empties_that_it_may_not_bring() {
        let spec = json!({"behavior": {"scaleUp": {"policies": []}}, "metrics": []});
        let (mut hpa, of) = decoded("autoscaling", "v2", "HorizontalPodAutoscaler", json!({"spec": spec}));
        assert!(settle(&mut hpa, of, Form::Judged));
        assert_eq!(hpa["spec"], json!({"behavior": {"scaleUp": {"policies": []}}}));
        assert!(!settle(&mut hpa, of, Form::Stored));
        assert_eq!(hpa["spec"], json!({"behavior": {"scaleUp": {}}}));
    }

    #[test]
    fn what_is_always_written_is_null_once_it_is_stored() {
        let (mut role, of) = decoded("rbac.authorization.k8s.io", "v1", "Role", json!({"rules": []}));
        settle(&mut role, of, Form::Shown);
        assert_eq!(role, json!({"rules": []}));
        settle(&mut role, of, Form::Stored);
        assert_eq!(role, json!({"rules": null}));
    }

    #[test]
    fn what_storage_fills_in_is_not_told_apart() {
        let (mut secret, of) = decoded("", "v1", "Secret", json!({"data": {"a": null}}));
        settle(&mut secret, of, Form::Stored);
        assert_eq!(secret["data"], json!({"a": ""}));
        let (node, _) = decoded("", "v1", "Node", json!({"status": {"allocatable": {}}}));
        assert_eq!(node["status"], json!({}), "defaults make the capacity of it");
        let template = json!({"metadata": {"labels": {}, "annotations": {}}});
        let (set, _) = decoded("apps", "v1", "DaemonSet", json!({"spec": {"template": template}}));
        assert_eq!(set["spec"]["template"]["metadata"], json!({"labels": {}}));
    }

    #[test]
    fn templates_of_claims_show_what_they_must_not_have() {
        let spec = json!({"metadata": {"finalizers": [], "annotations": {}}, "spec": {}});
        let (template, _) = decoded("resource.k8s.io", "v1", "ResourceClaimTemplate", json!({"spec": spec}));
        assert_eq!(template["spec"]["metadata"], json!({"finalizers": []}));
    }
}
