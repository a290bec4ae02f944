//! Nodes.

use std::collections::{BTreeMap, BTreeSet};

use machinery::{Value, value};

use super::node_resources;
use crate::read::{PODS, Resource, events, events_about};
use crate::show::{Scene, at, joined, multiline, quantity, text_or};
use crate::writer::{Writer, put};
use crate::{Error, Read};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const RESOURCE_SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices");

fn pods(name: &str) -> Read {
    let fields = format!("spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed");
    Read::list(PODS, "").with_fields(fields)
}

/// Controllers know a node by its UID, its kubelet by its name.
fn node_events(node: &Value) -> [Read; 2] {
    let name = value::text(node, "metadata.name");
    [events(node), events_about("", name, value::text(node, "kind"), name)]
}

fn lease(name: &str) -> Read {
    Read::get(LEASES, "kube-node-lease", name)
}

fn slices(name: &str) -> Read {
    Read::list(RESOURCE_SLICES, "").with_fields(format!("spec.nodeName={name}")).at_once()
}

pub fn reads(node: &Value, show_events: bool) -> Vec<Read> {
    let name = value::text(node, "metadata.name");
    let mut reads = vec![pods(name)];
    if show_events {
        reads.extend(node_events(node));
    }
    reads.extend([slices(name), lease(name)]);
    reads
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let name = scene.text("metadata.name");
    let pods = match scene.answers.get(&pods(name)) {
        Some(Err(failure)) if failure.reason == "Forbidden" => None,
        _ => Some(scene.answers.needed(&pods(name))?),
    };
    scene.name(out);
    out.field(0, "Roles", text_or(&roles(scene.at("metadata.labels")), "<none>"));
    scene.labels(out);
    scene.annotations(out);
    scene.created(out);
    multiline(out, "", "Taints", &taints(scene.list("spec.taints")));
    out.field(0, "Unschedulable", value::flag(scene.object, "spec.unschedulable"));
    show_lease(scene, out, name);
    conditions(scene, out);
    put!(out, 0, "Addresses:\n");
    for address in scene.list("status.addresses") {
        out.field(1, value::text(address, "type"), value::text(address, "address"));
    }
    amounts(out, "Capacity", scene.at("status.capacity"));
    amounts(out, "Allocatable", scene.at("status.allocatable"));
    resource_slices(out, scene.answers.items(&slices(name)).unwrap_or_default());
    system_info(scene, out);
    match pods {
        Some(pods) => node_resources::text(scene, out, pods),
        None => out.field(0, "Pods", "not authorized"),
    }
    scene.events_of(out, &node_events(scene.object));
    Ok(())
}

/// The roles that labels give, each once and sorted.
fn roles(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

/// Taints by effect and key.
fn taints(taints: &[Value]) -> Vec<String> {
    let mut sorted: Vec<&Value> = taints.iter().collect();
    sorted.sort_by_key(|taint| format!("{},{}", value::text(taint, "effect"), value::text(taint, "key")));
    let show = |taint: &Value| match ["key", "value", "effect"].map(|field| value::text(taint, field)) {
        [key, "", ""] => key.to_owned(),
        [key, value, ""] => format!("{key}={value}:"),
        [key, "", effect] => format!("{key}:{effect}"),
        [key, value, effect] => format!("{key}={value}:{effect}"),
    };
    sorted.into_iter().map(show).collect()
}

fn show_lease(scene: &Scene<'_>, out: &mut Writer, name: &str) {
    let lease = match scene.answers.get(&lease(name)) {
        None => return,
        Some(Err(failure)) => return out.field(0, "Lease", format_args!("Failed to get lease: {}", failure.message)),
        Some(Ok(lease)) => lease,
    };
    put!(out, 0, "Lease:\n");
    let holder = at(lease, "spec.holderIdentity").and_then(Value::as_str);
    out.field(1, "HolderIdentity", holder.unwrap_or("<unset>"));
    for (title, path) in [("AcquireTime", "spec.acquireTime"), ("RenewTime", "spec.renewTime")] {
        let shown = at(lease, path).map_or_else(|| "<unset>".to_owned(), |_| scene.date(lease, path));
        out.field(1, title, shown);
    }
}

fn conditions(scene: &Scene<'_>, out: &mut Writer) {
    let conditions = scene.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    put!(out, 0, "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n");
    put!(out, 1, "----\t------\t-----------------\t------------------\t------\t-------\n");
    for condition in conditions {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| value::text(condition, field));
        let [heartbeat, transition] =
            ["lastHeartbeatTime", "lastTransitionTime"].map(|field| scene.date(condition, field));
        put!(out, 1, "{kind} \t{status} \t{heartbeat} \t{transition} \t{reason} \t{message}\n");
    }
}

fn amounts(out: &mut Writer, title: &str, amounts: Option<&Value>) {
    let Some(amounts) = amounts.and_then(Value::as_object).filter(|amounts| !amounts.is_empty()) else { return };
    put!(out, 0, "{title}:\n");
    let sorted: BTreeMap<&String, &Value> = amounts.iter().collect();
    for (resource, amount) in sorted {
        out.field(1, resource, quantity(Some(amount)));
    }
}

/// Devices that only this node has, by driver and pool.
fn resource_slices(out: &mut Writer, slices: &[Value]) {
    const MOST: usize = 10;
    let mut pools: BTreeMap<String, (&str, &str, usize, usize)> = BTreeMap::new();
    for slice in slices {
        let (driver, pool) = (value::text(slice, "spec.driver"), value::text(slice, "spec.pool.name"));
        let entry = pools.entry(format!("{driver}/{pool}")).or_insert((driver, pool, 0, 0));
        entry.2 += 1;
        entry.3 += value::list(slice, "spec.devices").len();
    }
    if pools.is_empty() {
        return;
    }
    put!(out, 0, "Node-Local ResourceSlices:\n");
    put!(out, 1, "Driver\tPool\tSlices\tDevices\n");
    put!(out, 1, "------\t----\t------\t-------\n");
    for (driver, pool, slices, devices) in pools.values().take(MOST) {
        put!(out, 1, "{driver}\t{pool}\t{slices}\t{devices}\n");
    }
    if pools.len() > MOST {
        put!(out, 1, "...and {} more pools\n", pools.len() - MOST);
    }
}

fn system_info(scene: &Scene<'_>, out: &mut Writer) {
    put!(out, 0, "System Info:\n");
    for (title, field) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ] {
        out.field(1, title, scene.text(&format!("status.nodeInfo.{field}")));
    }
    let ranges = joined(scene.list("spec.podCIDRs"), ",");
    for (title, said) in
        [("PodCIDR", scene.text("spec.podCIDR")), ("PodCIDRs", &*ranges), ("ProviderID", scene.text("spec.providerID"))]
    {
        if !said.is_empty() {
            out.field(0, title, said);
        }
    }
}
