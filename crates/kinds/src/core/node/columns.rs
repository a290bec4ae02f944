//! Nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, condition, name, text_or};
use crate::table::{AGE, Column, NAME, Printer, of, own, text};

const INFO: &str = "io.k8s.api.core.v1.NodeSystemInfo";
const STATUS: &str = "io.k8s.api.core.v1.NodeStatus";

const COLUMNS: [Column; 10] = [
    NAME,
    text("Status", own("Whether the node is ready, and whether it takes new pods.")),
    text("Roles", own("What the node is there for, by its labels.")),
    AGE,
    text("Version", of(INFO, "kubeletVersion")),
    text("Internal-IP", of(STATUS, "addresses")).wide(),
    text("External-IP", of(STATUS, "addresses")).wide(),
    text("OS-Image", of(INFO, "osImage")).wide(),
    text("Kernel-Version", of(INFO, "kernelVersion")).wide(),
    text("Container-Runtime", of(INFO, "containerRuntimeVersion")).wide(),
];

pub static TABLE: Printer = Printer::new(&COLUMNS, cells);
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = vec![match condition(node, "Ready") {
        None => "Unknown",
        Some(ready) if value::text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
    }];
    if value::flag(node, "spec.unschedulable") {
        status.push("SchedulingDisabled");
    }
    let mut kernel = text_or(node, "status.nodeInfo.kernelVersion", "<unknown>");
    match value::text(node, "status.nodeInfo.architecture") {
        "" => {}
        architecture => kernel.push_str(&format!(" ({architecture})")),
    }
    vec![
        name(node),
        json!(status.join(",")),
        json!(roles(node)),
        age(node, now),
        json!(value::text(node, "status.nodeInfo.kubeletVersion")),
        json!(address(node, "InternalIP")),
        json!(address(node, "ExternalIP")),
        json!(text_or(node, "status.nodeInfo.osImage", "<unknown>")),
        json!(kernel),
        json!(text_or(node, "status.nodeInfo.containerRuntimeVersion", "<unknown>")),
    ]
}

fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = value::at(node, "metadata.labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, label)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE => label.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let mut addresses = value::list(node, "status.addresses").iter();
    addresses
        .find(|address| value::text(address, "type") == kind)
        .map_or("<none>", |address| value::text(address, "address"))
}
