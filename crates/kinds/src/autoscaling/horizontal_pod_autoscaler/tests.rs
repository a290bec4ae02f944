//! What upstream says about HorizontalPodAutoscalers.

use serde_json::json;

use crate::autoscaling::horizontal_pod_autoscaler::Autoscalers;
use crate::strategy::Strategy;

#[test]
fn what_is_scaled_is_in_a_group() {
    let problems = |version: &str, kind: &str| {
        let target = json!({"apiVersion": version, "kind": kind, "name": "x"});
        let mut scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
        Autoscalers.default(&mut scaler);
        Autoscalers.validate(&scaler).iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    assert_eq!(problems("apps/v1", "Deployment"), [""; 0]);
    assert_eq!(problems("v1", "ReplicationController"), [""; 0]);
    assert_eq!(
        problems("v1", "Deployment"),
        ["spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"]
    );
}
