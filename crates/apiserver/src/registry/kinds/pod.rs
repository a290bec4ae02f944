//! Pods and pod templates.

use machinery::quantity::Quantity;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::{Grace, Strategy};
use super::pod_spec;
use crate::rest::keep;

/// Pods.
pub struct Pods;

impl Strategy for Pods {
    fn fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
            "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
        ]
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, pod: &mut Value) {
        pod_spec::default(pod, "spec");
        value::set_default(pod, "spec.enableServiceLinks", true);
    }

    fn prepare_for_create(&self, pod: &mut Value) {
        let class = quality(pod);
        let mut status = json!({"phase": "Pending", "qosClass": class});
        if !value::list(pod, "spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
                "lastTransitionTime": null, "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        value::set(pod, "status", status);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "metadata.ownerReferences");
        if value::text(new, "status.qosClass").is_empty() {
            keep(new, old, "status.qosClass");
        }
    }

    fn validate(&self, pod: &Value) -> Vec<FieldError> {
        pod_spec::validate(pod, "spec")
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mutable = |pod: &Value| {
            let mut spec = value::at(pod, "spec").cloned().unwrap_or(Value::Null);
            for list in ["containers", "initContainers"] {
                for container in value::list_mut(&mut spec, list) {
                    value::remove(container, "image");
                }
            }
            for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates", "ephemeralContainers", "nodeSelector", "affinity"] {
                value::remove(&mut spec, field);
            }
            spec
        };
        if mutable(new) == mutable(old) {
            return Vec::new();
        }
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        vec![FieldError::forbidden("spec", detail)]
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

/// The quality-of-service class: what the pod asked for, and what it may use at most.
fn quality(pod: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    let containers = ["spec.containers", "spec.initContainers"];
    for container in containers.iter().flat_map(|path| value::list(pod, path)) {
        for resource in ["cpu", "memory"] {
            let amount = |kind: &str| {
                let text = value::at(container, "resources").and_then(|resources| resources.get(kind)?.get(resource).cloned());
                text.as_ref().and_then(Quantity::from_value)?.ok().filter(|quantity| !quantity.is_zero())
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.as_ref().is_none_or(|request| Some(request) == limit.as_ref());
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Pod templates.
pub struct PodTemplates;

impl Strategy for PodTemplates {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        pod_spec::default(object, "template.spec");
    }
}
