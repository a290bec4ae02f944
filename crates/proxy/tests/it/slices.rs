//! Services whose ports and endpoints are spread over several slices, one port of two protocols, and affinity that is switched.

use serde_json::json;

use crate::net::{Net, say};
use crate::rules::Cluster;
use crate::traffic::{tcp, three_pods, with};

#[test]
fn a_service_is_served_by_all_of_its_slices() {
    let net = Net::new(3);
    for (pod, port) in [(0, 8080), (1, 8080), (2, 9090)] {
        net.serve(&format!("pod{pod}"), &format!("10.1.0.{}:{port}", pod + 2));
    }
    let mut cluster = Cluster::new(&net);
    let ports =
        json!([{"name": "web", "port": 80, "targetPort": 8080}, {"name": "other", "port": 81, "targetPort": 9090}]);
    cluster.set("web", with(tcp("10.96.0.1"), json!({"ports": ports})), &[]);
    let web = json!([{"name": "web", "port": 8080, "protocol": "TCP"}]);
    cluster.add_slice("web", "one", &web, "10.1.0.2");
    cluster.add_slice("web", "two", &web, "10.1.0.3");
    cluster.add_slice("web", "three", &json!([{"name": "other", "port": 9090, "protocol": "TCP"}]), "10.1.0.4");
    for from in ["pod2", "node"] {
        assert_eq!(net.ask_all(from, "10.96.0.1:80", 40), ["pod0", "pod1"], "two slices of one port, from {from}");
        assert_eq!(net.ask_all(from, "10.96.0.1:81", 10), ["pod2"], "another port in another slice, from {from}");
    }
}

#[test]
fn one_port_serves_two_protocols() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let ports = json!([
        {"name": "stream", "port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"name": "datagrams", "port": 80, "targetPort": 5353, "protocol": "UDP"},
    ]);
    cluster.set("both", with(tcp("10.96.0.1"), json!({"ports": ports})), &["10.1.0.2@node"]);
    assert_eq!(net.ask("pod2", "10.96.0.1:80"), "pod0 10.1.0.4");
    assert_eq!(say(&net.flow("pod2", "10.96.0.1:80")), "pod0 10.1.0.4");
}

#[test]
fn affinity_is_switched_on_and_off() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let ports = json!([{"port": 80, "nodePort": 30080, "targetPort": 8080}]);
    let spec = |affinity: &str| {
        let mut more = json!({"type": "NodePort", "ports": ports, "sessionAffinity": affinity});
        if affinity == "ClientIP" {
            more["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 600}});
        }
        with(tcp("10.96.0.1"), more)
    };
    for affinity in ["None", "ClientIP", "None"] {
        cluster.set("web", spec(affinity), &["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@node"]);
        // A cluster's address from a pod's side, a node's port from outside.
        for (from, address) in [("node", "10.96.0.1:80"), ("out", "192.0.2.1:30080")] {
            let reached = net.ask_all(from, address, 60).len();
            assert_eq!(reached, if affinity == "None" { 3 } else { 1 }, "{affinity}, {address} from {from}");
        }
    }
}
