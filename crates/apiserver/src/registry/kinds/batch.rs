//! Jobs and CronJobs.

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::apps::immutable;
use super::pod_spec;

/// The labels that tie pods to their job: the new ones and the ones from before.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// Jobs.
pub struct Jobs;

fn default_spec(object: &mut Value, path: &str) {
    let at = |field: &str| format!("{path}.{field}");
    pod_spec::default(object, &at("template.spec"));
    if value::at(object, &at("completions")).is_none() && value::at(object, &at("parallelism")).is_none() {
        value::set(object, &at("completions"), 1);
    }
    value::set_default(object, &at("parallelism"), 1);
    let per_index = value::at(object, &at("backoffLimitPerIndex")).is_some();
    value::set_default(object, &at("backoffLimit"), if per_index { i64::from(i32::MAX) } else { 6 });
    value::set_default(object, &at("completionMode"), "NonIndexed");
    value::set_default(object, &at("suspend"), false);
    let failed = value::at(object, &at("podFailurePolicy")).is_some();
    value::set_default(object, &at("podReplacementPolicy"), if failed { "Failed" } else { "TerminatingOrFailed" });
    value::set_default(object, &at("manualSelector"), false);
}

impl Strategy for Jobs {
    fn fields(&self) -> &'static [&'static str] {
        &["status.successful"]
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        default_spec(object, "spec");
    }

    /// A job chooses its pods by its own uid, unless the user insists on another way.
    fn prepare_for_create(&self, object: &mut Value) {
        if value::flag(object, "spec.manualSelector") {
            return;
        }
        let uid = value::text(object, "metadata.uid").to_owned();
        let name = value::text(object, "metadata.name").to_owned();
        let template = value::object_mut(object, "spec").entry("template").or_insert(Value::Null);
        let metadata = value::object_mut(template, "metadata");
        let labels = value::as_object_mut(metadata.entry("labels").or_insert(Value::Null));
        for label in UID_LABELS {
            labels.insert(label.to_owned(), json!(uid));
        }
        for label in NAME_LABELS {
            labels.insert(label.to_owned(), json!(name));
        }
        if let Some(spec) = value::at_mut(object, "spec").and_then(Value::as_object_mut) {
            let selector = spec.entry("selector").or_insert_with(|| json!({}));
            value::object_mut(selector, "matchLabels").insert(UID_LABELS[0].to_owned(), json!(uid));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = pod_spec::validate(object, "spec.template.spec");
        let path = "spec.template.spec.restartPolicy";
        let policy = value::text(object, path);
        if policy == "Always" {
            let detail = format!("valid values: {:?}, {:?}", "OnFailure", "Never");
            errors.push(FieldError { reason: machinery::status::FieldReason::NotSupported, path: path.to_owned(), value: Some(json!(policy)), detail: detail.replace("valid values", "supported values") });
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        ["spec.selector", "spec.completionMode"].into_iter().filter_map(|path| immutable(new, old, path)).collect()
    }

    fn orphans_by_default(&self) -> bool {
        true
    }
}

/// CronJobs.
pub struct CronJobs;

impl Strategy for CronJobs {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "spec.jobTemplate.spec.template.spec");
        value::set_default(object, "spec.concurrencyPolicy", "Allow");
        value::set_default(object, "spec.suspend", false);
        value::set_default(object, "spec.successfulJobsHistoryLimit", 3);
        value::set_default(object, "spec.failedJobsHistoryLimit", 1);
    }
}
