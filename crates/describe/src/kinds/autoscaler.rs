//! Horizontal pod autoscalers, in the two versions that servers have.

use machinery::{Value, value};

use crate::Error;
use crate::show::{Scene, at, int, or, plain, quantity};
use crate::writer::{Writer, put};

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let first = scene.text("apiVersion") == "autoscaling/v1";
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    scene.created(out);
    let kind = scene.text("spec.scaleTargetRef.kind");
    out.field(0, "Reference", format_args!("{kind}/{}", scene.text("spec.scaleTargetRef.name")));
    if first {
        utilization(scene, out);
    } else {
        put!(out, 0, "Metrics:\t( current / target )\n");
        let current = scene.list("status.currentMetrics");
        for (number, wanted) in scene.list("spec.metrics").iter().enumerate() {
            metric(out, wanted, current.get(number));
        }
    }
    out.field(0, "Min replicas", or(scene.object, "spec.minReplicas", "<unset>"));
    out.field(0, "Max replicas", scene.int("spec.maxReplicas"));
    if let Some(behavior) = scene.at("spec.behavior") {
        put!(out, 0, "Behavior:\n");
        for (title, field) in [("Scale Up", "scaleUp"), ("Scale Down", "scaleDown")] {
            if let Some(rules) = at(behavior, field) {
                direction(out, title, rules);
            }
        }
    }
    let (current, desired) = (scene.int("status.currentReplicas"), scene.int("status.desiredReplicas"));
    put!(out, 0, "{kind} pods:\t{current} current / {desired} desired\n");
    if !first {
        let columns = [("Type", "type"), ("Status", "status"), ("Reason", "reason"), ("Message", "message")];
        crate::show::conditions(scene, out, &columns, "\t");
    }
    scene.events(out);
    Ok(())
}

fn utilization(scene: &Scene<'_>, out: &mut Writer) {
    if let Some(target) = scene.at("spec.targetCPUUtilizationPercentage") {
        out.field(0, "Target CPU utilization", format_args!("{target}%"));
        let current = or(scene.object, "status.currentCPUUtilizationPercentage", "<unknown>");
        out.field(0, "Current CPU utilization", format_args!("{current}%"));
    }
}

/// A quantity that need not be there, as Go prints a pointer to one.
fn amount(of: &Value, path: &str) -> String {
    at(of, path).map_or_else(|| "<nil>".to_owned(), |found| quantity(Some(found)).to_string())
}

fn metric(out: &mut Writer, wanted: &Value, current: Option<&Value>) {
    const UNKNOWN: &str = "<unknown>";
    let kind = value::text(wanted, "type");
    let field = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        other => return put!(out, 1, "<unknown metric type {other:?}>\n"),
    };
    let (wanted, current) = (at(wanted, field).unwrap_or(&Value::Null), current.and_then(|current| at(current, field)));
    let name = value::text(wanted, "metric.name");
    let now = |path: &str| current.map_or_else(|| UNKNOWN.to_owned(), |current| amount(current, path));
    let average = at(wanted, "target.averageValue").is_some();
    match field {
        "external" if average => {
            let shown = current.and_then(|current| at(current, "current.averageValue"));
            let shown = shown.map_or_else(|| UNKNOWN.to_owned(), |found| quantity(Some(found)).to_string());
            put!(out, 1, "{name:?} (target average value):\t{shown} / {}\n", amount(wanted, "target.averageValue"));
        }
        "external" => {
            put!(out, 1, "{name:?} (target value):\t{} / {}\n", now("current.value"), amount(wanted, "target.value"));
        }
        "pods" => {
            put!(
                out,
                1,
                "{name:?} on pods:\t{} / {}\n",
                now("current.averageValue"),
                amount(wanted, "target.averageValue")
            );
        }
        "object" => {
            let (kind, object) =
                (value::text(wanted, "describedObject.kind"), value::text(wanted, "describedObject.name"));
            put!(out, 1, "\"{name}\" on {kind}/{object} ");
            let (title, field) = match value::text(wanted, "target.type") {
                "AverageValue" => ("target average value", "averageValue"),
                _ => ("target value", "value"),
            };
            let target = amount(wanted, &format!("target.{field}"));
            put!(out, 0, "({title}):\t{} / {target}\n", now(&format!("current.{field}")));
        }
        _ => resource(out, wanted, current, average),
    }
}

fn resource(out: &mut Writer, wanted: &Value, current: Option<&Value>, average: bool) {
    let name = value::text(wanted, "name");
    match at(wanted, "container") {
        Some(container) => put!(out, 1, "resource {name} of container \"{}\" on pods", plain(container)),
        None => put!(out, 1, "resource {name} on pods"),
    }
    if average {
        let now = current.map_or_else(|| "<unknown>".to_owned(), |current| amount(current, "current.averageValue"));
        return put!(out, 0, ":\t{now} / {}\n", amount(wanted, "target.averageValue"));
    }
    let now = current.and_then(|current| {
        let percent = at(current, "current.averageUtilization")?;
        Some(format!("{percent}% ({})", amount(current, "current.averageValue")))
    });
    let target = at(wanted, "target.averageUtilization").map_or_else(|| "<auto>".to_owned(), |it| format!("{it}%"));
    let now = now.unwrap_or_else(|| "<unknown>".to_owned());
    put!(out, 1, "(as a percentage of request):\t{now} / {target}\n");
}

fn direction(out: &mut Writer, title: &str, rules: &Value) {
    put!(out, 1, "{title}:\n");
    if let Some(window) = at(rules, "stabilizationWindowSeconds") {
        put!(out, 2, "Stabilization Window: {window} seconds\n");
    }
    let policies = value::list(rules, "policies");
    if policies.is_empty() {
        return;
    }
    put!(out, 2, "Select Policy: {}\n", or(rules, "selectPolicy", "Max"));
    put!(out, 2, "Policies:\n");
    for policy in policies {
        let (amount, period) = (int(policy, "value"), int(policy, "periodSeconds"));
        put!(out, 3, "- Type: {}\tValue: {amount}\tPeriod: {period} seconds\n", value::text(policy, "type"));
    }
}
