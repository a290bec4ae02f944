//! What Go writes of a kind although nobody gave it: fields that are empty but never left out. The server adds them to what it
//! answers; what is changed without a server has to have them from here.

use machinery::value::{list_mut, set_default};
use serde_json::{Value, json};

/// Adds the empty fields of an object of a built-in kind.
pub fn fill(object: &mut Value) {
    let kind = machinery::value::text(object, "kind").to_owned();
    match kind.as_str() {
        "Deployment" => set_default(object, "spec.strategy", json!({})),
        "StatefulSet" | "DaemonSet" => set_default(object, "spec.updateStrategy", json!({})),
        "CronJob" => set_default(object, "spec.jobTemplate.metadata", json!({})),
        "Service" => {
            list_mut(object, "spec.ports").iter_mut().for_each(|port| set_default(port, "targetPort", json!(0)))
        }
        _ => {}
    }
    let template = match kind.as_str() {
        "Pod" => "",
        "CronJob" => "spec.jobTemplate.spec.template",
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => "spec.template",
        _ => return status(object, &kind),
    };
    if !template.is_empty() {
        set_default(object, &format!("{template}.metadata"), json!({}));
    }
    let spec = if template.is_empty() { "spec".to_owned() } else { format!("{template}.spec") };
    for containers in ["initContainers", "containers"] {
        for container in list_mut(object, &format!("{spec}.{containers}")) {
            set_default(container, "resources", json!({}));
        }
    }
    status(object, &kind);
}

fn status(object: &mut Value, kind: &str) {
    let counters: &[&str] = match kind {
        "Deployment" | "Pod" | "Job" | "CronJob" => &[],
        "ReplicaSet" | "ReplicationController" => &["replicas"],
        "StatefulSet" => &["availableReplicas", "replicas"],
        "DaemonSet" => &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"],
        "Service" => return set_default(object, "status", json!({"loadBalancer": {}})),
        _ => return,
    };
    set_default(object, "status", json!({}));
    for counter in counters {
        set_default(object, &format!("status.{counter}"), json!(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_those_that_go_never_leaves_out() {
        let pods = json!({"spec": {"containers": [{"name": "c"}]}});
        let filled = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}});
        for (before, after) in [
            (
                json!({"kind": "Deployment", "spec": {"template": pods}}),
                json!({"kind": "Deployment", "spec": {"strategy": {}, "template": filled}, "status": {}}),
            ),
            (
                json!({"kind": "StatefulSet", "spec": {"template": pods}}),
                json!({
                    "kind": "StatefulSet", "spec": {"updateStrategy": {}, "template": filled},
                    "status": {"availableReplicas": 0, "replicas": 0},
                }),
            ),
            (
                json!({"kind": "Pod", "spec": pods["spec"]}),
                json!({"kind": "Pod", "spec": filled["spec"], "status": {}}),
            ),
            (
                json!({"kind": "Service", "spec": {"ports": [{"port": 80}]}}),
                json!({
                    "kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": 0}]},
                    "status": {"loadBalancer": {}},
                }),
            ),
            (json!({"kind": "Gadget"}), json!({"kind": "Gadget"})),
        ] {
            let mut object = before;
            fill(&mut object);
            assert_eq!(object, after);
        }
    }
}
