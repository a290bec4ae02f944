//! Packets between pods behind a bridge, and who may send them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use netpol::Kind;
use serde_json::json;

use crate::cluster::{Cluster, SERVED, bridged, on_both_engines, pod};
use crate::net::say;

on_both_engines!(
    isolated_pods_are_reached_by_whom_policies_allow,
    what_goes_out_is_judged_by_where_it_goes,
    connections_that_are_there_are_judged_again_and_answers_are_not,
    services_are_judged_by_the_pod_behind_them
);

fn isolated_pods_are_reached_by_whom_policies_allow(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    for (from, to) in [("pod1", "10.1.0.2:80"), ("pod1", "[fd01::2]:80"), ("out", "10.1.0.2:80")] {
        assert!(cluster.reaches(from, to), "{from} to {to} before there is a policy");
    }
    cluster.allow("deny", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    for (from, to) in [("pod1", "10.1.0.2:80"), ("pod1", "[fd01::2]:80"), ("out", "10.1.0.2:80")] {
        assert!(!cluster.reaches(from, to), "{from} to {to} while all is denied");
    }
    // Others are as they were, the pod itself may go out and talk to itself, and its node reaches it: probes come from there.
    for (from, to) in
        [("pod1", "10.1.0.4:80"), ("pod0", "10.1.0.3:80"), ("pod0", "10.1.0.2:80"), ("node", "10.1.0.2:80")]
    {
        assert!(cluster.reaches(from, to), "{from} to {to}");
    }
    assert!(!net.echoes("pod1", "10.1.0.2"));
    cluster.allow(
        "b",
        json!({"podSelector": {"matchLabels": {"app": "a"}},
               "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": "web"}]}]}),
    );
    assert!(cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod1", "[fd01::2]:80"));
    assert!(!cluster.reaches("pod1", "10.1.0.2:81") && !cluster.reaches("pod2", "10.1.0.2:80"));
    // Labels change what a pod is, at once and without a look at any policy.
    cluster.update([pod(2, json!({"app": "b"}), json!([])), pod(1, json!({"app": "z"}), json!([]))]);
    assert!(cluster.reaches("pod2", "10.1.0.2:80") && !cluster.reaches("pod1", "10.1.0.2:80"));
    // Several ports at once, by script: ranges are not single elements.
    cluster.allow(
        "range",
        json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"ports": [{"port": 80, "endPort": 90}]}]}),
    );
    assert!(cluster.reaches("pod1", "10.1.0.2:81") && cluster.reaches("out", "10.1.0.2:80"));
    cluster.forget("range");
    assert!(!cluster.reaches("pod1", "10.1.0.2:81") && !cluster.reaches("out", "10.1.0.2:80"));
    cluster.forget("b");
    cluster.forget("deny");
    assert!(cluster.reaches("pod1", "10.1.0.2:81") && net.echoes("pod1", "10.1.0.2"));
}

fn what_goes_out_is_judged_by_where_it_goes(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    let of_a = |egress: serde_json::Value| json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"], "egress": egress});
    cluster.allow("p", of_a(json!([])));
    for to in ["10.1.0.3:80", "192.0.2.9:80", "[fd01::3]:80"] {
        assert!(!cluster.reaches("pod0", to), "{to}");
    }
    // Its own node is not kept from it, but for the Services that the node answers; who comes in is answered.
    assert!(cluster.reaches("pod0", "192.0.2.1:10250"));
    assert!(!cluster.reaches("pod0", &format!("{SERVED}:53")) && cluster.reaches("pod1", &format!("{SERVED}:53")));
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    cluster.allow("p", of_a(json!([{"ports": [{"port": 53}]}])));
    assert!(cluster.reaches("pod0", &format!("{SERVED}:53")) && !cluster.reaches("pod0", "10.1.0.3:80"));
    // Blocks hold pods and others, and exceptions within them.
    cluster.allow("p", of_a(json!([{"to": [{"ipBlock": {"cidr": "10.1.0.0/24", "except": ["10.1.0.4/32"]}}]}])));
    assert!(cluster.reaches("pod0", "10.1.0.3:80") && net.echoes("pod0", "10.1.0.3"));
    assert!(!cluster.reaches("pod0", "10.1.0.4:80") && !cluster.reaches("pod0", "192.0.2.9:80"));
    cluster.allow("q", of_a(json!([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 80}]}])));
    assert!(cluster.reaches("pod0", "10.1.0.4:80") && cluster.reaches("pod0", "192.0.2.9:80"));
    assert!(!cluster.reaches("pod0", "10.1.0.4:81"));
    cluster.forget("q");
    assert!(!cluster.reaches("pod0", "10.1.0.4:80") && cluster.reaches("pod0", "10.1.0.3:80"));
}

fn connections_that_are_there_are_judged_again_and_answers_are_not(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    let flow = net.flow("pod1", "10.1.0.2:53");
    assert_eq!(say(&flow), "pod0 10.1.0.3");
    let listener = net.inside("pod0", || TcpListener::bind("10.1.0.2:7").unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let mut stream = net.inside("pod1", || TcpStream::connect("10.1.0.2:7").unwrap());
    let mut echo = |wait: u64| {
        stream.set_read_timeout(Some(Duration::from_millis(wait))).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).is_ok()
    };
    assert!(echo(5_000));
    // A policy about what goes out of the server keeps no answer back.
    cluster.allow("out", json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]}));
    assert!(echo(5_000));
    assert_eq!(say(&flow), "pod0 10.1.0.3");
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    assert!(!echo(300));
    assert_eq!(say(&flow), "silence");
    cluster.forget("in");
    assert_eq!(say(&flow), "pod0 10.1.0.3");
    assert!(echo(5_000), "what was sent meanwhile arrives, too");
}

/// As the service proxy does it: the destination changes first, a bit of the mark asks for another source.
const SERVICE: &str = "table ip service {
chain prerouting { type nat hook prerouting priority -100; policy accept;
ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.0.2:80
ip daddr 192.0.2.1 tcp dport 30080 meta mark set meta mark or 0x4000 dnat to 10.1.0.2:80
}
chain postrouting { type nat hook postrouting priority 100; policy accept;
meta mark and 0x4000 != 0 masquerade
ct status dnat ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade
}
}";

fn services_are_judged_by_the_pod_behind_them(kind: Kind) {
    let net = bridged(3);
    net.nft(SERVICE);
    net.ip("out", "route add 10.96.0.0/16 via 192.0.2.1");
    let mut cluster = Cluster::new(&net, 3, kind);
    assert!(cluster.reaches("pod1", "10.96.0.1:80") && cluster.reaches("pod0", "10.96.0.1:80"));
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "pod0 10.1.0.1");
    cluster.allow(
        "in",
        json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": "b"}}}, {"ipBlock": {"cidr": "192.0.2.9/32"}}]}]}),
    );
    assert_eq!(net.ask("pod1", "10.96.0.1:80"), "pod0 10.1.0.3", "sources stay");
    assert!(!cluster.reaches("pod2", "10.96.0.1:80"));
    assert!(cluster.reaches("pod0", "10.96.0.1:80"), "a pod reaches itself through its Service");
    assert_eq!(
        net.ask("out", "192.0.2.1:30080"),
        "pod0 10.1.0.1",
        "the proxy's mark stays, and the client is the outsider"
    );
    assert!(!cluster.reaches("pod2", "192.0.2.1:30080"));
    // What goes out to a Service goes out to its pod.
    let to_b = json!([{"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]);
    cluster
        .allow("out", json!({"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Egress"], "egress": to_b}));
    assert!(!cluster.reaches("pod1", "10.96.0.1:80"));
    let to_a = json!([{"to": [{"podSelector": {"matchLabels": {"app": "a"}}}]}]);
    cluster
        .allow("out", json!({"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Egress"], "egress": to_a}));
    assert!(cluster.reaches("pod1", "10.96.0.1:80"));
}
