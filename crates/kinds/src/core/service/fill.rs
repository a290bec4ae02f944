//! What a Service keeps, loses and gets when its type changes.

use std::collections::{HashMap, HashSet};

use machinery::{Value, value};
use serde_json::json;

use crate::core::service::{is_checked, is_external, kind};
use crate::keep::keep;

fn has_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => {
            value::at(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true)
        }
        _ => false,
    }
}

/// What is said before anything is allocated: both ways to name the address say the same, and what the server filled in stays
/// when an update leaves it out.
pub fn complete(new: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_allocated(new, old);
    }
    let single = value::text(new, "spec.clusterIP").to_owned();
    let all = value::list(new, "spec.clusterIPs");
    match old {
        None if !single.is_empty() && all.is_empty() => value::set(new, "spec.clusterIPs", vec![single]),
        // A client that knows only the one has the last word by it.
        Some(old) if single != value::text(old, "spec.clusterIP") && all == value::list(old, "spec.clusterIPs") => {
            match single.is_empty() {
                true => drop(value::remove(new, "spec.clusterIPs")),
                false => value::set(new, "spec.clusterIPs", vec![single]),
            }
        }
        _ => {}
    }
}

fn keep_allocated(new: &mut Value, old: &Value) {
    let needs_ip = |service: &Value| kind(service) != "ExternalName";
    if needs_ip(new) && needs_ip(old) {
        for path in ["spec.clusterIP", "spec.clusterIPs"] {
            let left_out =
                value::at(new, path).is_none_or(|given| given.is_null() || given == "" || *given == json!([]));
            if left_out && value::at(old, path).is_some() {
                keep(new, old, path);
            }
        }
    }
    if has_node_ports(new) && has_node_ports(old) {
        fn ports(service: &Value) -> impl Iterator<Item = (&str, i64)> {
            let each = value::list(service, "spec.ports").iter();
            each.map(|port| (value::text(port, "name"), value::int(port, "nodePort").unwrap_or(0)))
        }
        // Of ports with one name the last one counts.
        let before: HashMap<&str, i64> = ports(old).collect();
        let used: HashSet<i64> = ports(new).map(|(_, number)| number).collect();
        // A port is known by its name: whatever else of it changed, its number stays, unless another port has it now.
        for port in value::list_mut(new, "spec.ports") {
            let unset = value::int(port, "nodePort").unwrap_or(0) == 0;
            let known = before.get(value::text(port, "name")).filter(|number| unset && !used.contains(number));
            if let Some(number) = known {
                value::set(port, "nodePort", *number);
            }
        }
    }
    if is_checked(new) && is_checked(old) && value::int(new, "spec.healthCheckNodePort").unwrap_or(0) == 0 {
        keep(new, old, "spec.healthCheckNodePort");
    }
}

/// Fields that the old type had and the new one has not, if the client only left them as they were.
pub fn drop_other_types(new: &mut Value, old: &Value) {
    let same = |new: &Value, path: &str| value::at(new, path) == value::at(old, path);
    if kind(old) != "ExternalName" && kind(new) == "ExternalName" {
        if same(new, "spec.clusterIP") && same(new, "spec.clusterIPs") {
            value::remove(new, "spec.clusterIP");
            value::remove(new, "spec.clusterIPs");
        }
        for path in ["spec.ipFamilies", "spec.ipFamilyPolicy"] {
            if same(new, path) {
                value::remove(new, path);
            }
        }
    }
    let may_have_ports = |service: &Value| matches!(kind(service), "NodePort" | "LoadBalancer");
    if may_have_ports(old) && !may_have_ports(new) {
        let ports = |service: &Value| -> Vec<i64> {
            let each = value::list(service, "spec.ports").iter().map(|port| value::int(port, "nodePort").unwrap_or(0));
            each.filter(|port| *port != 0).collect()
        };
        let before = ports(old);
        if ports(new).iter().all(|port| before.contains(port)) {
            for port in value::list_mut(new, "spec.ports") {
                value::remove(port, "nodePort");
            }
        }
    }
    if is_checked(old) && !is_checked(new) && same(new, "spec.healthCheckNodePort") {
        value::remove(new, "spec.healthCheckNodePort");
    }
    if kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer" {
        for path in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if same(new, path) {
                value::remove(new, path);
            }
        }
        value::set(new, "status", json!({"loadBalancer": {}}));
    }
    if is_external(old) && !is_external(new) && same(new, "spec.externalTrafficPolicy") {
        value::remove(new, "spec.externalTrafficPolicy");
    }
}
