//! Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::pod_spec;
use crate::rest::keep;

/// Deployments.
pub struct Deployments;

impl Strategy for Deployments {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.template.spec");
        value::set_default(object, "spec.replicas", 1);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.progressDeadlineSeconds", 600);
        value::set_default(object, "spec.strategy.type", "RollingUpdate");
        if value::text(object, "spec.strategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
            value::set_default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
        }
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "metadata.labels");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_set(object);
        let kind = value::text(object, "spec.strategy.type");
        if !matches!(kind, "Recreate" | "RollingUpdate") {
            errors.push(FieldError::not_supported("spec.strategy.type", kind, ["Recreate", "RollingUpdate"]));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }
}

/// ReplicaSets.
pub struct ReplicaSets;

impl Strategy for ReplicaSets {
    fn fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.template.spec");
        value::set_default(object, "spec.replicas", 1);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_set(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_set(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }
}

/// StatefulSets.
pub struct StatefulSets;

impl Strategy for StatefulSets {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.template.spec");
        value::set_default(object, "spec.replicas", 1);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.podManagementPolicy", "OrderedReady");
        value::set_default(object, "spec.updateStrategy.type", "RollingUpdate");
        if value::text(object, "spec.updateStrategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.updateStrategy.rollingUpdate.partition", 0);
        }
        value::set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
        value::set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
        for claim in value::list_mut(object, "spec.volumeClaimTemplates") {
            value::set_default(claim, "spec.volumeMode", "Filesystem");
            value::set_default(claim, "status.phase", "Pending");
            value::set_default(claim, "apiVersion", "v1");
            value::set_default(claim, "kind", "PersistentVolumeClaim");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        value::set(object, "status", json!({"replicas": 0, "availableReplicas": 0}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_set(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_set(new);
        let fixed = |object: &Value| {
            let mut spec = value::at(object, "spec").cloned().unwrap_or(Value::Null);
            for field in ["replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "minReadySeconds"] {
                value::remove(&mut spec, field);
            }
            spec
        };
        if fixed(new) != fixed(old) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden("spec", detail));
        }
        errors
    }
}

/// DaemonSets.
pub struct DaemonSets;

impl Strategy for DaemonSets {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.template.spec");
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.updateStrategy.type", "RollingUpdate");
        if value::text(object, "spec.updateStrategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let status = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0});
        value::set(object, "status", status);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_set(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_set(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }
}

/// ReplicationControllers.
pub struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.template.spec");
        value::set_default(object, "spec.replicas", 1);
        if let Some(labels) = value::at(object, "spec.template.metadata.labels").cloned() {
            value::set_default(object, "spec.selector", labels.clone());
            value::set_default(object, "metadata.labels", labels);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn orphans_by_default(&self) -> bool {
        true
    }
}

/// What every set of pods needs: a selector that chooses its own template's pods.
fn validate_set(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match value::at(object, "spec.selector").filter(|selector| !selector.is_null()) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => match LabelSelector::from_value(selector) {
            Err(why) => errors.push(FieldError::invalid("spec.selector", selector.clone(), why)),
            Ok(chosen) if chosen.is_empty() => {
                let detail = "empty selector is invalid for deployment";
                errors.push(FieldError::invalid("spec.selector", selector.clone(), detail));
            }
            Ok(chosen) => {
                let labels = value::at(object, "spec.template.metadata.labels");
                let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
                if !chosen.matches(label) {
                    let shown = labels.cloned().unwrap_or(Value::Null);
                    let detail = "`selector` does not match template `labels`";
                    errors.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
                }
            }
        },
    }
    if let Some(replicas) = value::int(object, "spec.replicas").filter(|replicas| *replicas < 0) {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
    errors.extend(pod_spec::validate(object, "spec.template.spec"));
    let policy = value::text(object, "spec.template.spec.restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, policy, ["Always"]));
    }
    errors
}

/// A field that stays as it was made.
pub fn immutable(new: &Value, old: &Value, path: &str) -> Option<FieldError> {
    let (before, after) = (value::at(old, path), value::at(new, path));
    (before != after)
        .then(|| FieldError::invalid(path, after.cloned().unwrap_or(Value::Null), "field is immutable"))
}
