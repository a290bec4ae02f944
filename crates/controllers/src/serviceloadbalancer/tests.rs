//! Who gets which addresses.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::plan::{EXCLUDED_LABEL, Observed, plan};

fn service(name: &str, second: u8, more: Value) -> Service {
    let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let created = format!("2026-01-01T00:00:0{second}Z");
    let meta = json!({"namespace": "ns", "name": name, "creationTimestamp": created});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("an object")
}

fn node(name: &str, addresses: Value, ready: &str, labels: Value) -> Node {
    let status = json!({"conditions": [{"type": "Ready", "status": ready}], "addresses": addresses});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": status})).expect("an object")
}

fn nodes() -> Vec<Node> {
    let internal = |ip: &str| json!([{"type": "InternalIP", "address": ip}]);
    let both = json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "ExternalIP", "address": "192.0.2.2"},
                      {"type": "InternalIP", "address": "fd00::2"}]);
    vec![
        node("a", internal("10.0.0.1"), "True", json!({})),
        node("b", both, "True", json!({})),
        node("c", internal("10.0.0.3"), "False", json!({})),
        node("d", internal("10.0.0.4"), "True", json!({EXCLUDED_LABEL: ""})),
    ]
}

/// `name: addresses` or `name: why not`, one per line, by name.
#[track_caller]
fn check(services: &[Service], slices: &[EndpointSlice], want: &[&str]) {
    let shared = |services: &[Service]| services.iter().cloned().map(Arc::new).collect();
    let observed = Observed {
        services: shared(services),
        nodes: nodes().into_iter().map(Arc::new).collect(),
        slices: slices.iter().cloned().map(Arc::new).collect(),
    };
    let mut said: Vec<String> = plan(&observed, &BTreeSet::from([6443]))
        .into_iter()
        .map(|step| {
            let name = step.service.metadata.name.clone().unwrap_or_default();
            match step.waits {
                Some(why) => format!("{name}: {why}"),
                None => format!("{name}: {:?}", step.addresses.unwrap_or_default()),
            }
        })
        .collect();
    said.sort();
    assert_eq!(said, want);
}

#[test]
fn services_get_the_addresses_of_ready_nodes() {
    check(&[service("web", 0, json!({}))], &[], &["web: [10.0.0.1, 192.0.2.2]"]);
    let dual = json!({"ipFamilies": ["IPv6", "IPv4"]});
    check(&[service("web", 0, dual)], &[], &["web: [fd00::2, 10.0.0.1, 192.0.2.2]"]);
    check(&[service("web", 0, json!({"type": "NodePort"}))], &[], &[]);
    check(&[service("web", 0, json!({"loadBalancerClass": "example.com/other"}))], &[], &[]);
}

#[test]
fn a_port_belongs_to_the_older_service() {
    let old = service("old", 1, json!({}));
    let new = service("new", 2, json!({}));
    let udp = service("udp", 3, json!({"ports": [{"port": 80, "protocol": "UDP"}]}));
    let own = service("own", 0, json!({"ports": [{"port": 6443}]}));
    check(
        &[new, old, udp, own],
        &[],
        &[
            "new: port 80/tcp is taken by ns/old",
            "old: [10.0.0.1, 192.0.2.2]",
            "own: port 6443/tcp is the node's own",
            "udp: [10.0.0.1, 192.0.2.2]",
        ],
    );
}

#[test]
fn local_policy_names_only_nodes_with_endpoints() {
    let slice = json!({
        "metadata": {"namespace": "ns", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "a"},
                      {"addresses": ["10.1.0.2"], "nodeName": "b", "conditions": {"ready": false}}],
    });
    let web = service("web", 0, json!({"externalTrafficPolicy": "Local"}));
    check(std::slice::from_ref(&web), &[serde_json::from_value(slice).expect("an object")], &["web: [10.0.0.1]"]);
    check(&[web], &[], &["web: []"]);
}
#[test]
fn what_a_service_has_is_not_written_again() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"ip": "192.0.2.2"}]}});
    let mut web = service("web", 0, json!({}));
    web.status = serde_json::from_value(status).expect("a status");
    let observed = Observed {
        services: vec![Arc::new(web)],
        nodes: nodes().into_iter().map(Arc::new).collect(),
        slices: Vec::new(),
    };
    assert_eq!(plan(&observed, &BTreeSet::new())[0].addresses, None);
}
