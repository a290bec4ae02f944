//! autoscaling: HorizontalPodAutoscalers in v2, and Scales.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, is_set, name, number, plain};
use crate::table::{AGE, NAME, Printer, of, text};

const SPEC: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Reference", of(SPEC, "scaleTargetRef")),
        text("Targets", of(SPEC, "metrics")),
        text("MinPods", of(SPEC, "minReplicas")),
        text("MaxPods", of(SPEC, "maxReplicas")),
        text("Replicas", of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas")),
        AGE,
    ],
    |object, now| {
        let least =
            value::int(object, "spec.minReplicas").map_or_else(|| "<unset>".to_owned(), |least| least.to_string());
        let target = |field| value::text(object, field);
        vec![
            name(object),
            json!(format!("{}/{}", target("spec.scaleTargetRef.kind"), target("spec.scaleTargetRef.name"))),
            json!(metrics(object)),
            json!(least),
            json!(number(object, "spec.maxReplicas")),
            json!(number(object, "status.currentReplicas")),
            age(object, now),
        ]
    },
);

/// What is and what should be, metric by metric.
fn metrics(object: &Value) -> String {
    const MOST: usize = 2;
    let specs = value::list(object, "spec.metrics");
    let statuses = value::list(object, "status.currentMetrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> =
        specs.iter().enumerate().take(MOST).map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    let shown = shown.join(", ");
    if specs.len() > MOST { format!("{shown} + {} more...", specs.len() - MOST) } else { shown }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (source, is_resource) = match value::text(spec, "type") {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| value::at(spec, &format!("{source}.target.{field}")).filter(|found| !found.is_null());
    let known = status.filter(|status| is_set(status, source));
    let current = |field: &str| {
        let found = known.and_then(|status| value::at(status, &format!("{source}.current.{field}")));
        found.filter(|found| !found.is_null())
    };
    let unknown = || "<unknown>".to_owned();
    // A value that is known to be nothing is shown as a zero quantity; one that is not known is not.
    let now = |field: &str| match known {
        None => unknown(),
        Some(_) => current(field).map_or_else(|| "0".to_owned(), plain),
    };
    if is_resource {
        let resource = value::text(spec, &format!("{source}.name"));
        if let Some(average) = target("averageValue") {
            return format!("{resource}: {}/{}", now("averageValue"), plain(average));
        }
        let percent = |of: Option<&Value>, absent: &str| of.map_or_else(|| absent.to_owned(), |of| format!("{of}%"));
        let wanted = percent(target("averageUtilization"), "<auto>");
        return format!("{resource}: {}/{wanted}", percent(current("averageUtilization"), "<unknown>"));
    }
    match target("averageValue") {
        Some(average) if source == "pods" => format!("{}/{}", now("averageValue"), plain(average)),
        Some(average) => {
            let current = current("averageValue").map_or_else(unknown, plain);
            format!("{current}/{} (avg)", plain(average))
        }
        None => format!("{}/{}", now("value"), target("value").map_or_else(|| "0".to_owned(), plain)),
    }
}
