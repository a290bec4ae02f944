//! Packets again: which endpoints are chosen, for how long, and at which of the node's addresses.

use std::collections::{BTreeMap, BTreeSet};

use proxy::{Family, NodeView};
use serde_json::{Value, json};

use crate::apply::Rules as _;
use crate::net::{Net, say};
use crate::rules::{Cluster, node};
use crate::traffic::{tcp, three_pods, with};

fn node_port(ip: &str, port: Value) -> Value {
    with(tcp(ip), json!({"type": "NodePort", "ports": [port]}))
}

#[test]
fn traffic_stays_in_its_zone_while_every_endpoint_says_whose_it_is() {
    let net = three_pods();
    let mut cluster = Cluster::on(&net, NodeView { zone: Some("east".into()), ..node() });
    let spec = with(tcp("10.96.0.1"), json!({"trafficDistribution": "PreferSameZone"}));
    cluster.set("web", spec.clone(), &["10.1.0.2@node~east", "10.1.0.3@far~west", "10.1.0.4@far~west"]);
    assert_eq!(net.ask_all("out", "10.96.0.1:80", 30), ["pod0"]);
    // Without an endpoint for us, or with one that does not say whose it is, any will do.
    cluster.set("web", spec.clone(), &["10.1.0.3@far~west", "10.1.0.4@far~west"]);
    assert_eq!(net.ask_all("out", "10.96.0.1:80", 40), ["pod1", "pod2"]);
    cluster.set("web", spec, &["10.1.0.2@node~east", "10.1.0.3@far"]);
    assert_eq!(net.ask_all("out", "10.96.0.1:80", 40), ["pod0", "pod1"]);
}

#[test]
fn endpoints_that_end_serve_only_while_no_other_is_ready() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node!"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 30), ["pod0"]);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node?", "10.1.0.3@node!"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 10), ["pod1"]);
    // What is not ready and does not end is nobody's endpoint; `publishNotReadyAddresses` makes it ready where it is listed.
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node?"]);
    assert_eq!(net.ask("pod2", "10.96.0.1:80"), "refused");
}

#[test]
fn a_client_is_forgotten_when_its_time_is_over() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let affinity = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}});
    cluster.set("web", with(tcp("10.96.0.1"), affinity), &["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@node"]);
    let started = std::time::Instant::now();
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        assert!(started.elapsed() < std::time::Duration::from_secs(120), "always {seen:?}");
        seen.insert(net.ask("out", "10.96.0.1:80"));
        // The kernel forgets by itself; only then the next question is a new client's.
        while String::from_utf8(net.listed("ip")).unwrap().contains("\"val\": \"192.0.2.9\"") {
            std::thread::yield_now();
        }
    }
}

#[test]
fn node_ports_answer_only_at_the_addresses_they_are_told() {
    let net = three_pods();
    net.ip("node", "addr add 192.0.2.2/24 dev out");
    let chosen = BTreeMap::from([(Family::V4, BTreeSet::from(["192.0.2.2".parse().unwrap()]))]);
    let mut cluster = Cluster::on(&net, NodeView { node_port_addresses: chosen, ..node() });
    let spec = node_port("10.96.0.1", json!({"port": 80, "nodePort": 30080, "targetPort": 8080}));
    cluster.set("web", spec, &["10.1.0.2@node"]);
    assert_eq!(net.ask("out", "192.0.2.2:30080"), "pod0 10.1.0.1");
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "refused");
    // Of the other family nothing was said.
    let six = json!({"clusterIP": "fd96::1", "clusterIPs": ["fd96::1"], "type": "NodePort",
                     "ports": [{"port": 80, "nodePort": 30081, "targetPort": 8080}]});
    cluster.set("six", six, &["fd01::2@node"]);
    assert!(net.ask("out", "[fd02::1]:30081").starts_with("pod0 "));
}

#[test]
fn node_ports_and_load_balancers_answer_datagrams_and_in_both_families() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let udp = json!({"port": 53, "nodePort": 30053, "targetPort": 5353, "protocol": "UDP"});
    cluster.set("udp", node_port("10.96.0.10", udp), &["10.1.0.3@node"]);
    assert_eq!(say(&net.flow("out", "192.0.2.1:30053")), "pod1 10.1.0.1");
    let dual = json!({
        "clusterIP": "fd96::1", "clusterIPs": ["fd96::1", "10.96.0.1"], "type": "LoadBalancer",
        "ports": [{"port": 80, "nodePort": 30080, "targetPort": 8080}], "externalIPs": ["fd03::77"],
        "ingress": [{"ip": "fd03::78"}, {"ip": "198.51.100.7"}],
    });
    cluster.set("dual", dual.clone(), &["10.1.0.2@node", "fd01::4@node"]);
    for address in ["[fd96::1]:80", "[fd02::1]:30080", "[fd03::77]:80", "[fd03::78]:80"] {
        assert!(net.ask("out", address).starts_with("pod2 "), "{address}");
    }
    for address in ["10.96.0.1:80", "192.0.2.1:30080", "198.51.100.7:80"] {
        assert!(net.ask("out", address).starts_with("pod0 "), "{address}");
    }
    // A pod that is its own endpoint, and local policy, in the second family too.
    assert!(net.ask("pod2", "[fd96::1]:80").starts_with("pod2 "));
    let local = with(dual, json!({"externalTrafficPolicy": "Local"}));
    cluster.set("dual", local.clone(), &["10.1.0.2@node", "fd01::4@node"]);
    assert_eq!(net.ask("out", "[fd02::1]:30080"), "pod2 fd02::9");
    cluster.set("dual", local, &["10.1.0.2@node", "fd01::4@far"]);
    assert_eq!(net.ask("out", "[fd02::1]:30080"), "silence");
}

#[test]
fn who_asks_for_it_gets_all_traffic_masqueraded() {
    let net = three_pods();
    let mut cluster = Cluster::on(&net, NodeView { masquerade_all: true, ..node() });
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
    assert_eq!(net.ask("pod2", "10.96.0.1:80"), "pod0 10.1.0.1");
}

#[test]
fn an_address_that_a_process_here_serves_is_left_to_it() {
    let net = Net::new(1);
    net.ip("node", "addr add 10.96.0.10/32 dev lo");
    net.serve("node", "10.96.0.10:53");
    let mut cluster = Cluster::on(&net, NodeView { served_here: ["10.96.0.10".parse().unwrap()].into(), ..node() });
    let dns =
        json!({"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [{"port": 53, "targetPort": 53}]});
    cluster.set("dns", dns, &[]);
    assert_eq!(net.ask("pod0", "10.96.0.10:53"), "node 10.1.0.2");
    assert_eq!(net.ask("node", "10.96.0.10:53"), "node 10.96.0.10");
}
