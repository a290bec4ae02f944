//! What tables show alike of PodGroups and CompositePodGroups.

use machinery::Value;

use crate::table::cells::{is_set, text_or};

/// How its pods are scheduled.
pub fn policy(group: &Value) -> &'static str {
    if is_set(group, "spec.schedulingPolicy.gang") { "Gang" } else { "Basic" }
}

/// What it belongs to.
pub fn workload(group: &Value) -> String {
    text_or(group, "spec.workloadRef.workloadName", "<none>")
}
