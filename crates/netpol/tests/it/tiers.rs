//! ClusterNetworkPolicies before and after NetworkPolicies, with real packets.

use netpol::Kind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, bridged, on_both_engines};

on_both_engines!(
    tiers_have_their_say_in_order,
    rules_of_a_tier_are_asked_in_order_and_blocks_hold_pods,
    what_goes_to_the_own_node_is_the_clusters_affair,
);

fn app(name: &str) -> Value {
    json!({"pods": {"podSelector": {"matchLabels": {"app": name}}}})
}

fn tcp(port: u16) -> Value {
    json!([{"tcp": {"destinationPort": {"number": port}}}])
}

fn policy(tier: &str, priority: u32, direction: &str, rules: Value) -> Option<Value> {
    Some(json!({"tier": tier, "priority": priority, "subject": app("a"), direction: rules}))
}

fn with_namespace(cluster: &mut Cluster<'_>) {
    let labels = [("kubernetes.io/metadata.name".to_owned(), "default".to_owned())];
    cluster.update([netpol::Input::Namespace("default".into(), Some(labels.into()))]);
}

fn tiers_have_their_say_in_order(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    with_namespace(&mut cluster);
    let b_web = |action: &str| json!([{"action": action, "from": [app("b")], "protocols": tcp(80)}]);
    // Nothing is isolated by it: only what it denies is denied.
    cluster.say("admin", policy("Admin", 5, "ingress", b_web("Deny")));
    assert!(!cluster.reaches("pod1", "10.1.0.2:80") && !cluster.reaches("pod1", "[fd01::2]:80"));
    assert!(cluster.reaches("pod1", "10.1.0.2:81") && cluster.reaches("pod2", "10.1.0.2:80"));
    assert!(cluster.reaches("out", "10.1.0.2:80") && cluster.reaches("node", "10.1.0.2:80"));
    assert!(net.echoes("pod1", "10.1.0.2"), "what has no port is not that port");
    // A NetworkPolicy cannot allow what an administrator denies, nor deny what one accepts.
    cluster.allow("all", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{}]}));
    assert!(!cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod1", "10.1.0.2:81"));
    cluster.allow("all", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    assert!(!cluster.reaches("pod1", "10.1.0.2:81") && !net.echoes("pod1", "10.1.0.2"));
    cluster.say("admin", policy("Admin", 5, "ingress", b_web("Accept")));
    assert!(cluster.reaches("pod1", "10.1.0.2:80") && !cluster.reaches("pod2", "10.1.0.2:80"));
    // What is passed on is the next tier's.
    cluster.say(
        "admin",
        policy(
            "Admin",
            5,
            "ingress",
            json!([
        {"action": "Pass", "from": [app("b")]}, {"action": "Accept", "from": [{"namespaces": {}}]}]),
        ),
    );
    assert!(!cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod2", "10.1.0.2:80"));
    // The last tier speaks where no NetworkPolicy does.
    cluster.say("baseline", policy("Baseline", 5, "ingress", b_web("Deny")));
    cluster.forget("all");
    assert!(!cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod1", "10.1.0.2:81"));
    cluster.allow("all", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{}]}));
    assert!(cluster.reaches("pod1", "10.1.0.2:80"), "whoever has a policy of their own is not held by the baseline");
    cluster.forget("all");
    cluster.say("admin", None);
    assert!(!cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod2", "10.1.0.2:80"));
    cluster.say("baseline", None);
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
}

fn rules_of_a_tier_are_asked_in_order_and_blocks_hold_pods(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    with_namespace(&mut cluster);
    let networks = |action: &str, networks: &[&str]| json!([{"action": action, "to": [{"networks": networks}]}]);
    cluster.say("deny", policy("Admin", 9, "egress", networks("Deny", &["10.1.0.0/24", "192.0.2.0/24"])));
    assert!(!cluster.reaches("pod0", "10.1.0.3:80") && !cluster.reaches("pod0", "192.0.2.9:80"));
    assert!(!net.echoes("pod0", "10.1.0.3") && cluster.reaches("pod0", "[fd01::3]:80"));
    // Of two policies the one with the lesser number is asked first.
    cluster.say("some", policy("Admin", 3, "egress", json!([
        {"action": "Accept", "to": [app("b")], "protocols": [{"destinationNamedPort": "web"}]},
        {"action": "Accept", "to": [{"networks": ["192.0.2.9/32"]}], "protocols": [{"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}}]}])));
    assert!(cluster.reaches("pod0", "10.1.0.3:80") && !cluster.reaches("pod0", "10.1.0.3:81"));
    assert!(!cluster.reaches("pod0", "10.1.0.4:80") && cluster.reaches("pod0", "192.0.2.9:80"));
    cluster.say("some", policy("Admin", 12, "egress", networks("Accept", &["10.1.0.0/24"])));
    assert!(!cluster.reaches("pod0", "10.1.0.3:80"), "it comes too late");
    // What cannot be understood fails closed.
    cluster
        .say("deny", policy("Admin", 9, "egress", json!([{"action": "Deny", "to": [{"domainNames": ["a.example"]}]}])));
    assert!(!cluster.reaches("pod0", "[fd01::3]:80"));
    cluster.say("deny", None);
    assert!(cluster.reaches("pod0", "[fd01::3]:80") && cluster.reaches("pod0", "10.1.0.3:80"));
}

fn what_goes_to_the_own_node_is_the_clusters_affair(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    with_namespace(&mut cluster);
    let labels: netpol::model::Labels = [("role".to_owned(), "node".to_owned())].into();
    let facts = netpol::model::NodeFacts { labels, addresses: ["192.0.2.1".parse().unwrap()].into() };
    cluster.update([netpol::Input::Node("node".into(), Some(facts.clone()))]);
    let nodes = json!([{"action": "Deny", "to": [{"nodes": {"matchLabels": {"role": "node"}}}]}]);
    cluster.say("nodes", policy("Admin", 5, "egress", nodes));
    assert!(!cluster.reaches("pod0", "192.0.2.1:10250") && cluster.reaches("pod1", "192.0.2.1:10250"));
    assert!(cluster.reaches("pod0", "192.0.2.9:80") && cluster.reaches("node", "10.1.0.2:80"));
    let open = netpol::model::NodeFacts { labels: [("role".to_owned(), "other".to_owned())].into(), ..facts };
    cluster.update([netpol::Input::Node("node".into(), Some(open))]);
    assert!(cluster.reaches("pod0", "192.0.2.1:10250"), "another node is meant now");
    let everything = json!([{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]}]);
    cluster.say("nodes", policy("Baseline", 5, "egress", everything));
    assert!(!cluster.reaches("pod0", "192.0.2.1:10250"));
    cluster.allow("out", json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]}));
    assert!(
        cluster.reaches("pod0", "192.0.2.1:10250"),
        "a NetworkPolicy goes before the baseline, and keeps nobody from the node"
    );
    assert!(!cluster.reaches("pod0", "192.0.2.9:80"));
}
