//! HorizontalPodAutoscaler v1 and v2. What v1 cannot say travels in its annotations, in the texts that upstream writes there:
//! metrics as v1 once had them, and behaviour under the names that upstream's code has for it.

use Absent::{Empty, Omitted, Zero};
use machinery::quantity::Quantity;
use machinery::{Value, value};
use serde_json::json;

use crate::kind::Conversion;

pub const CONVERSIONS: [Conversion; 2] = [
    Conversion { from: "autoscaling/v1", to: "autoscaling/v2", convert: v1_to_v2 },
    Conversion { from: "autoscaling/v2", to: "autoscaling/v1", convert: v2_to_v1 },
];

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// What is written where there is nothing.
#[derive(Clone, Copy, PartialEq)]
enum Absent {
    Empty,
    Zero,
    /// The field is left out.
    Omitted,
}

/// The fields of one kind of metric in v1, in order, and where they are in v2.
type Fields = &'static [(&'static str, &'static str, Absent)];

/// What is measured, of each kind.
const SOURCES: [(&str, Fields); 5] = [
    (
        "object",
        &[
            ("target", "describedObject", Omitted),
            ("metricName", "metric.name", Empty),
            ("targetValue", "target.value", Zero),
            ("selector", "metric.selector", Omitted),
            ("averageValue", "target.averageValue", Omitted),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric.name", Empty),
            ("targetAverageValue", "target.averageValue", Zero),
            ("selector", "metric.selector", Omitted),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name", Empty),
            ("targetAverageUtilization", "target.averageUtilization", Omitted),
            ("targetAverageValue", "target.averageValue", Omitted),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name", Empty),
            ("targetAverageUtilization", "target.averageUtilization", Omitted),
            ("targetAverageValue", "target.averageValue", Omitted),
            ("container", "container", Empty),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric.name", Empty),
            ("metricSelector", "metric.selector", Omitted),
            ("targetValue", "target.value", Omitted),
            ("targetAverageValue", "target.averageValue", Omitted),
        ],
    ),
];

/// What was measured, of each kind.
const STATUSES: [(&str, Fields); 5] = [
    (
        "object",
        &[
            ("target", "describedObject", Omitted),
            ("metricName", "metric.name", Empty),
            ("currentValue", "current.value", Zero),
            ("selector", "metric.selector", Omitted),
            ("averageValue", "current.averageValue", Omitted),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric.name", Empty),
            ("currentAverageValue", "current.averageValue", Zero),
            ("selector", "metric.selector", Omitted),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name", Empty),
            ("currentAverageUtilization", "current.averageUtilization", Omitted),
            ("currentAverageValue", "current.averageValue", Zero),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name", Empty),
            ("currentAverageUtilization", "current.averageUtilization", Omitted),
            ("currentAverageValue", "current.averageValue", Zero),
            ("container", "container", Empty),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric.name", Empty),
            ("metricSelector", "metric.selector", Omitted),
            ("currentValue", "current.value", Zero),
            ("currentAverageValue", "current.averageValue", Omitted),
        ],
    ),
];

const REFERENCE: [&str; 3] = ["kind", "name", "apiVersion"];
const CONDITION: [&str; 6] = ["type", "status", "lastTransitionTime", "reason", "message", "observedGeneration"];

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

pub fn v2_to_v1(object: &mut Value) {
    let target = |metric: &Value| metric["resource"]["target"]["averageUtilization"].clone();
    let (by_cpu, others): (Vec<Value>, Vec<Value>) =
        taken(object, "spec.metrics").into_iter().partition(|metric| is_cpu(metric) && target(metric).is_i64());
    if let Some(metric) = by_cpu.first() {
        value::set(object, "spec.targetCPUUtilizationPercentage", target(metric));
    }
    let current = taken(object, "status.currentMetrics");
    for metric in current.iter().filter(|metric| is_cpu(metric)) {
        let used = &metric["resource"]["current"]["averageUtilization"];
        if used.is_i64() {
            value::set(object, "status.currentCPUUtilizationPercentage", used.clone());
        }
    }
    let conditions = taken(object, "status.conditions");
    let behavior = value::remove(object, "spec.behavior").filter(Value::is_object);
    drop_annotations(object);
    let list = |items: &[Value], text: &dyn Fn(&Value) -> String| {
        let texts: Vec<String> = items.iter().map(text).collect();
        (!texts.is_empty()).then(|| format!("[{}]", texts.join(",")))
    };
    let carried = [
        (METRICS, list(&others, &|metric| metric_text(metric, &SOURCES))),
        (CURRENT_METRICS, list(&current, &|metric| metric_text(metric, &STATUSES))),
        (BEHAVIOR, behavior.as_ref().map(behavior_text)),
        (CONDITIONS, list(&conditions, &|condition| fields_text(condition, &CONDITION))),
    ];
    for (annotation, text) in carried {
        if let Some(text) = text {
            let annotations = value::object_mut(object, "metadata").entry("annotations").or_insert(Value::Null);
            value::as_object_mut(annotations).insert(annotation.to_owned(), text.into());
        }
    }
}

/// v1 to v2. A hand-written annotation that is no such text says nothing.
pub fn v1_to_v2(object: &mut Value) {
    let parsed = |object: &Value, annotation: &str| -> Option<Value> {
        let text = value::at(object, "metadata.annotations")?.get(annotation)?.as_str()?;
        serde_json::from_str(text).ok()
    };
    let list = |object: &Value, annotation: &str| match parsed(object, annotation)? {
        Value::Array(items) if items.iter().all(Value::is_object) => Some(items),
        _ => None,
    };
    let percent = value::remove(object, "spec.targetCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let mut metrics: Vec<Value> = list(object, METRICS).unwrap_or_default().iter().map(source_of).collect();
    metrics.extend(percent.map(|percent| {
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
    }));
    if !metrics.is_empty() {
        value::set(object, "spec.metrics", metrics);
    }
    let used = value::remove(object, "status.currentCPUUtilizationPercentage").filter(|used| !used.is_null());
    let used = used.map(|used| {
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}})]
    });
    // What the annotation says is more than the percentage.
    let current =
        list(object, CURRENT_METRICS).map(|items| items.iter().map(|item| metric_of(item, &STATUSES)).collect());
    if let Some(current) = current.or(used) {
        value::set(object, "status.currentMetrics", Value::Array(current));
    }
    if let Some(conditions) = list(object, CONDITIONS) {
        value::set(object, "status.conditions", conditions);
    }
    if let Some(behavior) = parsed(object, BEHAVIOR).map(|behavior| behavior_of(&behavior))
        && behavior.as_object().is_some_and(|behavior| !behavior.is_empty())
    {
        value::set(object, "spec.behavior", behavior);
    }
    drop_annotations(object);
}

fn taken(object: &mut Value, path: &str) -> Vec<Value> {
    match value::remove(object, path) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Only what was carried is in these annotations.
fn drop_annotations(object: &mut Value) {
    let Some(annotations) = value::at_mut(object, "metadata.annotations").and_then(Value::as_object_mut) else {
        return;
    };
    for annotation in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        annotations.remove(annotation);
    }
    if annotations.is_empty() {
        value::remove(object, "metadata.annotations");
    }
}

/// A metric as v1 writes it, its fields in upstream's order.
fn metric_text(metric: &Value, kinds: &[(&str, Fields)]) -> String {
    let mut parts = vec![format!("\"type\":{}", metric["type"])];
    for (kind, fields) in kinds {
        let Some(source) = metric.get(*kind).filter(|source| source.is_object()) else { continue };
        let mut inner = Vec::new();
        for (field, path, absent) in *fields {
            let text = match (value::at(source, path).filter(|value| !value.is_null()), absent) {
                (Some(reference), _) if *field == "target" => fields_text(reference, &REFERENCE),
                (Some(value), _) => value.to_string(),
                (None, Zero) => "\"0\"".to_owned(),
                (None, Empty) => "\"\"".to_owned(),
                (None, Omitted) => continue,
            };
            inner.push(format!("\"{field}\":{text}"));
        }
        parts.push(format!("\"{kind}\":{{{}}}", inner.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}

/// An object with the fields that it has, in this order.
fn fields_text(object: &Value, fields: &[&str]) -> String {
    let given = fields.iter().filter_map(|field| Some(format!("\"{field}\":{}", object.get(*field)?)));
    format!("{{{}}}", given.collect::<Vec<_>>().join(","))
}

/// A metric that v1 writes, as v2 has it.
fn metric_of(metric: &Value, kinds: &[(&str, Fields)]) -> Value {
    let mut made = json!({"type": metric["type"]});
    for (kind, fields) in kinds {
        let Some(source) = metric.get(*kind).filter(|source| source.is_object()) else { continue };
        let mut inner = json!({});
        for (field, path, absent) in *fields {
            match (source.get(*field).filter(|value| !value.is_null()), absent) {
                (Some(value), _) => value::set(&mut inner, path, value.clone()),
                (None, Zero) => value::set(&mut inner, path, "0"),
                (None, Empty) => value::set(&mut inner, path, ""),
                (None, Omitted) => {}
            }
        }
        made[*kind] = inner;
    }
    made
}

/// What is measured, with the type of the target, which v1 leaves to be guessed.
fn source_of(metric: &Value) -> Value {
    let mut made = metric_of(metric, &SOURCES);
    for (kind, _) in SOURCES {
        let Some(source) = made.get_mut(kind) else { continue };
        let has = |path: &str| value::at(source, path).is_some();
        let guessed = match kind {
            "pods" => "AverageValue",
            "object" if has("target.averageValue") => "AverageValue",
            "object" => "Value",
            "external" if has("target.value") => "Value",
            "external" => "AverageValue",
            _ if has("target.averageUtilization") => "Utilization",
            _ => "AverageValue",
        };
        // v1 cannot leave this amount out: nothing stands for none.
        let zero = |amount: &Value| {
            Quantity::from_value(amount).is_some_and(|amount| amount.is_ok_and(|amount| amount.is_zero()))
        };
        if kind == "object" && guessed == "AverageValue" && value::at(source, "target.value").is_some_and(zero) {
            value::remove(source, "target.value");
        }
        value::set(source, "target.type", guessed);
    }
    made
}

/// Behaviour as upstream's code has it, every field of it.
fn behavior_text(behavior: &Value) -> String {
    let all = |object: &Value, fields: &[(&str, &str)]| {
        let texts =
            fields.iter().map(|(shown, field)| format!("\"{shown}\":{}", object.get(*field).unwrap_or(&Value::Null)));
        texts.collect::<Vec<_>>().join(",")
    };
    let rules = |direction: &str| match behavior.get(direction).filter(|rules| rules.is_object()) {
        None => "null".to_owned(),
        Some(rules) => {
            let policies = match rules.get("policies").and_then(Value::as_array) {
                None => "null".to_owned(),
                Some(policies) => {
                    let fields = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
                    let texts = policies.iter().map(|policy| format!("{{{}}}", all(policy, &fields)));
                    format!("[{}]", texts.collect::<Vec<_>>().join(","))
                }
            };
            let before = all(
                rules,
                &[("StabilizationWindowSeconds", "stabilizationWindowSeconds"), ("SelectPolicy", "selectPolicy")],
            );
            format!("{{{before},\"Policies\":{policies},{}}}", all(rules, &[("Tolerance", "tolerance")]))
        }
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

/// Behaviour under the names of v2, whatever the case of the names it is written under.
fn behavior_of(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            let renamed = kept.map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|first| first.to_ascii_lowercase());
                (first.into_iter().chain(letters).collect::<String>(), behavior_of(value))
            });
            Value::Object(renamed.collect())
        }
        Value::Array(items) => items.iter().map(behavior_of).collect(),
        other => other.clone(),
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
        let v2 = json!({
            "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Object", "object": {"describedObject": {"apiVersion": "v1", "kind": "K", "name": "n"}, "metric": {"name": "m"}, "target": {"type": "Value", "value": "5"}}},
                    {"type": "Pods", "pods": {"metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "5"}}},
                    {"type": "ContainerResource", "containerResource": {"container": "c", "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "5"}}},
                ],
                "behavior": {"scaleUp": {"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}},
            },
            "status": {"conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}]},
        });
        let mut object = v2.clone();
        v2_to_v1(&mut object);
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(
            annotations[METRICS],
            r#"[{"type":"Object","object":{"target":{"kind":"K","name":"n","apiVersion":"v1"},"metricName":"m","targetValue":"5"}},{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5","selector":{"matchLabels":{"a":"b"}}}},{"type":"ContainerResource","containerResource":{"name":"memory","targetAverageValue":"1Gi","container":"c"}},{"type":"External","external":{"metricName":"m","targetValue":"5"}}]"#
        );
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null},"ScaleDown":null}"#
        );
        assert_eq!(annotations[CONDITIONS], r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null}]"#);
        v1_to_v2(&mut object);
        assert_eq!(object, v2);
    }

    #[test]
    fn what_an_annotation_says_comes_before_the_percentage() {
        let mut object = json!({
            "metadata": {"annotations": {METRICS: r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":5}}]"#, "other": "x"}},
            "spec": {"targetCPUUtilizationPercentage": 80},
            "status": {"currentCPUUtilizationPercentage": 7},
        });
        v1_to_v2(&mut object);
        let names: Vec<&Value> =
            value::list(&object, "spec.metrics").iter().map(|metric| &metric["resource"]["name"]).collect();
        assert_eq!(names, ["memory", "cpu"]);
        assert_eq!(
            object["spec"]["metrics"][0]["resource"]["target"],
            json!({"type": "Utilization", "averageUtilization": 5})
        );
        assert_eq!(object["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 7);
        assert_eq!(object["metadata"]["annotations"], json!({"other": "x"}));
        let mut nonsense = json!({"metadata": {"annotations": {METRICS: "[1]", BEHAVIOR: "{"}}, "spec": {}});
        v1_to_v2(&mut nonsense);
        assert_eq!(nonsense, json!({"metadata": {}, "spec": {}}));
    }
}
