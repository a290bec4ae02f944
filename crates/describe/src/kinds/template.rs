//! Templates of pods, and what they have in common with pods.

use machinery::{Value, value};

use super::container::{Containers, containers};
use super::volume;
use crate::show::{annotations, at, format_selector, int, labels, multiline};
use crate::writer::{Writer, put};

pub fn template(out: &mut Writer, template: Option<&Value>) {
    put!(out, 0, "Pod Template:\n");
    let Some(template) = template else {
        return put!(out, 1, "<unset>");
    };
    labels(out, "", "  Labels", at(template, "metadata.labels"));
    if at(template, "metadata.annotations").and_then(Value::as_object).is_some_and(|all| !all.is_empty()) {
        annotations(out, "  Annotations", at(template, "metadata.annotations"));
    }
    match value::text(template, "spec.serviceAccountName") {
        "" => {}
        account => out.field(1, "Service Account", account),
    }
    let of = |title, list: &str| Containers {
        title,
        containers: value::list(template, list),
        statuses: &[],
        pod: None,
        space: "  ",
    };
    if !value::list(template, "spec.initContainers").is_empty() {
        containers(out, &of("Init Containers", "spec.initContainers"));
    }
    containers(out, &of("Containers", "spec.containers"));
    volume::volumes(out, value::list(template, "spec.volumes"), "  ");
    spread_constraints(out, value::list(template, "spec.topologySpreadConstraints"), "  ");
    match value::text(template, "spec.priorityClassName") {
        "" => {}
        class => out.field(1, "Priority Class Name", class),
    }
    labels(out, "", "  Node-Selectors", at(template, "spec.nodeSelector"));
    tolerations(out, "  Tolerations", value::list(template, "spec.tolerations"));
    scheduling_group(out, at(template, "spec.schedulingGroup"), "  ");
}

pub fn tolerations(out: &mut Writer, title: &str, tolerations: &[Value]) {
    let mut sorted: Vec<&Value> = tolerations.iter().collect();
    sorted.sort_by(|a, b| value::text(a, "key").cmp(value::text(b, "key")));
    let items: Vec<String> = sorted.into_iter().map(toleration).collect();
    multiline(out, "", title, &items);
}

fn toleration(toleration: &Value) -> String {
    let part = |field: &str| value::text(toleration, field);
    let (key, of, effect) = (part("key"), part("value"), part("effect"));
    let mut shown = key.to_owned();
    if !of.is_empty() {
        shown = format!("{shown}={of}");
    }
    if !effect.is_empty() {
        shown = format!("{shown}:{effect}");
    }
    if part("operator") == "Exists" && of.is_empty() {
        shown.push_str(if key.is_empty() && effect.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if let Some(seconds) = at(toleration, "tolerationSeconds") {
        shown = format!("{shown} for {seconds}s");
    }
    shown
}

pub fn spread_constraints(out: &mut Writer, constraints: &[Value], space: &str) {
    if constraints.is_empty() {
        return;
    }
    let mut sorted: Vec<&Value> = constraints.iter().collect();
    sorted.sort_by(|a, b| value::text(a, "topologyKey").cmp(value::text(b, "topologyKey")));
    let items: Vec<String> = sorted
        .into_iter()
        .map(|constraint| {
            let (key, then) = (value::text(constraint, "topologyKey"), value::text(constraint, "whenUnsatisfiable"));
            let selector = at(constraint, "labelSelector")
                .map_or_else(String::new, |selector| format!(" for selector {}", format_selector(selector)));
            format!("{key}:{then} when max skew {} is exceeded{selector}", int(constraint, "maxSkew"))
        })
        .collect();
    multiline(out, space, "Topology Spread Constraints", &items);
}

pub fn scheduling_group(out: &mut Writer, group: Option<&Value>, space: &str) {
    if let Some(group) = group {
        put!(out, 0, "{space}SchedulingGroup:\n");
        out.field(1, "PodGroupName", value::text(group, "podGroupName"));
    }
}
