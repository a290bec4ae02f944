//! HorizontalPodAutoscaler v1 and v2. What v1 cannot say travels in its annotations, as upstream's does.

use machinery::{Value, value};
use serde_json::json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// `(annotation, path in v2)` of everything that has no field in v1.
const CARRIED: [(&str, &str); 4] = [
    (METRICS, "spec.metrics"),
    (CURRENT_METRICS, "status.currentMetrics"),
    (CONDITIONS, "status.conditions"),
    (BEHAVIOR, "spec.behavior"),
];

/// v2 to v1.
pub fn v2_to_v1(object: &mut Value) {
    let is_cpu = |metric: &Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    let target = value::list(object, "spec.metrics")
        .iter()
        .find(|metric| is_cpu(metric) && metric["resource"]["target"]["averageUtilization"].is_i64())
        .cloned();
    let current = value::list(object, "status.currentMetrics").iter().find(|metric| is_cpu(metric)).cloned();
    if let Some(metric) = &target {
        value::set(
            object,
            "spec.targetCPUUtilizationPercentage",
            metric["resource"]["target"]["averageUtilization"].clone(),
        );
        drop_from(object, "spec.metrics", metric);
    }
    if let Some(used) = current.as_ref().map(|metric| &metric["resource"]["current"]["averageUtilization"])
        && used.is_i64()
    {
        value::set(object, "status.currentCPUUtilizationPercentage", used.clone());
    }
    for (annotation, path) in CARRIED {
        let carried = value::remove(object, path)
            .filter(|carried| carried.as_array().is_none_or(|list| !list.is_empty()) && !carried.is_null());
        if let Some(carried) = carried {
            let annotations = value::object_mut(object, "metadata").entry("annotations").or_insert(Value::Null);
            value::as_object_mut(annotations).insert(annotation.to_owned(), carried.to_string().into());
        }
    }
}

/// v1 to v2.
pub fn v1_to_v2(object: &mut Value) {
    for (annotation, path) in CARRIED {
        let carried = value::at_mut(object, "metadata.annotations")
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.remove(annotation));
        // A hand-written annotation that is no JSON says nothing.
        if let Some(carried) =
            carried.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok())
        {
            value::set(object, path, carried);
        }
    }
    if value::at(object, "metadata.annotations")
        .and_then(Value::as_object)
        .is_some_and(|annotations| annotations.is_empty())
    {
        value::remove(object, "metadata.annotations");
    }
    if let Some(percent) =
        value::remove(object, "spec.targetCPUUtilizationPercentage").filter(|percent| !percent.is_null())
    {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}});
        let mut metrics = vec![cpu];
        metrics.extend(value::list(object, "spec.metrics").iter().cloned());
        value::set(object, "spec.metrics", metrics);
    }
    value::remove(object, "status.currentCPUUtilizationPercentage");
}

fn drop_from(object: &mut Value, path: &str, item: &Value) {
    if let Some(list) = value::at_mut(object, path).and_then(Value::as_array_mut) {
        list.retain(|candidate| candidate != item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_target_is_a_field_in_v1_and_a_metric_in_v2() {
        let v1 = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
        let mut object = v1.clone();
        v1_to_v2(&mut object);
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        v2_to_v1(&mut object);
        assert_eq!(object, v1);
    }

    #[test]
    fn what_v1_cannot_say_survives_in_annotations() {
        let v2 = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "metrics": [{"type": "Pods"}], "behavior": {"scaleUp": {}}},
            "status": {"conditions": [{"type": "AbleToScale"}]}});
        let mut object = v2.clone();
        v2_to_v1(&mut object);
        assert!(object["metadata"]["annotations"][METRICS].is_string());
        v1_to_v2(&mut object);
        assert_eq!(object, v2);
    }
}
