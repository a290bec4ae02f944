//! `NodeMetrics` and `PodMetrics`, their lists and their tables.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinery::quantity::{Format, Quantity};
use machinery::{Value, duration, time};
use serde_json::json;

use crate::points::{PodUsage, Usage};
use crate::{GROUP, VERSION};

/// The two resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Node,
    Pod,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "NodeMetrics",
            Self::Pod => "PodMetrics",
        }
    }

    pub fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
        }
    }

    pub fn of_resource(resource: &str) -> Option<Self> {
        [Self::Node, Self::Pod].into_iter().find(|kind| kind.resource() == resource)
    }
}

/// Whose use it is.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

pub fn node(about: About<'_>, usage: &Usage, now: Timestamp) -> Value {
    let mut object = frame(Kind::Node, about, usage.time, usage.window, now);
    object["usage"] = amounts(usage);
    object
}

pub fn pod(about: About<'_>, usage: &PodUsage, now: Timestamp) -> Value {
    let mut object = frame(Kind::Pod, about, usage.time, usage.window, now);
    object["containers"] =
        usage.containers.iter().map(|(name, usage)| json!({"name": name, "usage": amounts(usage)})).collect();
    object
}

pub fn list(kind: Kind, items: Vec<Value>) -> Value {
    json!({
        "kind": format!("{}List", kind.name()),
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {},
        "items": items,
    })
}

fn frame(kind: Kind, about: About<'_>, at: Timestamp, window: std::time::Duration, now: Timestamp) -> Value {
    let mut metadata = json!({"name": about.name, "creationTimestamp": time::format(now)});
    if !about.namespace.is_empty() {
        metadata["namespace"] = about.namespace.into();
    }
    if !about.labels.is_empty() {
        metadata["labels"] =
            about.labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    }
    json!({
        "kind": kind.name(),
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": metadata,
        "timestamp": time::format(at),
        "window": duration::format(window),
    })
}

fn amounts(usage: &Usage) -> Value {
    json!({"cpu": cpu(usage.cpu).to_string(), "memory": memory(usage.memory).to_string()})
}

fn cpu(nanos: u64) -> Quantity {
    Quantity::scaled(i128::from(nanos), -9, Format::DecimalSi)
}

fn memory(bytes: u64) -> Quantity {
    Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySi)
}

/// The table of one object or of a list's items. Without any there are not even columns, as upstream has it.
pub fn table(items: &[Value], include: impl Fn(&Value) -> Value) -> Value {
    let columns = match items {
        [] => Value::Null,
        _ => json!([
            {"name": "Name", "type": "string", "format": "name", "description": "Name of the resource", "priority": 0},
            {"name": "cpu", "type": "string", "format": "quantity", "description": "", "priority": 0},
            {"name": "memory", "type": "string", "format": "quantity", "description": "", "priority": 0},
            {"name": "Window", "type": "string", "format": "duration", "description": "", "priority": 0},
        ]),
    };
    let row = |item: &Value| {
        let cells = json!([item["metadata"]["name"], sum(item, "cpu"), sum(item, "memory"), item["window"]]);
        json!({"cells": cells, "object": include(item)})
    };
    let rows = items.iter().map(row).collect::<Vec<_>>();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns,
        "rows": if rows.is_empty() { Value::Null } else { rows.into() },
    })
}

/// What a node used, or all containers of a pod together.
fn sum(item: &Value, resource: &str) -> String {
    let parts = match &item["containers"] {
        Value::Array(containers) => containers.iter().map(|container| &container["usage"][resource]).collect(),
        _ => vec![&item["usage"][resource]],
    };
    let mut total = Quantity::ZERO;
    for part in parts {
        if let Some(Ok(part)) = Quantity::from_value(part) {
            total.add(&part);
        }
    }
    total.to_string()
}
