//! Pods and pod templates.
//!
//! `defaults` fills in, `spec` and the files it calls check what is written, `update` and `status` check what changes, and
//! `warnings` says what is allowed and still odd.

pub mod columns;
pub mod container;
pub mod defaults;
pub mod resize;
pub mod resources;
pub mod scheduling;
pub mod security;
pub mod spec;
pub mod status;
pub mod subresources;
#[cfg(test)]
mod tests;
pub mod update;
pub mod volumes;
pub mod warnings;

use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::keep::{keep, keep_object_meta};
use crate::strategy::{Action, FieldName, Flags, Grace, Strategy, Subresource};

pub struct Pods;

impl Strategy for Pods {
    fn field_names(&self, _group: &str) -> Option<FieldName> {
        // What old clients call it.
        Some(|label| Some(if label == "spec.host" { "spec.nodeName" } else { label }.into()))
    }

    fn subresource(&self, name: &str) -> Option<Subresource> {
        match name {
            "binding" => Some(Subresource::Action(Action::Bind)),
            "eviction" => Some(Subresource::Action(Action::Evict)),
            "ephemeralcontainers" | "resize" | "status" => Some(Subresource::Part),
            _ => None,
        }
    }

    fn resets(&self, subresource: &str, has_status: bool) -> &'static [&'static str] {
        match subresource {
            "" if has_status => &["status"],
            "status" => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            _ => &[],
        }
    }

    fn fields(&self) -> &'static [Field] {
        const {
            &[
                Field::text("spec.nodeName"),
                Field::text("spec.restartPolicy"),
                Field::text("spec.schedulerName"),
                Field::text("spec.serviceAccountName"),
                Field::flag("spec.hostNetwork"),
                Field::text("status.phase"),
                Field::text("status.podIP"),
                Field::text("status.podIPs"),
                Field::text("status.nominatedNodeName"),
            ]
        }
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, pod: &mut Value) {
        defaults::default_pod(pod);
    }

    fn warnings_about_sent(&self, sent: &Value) -> Vec<String> {
        warnings::of_annotations(sent)
    }

    fn prepare_for_create(&self, pod: &mut Value) {
        drop_disabled(value::at_mut(pod, "spec"));
        scheduling::apply_label_keys(pod);
        security::sync_app_armor(pod);
        resize::defaults(pod);
        let class = rules::qos::class_in(pod).as_str();
        let mut status = json!({"phase": "Pending", "qosClass": class});
        if !value::list(pod, "spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
                "lastTransitionTime": value::at(pod, "metadata.creationTimestamp"), "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        value::set(pod, "status", status);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        if !value::at(new, "spec.resources").is_some_and(Value::is_object) {
            keep(new, old, "spec.resources");
        }
        drop_disabled(value::at_mut(new, "spec"));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "metadata.ownerReferences");
        keep(new, old, "metadata.deletionTimestamp");
        if value::text(new, "status.qosClass").is_empty() {
            keep(new, old, "status.qosClass");
        }
        // An older kubelet does not know of these and must not clear them.
        for path in ["status.resourceClaimStatuses", "status.extendedResourceClaimStatus"] {
            if value::at(new, path).is_none_or(Value::is_null) && value::at(old, path).is_some() {
                keep(new, old, path);
            }
        }
        status::keep_generations(new, old);
    }

    fn prepare_for_subresource_update(&self, subresource: &str, new: &mut Value, old: &Value) {
        match subresource {
            "ephemeralcontainers" => {
                let containers = value::at(new, "spec.ephemeralContainers").cloned();
                keep(new, old, "spec");
                keep(new, old, "status");
                keep_object_meta(new, old);
                match containers {
                    Some(containers) => value::set(new, "spec.ephemeralContainers", containers),
                    None => {
                        value::remove(new, "spec.ephemeralContainers");
                    }
                }
            }
            "resize" => resize::prepare(new, old),
            _ => self.prepare_for_update(new, old),
        }
    }

    fn validate(&self, pod: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let at = At::root(pod);
        spec::validate_pod(&at, &mut errors);
        let spec = at.at("spec");
        if !spec.at("ephemeralContainers").is_empty() {
            errors.forbidden(&spec.at("ephemeralContainers"), "cannot be set on create");
        }
        if !spec.text_at("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
            errors.forbidden(&spec.at("nodeName"), "cannot be set until all schedulingGates have been cleared");
        }
        security::annotations(&at.at("metadata"), &spec, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update::validate(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        status::validate(new, old)
    }

    fn validate_subresource_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        match subresource {
            "ephemeralcontainers" => update::validate_ephemeral_containers(new, old),
            "resize" => resize::validate(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// Programs, not people, change pods: they get no warnings.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() { Vec::new() } else { warnings::of_pod(new) }
    }

    fn grace(&self, pod: &Value, asked: Option<i64>) -> Grace {
        let unscheduled = value::text(pod, "spec.nodeName").is_empty();
        let terminated = matches!(value::text(pod, "status.phase"), "Failed" | "Succeeded");
        if unscheduled || terminated {
            return Grace::Seconds(0);
        }
        let own = value::int(pod, "spec.terminationGracePeriodSeconds").unwrap_or(0);
        let seconds = asked.unwrap_or(own);
        Grace::Seconds(if seconds < 0 { 1 } else { seconds })
    }
}

/// Drops the fields of features that are off, as upstream's defaults have them.
pub fn drop_disabled(spec: Option<&mut Value>) {
    let Some(spec) = spec else { return };
    for field in ["schedulingGroup", "evictionResponders"] {
        value::remove(spec, field);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in value::list_mut(spec, list) {
            drop_of_container(container);
        }
    }
    for volume in value::list_mut(spec, "volumes") {
        drop_of_volume(volume);
    }
}

fn drop_of_container(container: &mut Value) {
    if value::remove(container, "lifecycle.stopSignal").is_some()
        && value::at(container, "lifecycle").and_then(Value::as_object).is_some_and(value::Object::is_empty)
    {
        value::remove(container, "lifecycle");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        value::remove(probe, "httpGet.protocol");
        value::remove(probe, "grpc.mode");
    }
    if let Some(hooks) = container.get_mut("lifecycle") {
        value::remove(hooks, "postStart.httpGet.protocol");
        value::remove(hooks, "preStop.httpGet.protocol");
    }
    for mount in value::list_mut(container, "volumeMounts") {
        value::remove(mount, "bindMountOptions");
    }
}

/// The users that files of a volume would belong to, and the mode of an empty directory.
fn drop_of_volume(volume: &mut Value) {
    value::remove(volume, "emptyDir.mode");
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source) else { continue };
        value::remove(source, "defaultUser");
        drop_users(source);
    }
    for source in value::list_mut(volume, "projected.sources") {
        for (kind, part) in source.as_object_mut().into_iter().flatten() {
            match kind.as_str() {
                "secret" | "configMap" | "downwardAPI" => drop_users(part),
                "serviceAccountToken" | "clusterTrustBundle" | "podCertificate" => drop(value::remove(part, "user")),
                _ => {}
            }
        }
    }
}

fn drop_users(source: &mut Value) {
    for item in value::list_mut(source, "items") {
        value::remove(item, "user");
    }
}
