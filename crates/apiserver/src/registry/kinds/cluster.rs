//! Kinds that differ from the plain ones in a rule or two.

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::NameRule;
use super::apps::immutable;
use crate::rest::keep;

/// Roles and bindings.
pub struct Rbac;

impl Strategy for Rbac {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        const GROUP: &str = "rbac.authorization.k8s.io";
        if value::at(object, "roleRef").is_some() {
            value::set_default(object, "roleRef.apiGroup", GROUP);
        }
        for subject in value::list_mut(object, "subjects") {
            if matches!(value::text(subject, "kind"), "User" | "Group") {
                value::set_default(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let changed = value::at(new, "roleRef") != value::at(old, "roleRef");
        let shown = value::at(new, "roleRef").cloned().unwrap_or(Value::Null);
        changed.then(|| FieldError::invalid("roleRef", shown, "cannot change roleRef")).into_iter().collect()
    }
}

/// Secrets.
pub struct Secrets;

impl Strategy for Secrets {
    fn fields(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn default(&self, secret: &mut Value) {
        value::set_default(secret, "type", "Opaque");
    }

    /// What is written in plain text is kept as bytes.
    fn prepare_for_create(&self, secret: &mut Value) {
        merge_plain(secret);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        merge_plain(new);
        if value::text(new, "type").is_empty() {
            keep(new, old, "type");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = immutable(new, old, "type").into_iter().collect();
        if value::flag(old, "immutable") {
            if !value::flag(new, "immutable") {
                errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
            }
            if value::at(new, "data") != value::at(old, "data") {
                errors.push(FieldError::forbidden("data", "field is immutable when `immutable` is set"));
            }
        }
        errors
    }
}

fn merge_plain(secret: &mut Value) {
    use base64::Engine as _;
    let Some(plain) = value::remove(secret, "stringData") else { return };
    let data = value::object_mut(secret, "data");
    for (key, text) in plain.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key.clone(), json!(encoded));
    }
}

/// Events.
pub struct Events;

impl Strategy for Events {
    fn fields(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
            "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
            "reportingComponent", "source", "type",
        ]
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

/// PersistentVolumes.
pub struct PersistentVolumes;

impl Strategy for PersistentVolumes {
    fn default(&self, volume: &mut Value) {
        value::set_default(volume, "spec.persistentVolumeReclaimPolicy", "Retain");
        value::set_default(volume, "spec.volumeMode", "Filesystem");
        value::set_default(volume, "status.phase", "Pending");
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        value::set(volume, "status", json!({"phase": "Pending"}));
    }
}

/// CertificateSigningRequests: their spec is what was asked for, by whom, and never changes.
pub struct CertificateSigningRequests;

impl Strategy for CertificateSigningRequests {
    fn fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }
}
