//! Pods that lie about who they are.

use std::net::{IpAddr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netpol::{Kind, Port};
use serde_json::json;

use crate::cluster::{Cluster, bridged, on_both_engines, pod};
use crate::net::Net;

on_both_engines!(
    a_pod_cannot_pretend_to_be_another,
    an_address_that_is_used_again_at_once_is_the_new_pods,
    packets_that_no_connection_explains_are_not_passed_on,
    fragments_are_judged_by_the_packet_that_they_are_of,
    a_family_that_no_rule_speaks_of_is_not_a_way_in,
    addresses_that_only_neighbours_know_are_not_a_way_in,
    what_is_sent_to_many_does_not_reach_who_is_isolated,
    a_flood_of_new_connections_lets_nothing_through_and_keeps_nobody_out,
    ten_thousand_ports_are_those_and_no_others,
);

/// The hardware address of a pod's link.
fn mac(net: &Net, pod: &str) -> String {
    let output = Command::new("ip").args(["-n", &net.name(pod), "-j", "link", "show", "eth0"]).output().unwrap();
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["address"].as_str().unwrap().to_owned()
}

fn bind(cluster: &mut Cluster<'_>, number: u8) {
    let name = format!("pod{number}");
    let addresses: [IpAddr; 2] =
        [format!("10.1.0.{}", number + 2).parse().unwrap(), format!("fd01::{:x}", number + 2).parse().unwrap()];
    cluster.ports.push(Port::parse(&name, &mac(cluster.net, &name), &addresses).unwrap());
}

fn a_pod_cannot_pretend_to_be_another(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    // Only `b` may talk to `a`, and the third pod wants to.
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}, {"ipBlock": {"cidr": "10.9.0.0/16"}},
                                  {"ipBlock": {"cidr": "fd09::/16"}}]}]);
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": from_b}));
    (0..3).for_each(|number| bind(&mut cluster, number));
    cluster.rewrite();
    for (from, to) in
        [("pod1", "10.1.0.2:80"), ("pod1", "[fd01::2]:80"), ("pod2", "10.1.0.3:80"), ("node", "10.1.0.4:80")]
    {
        assert!(cluster.reaches(from, to), "{from} to {to} in all honesty");
    }
    assert!(!cluster.reaches("pod2", "10.1.0.2:80"));

    // An address that is allowed, and one of another family that nobody was given.
    net.ip("node", "route add 10.9.0.0/16 dev cni0");
    net.ip("pod2", "addr add 10.9.0.9/32 dev eth0");
    net.ip("pod0", "route add 10.9.0.9/32 dev eth0");
    net.ip("pod2", "route replace 10.1.0.2/32 dev eth0 src 10.9.0.9");
    assert!(!cluster.reaches("pod2", "10.1.0.2:80"), "as an address of a block");
    net.ip("pod2", "route del 10.1.0.2/32 dev eth0");
    net.ip("pod2", "addr add fd09::9/128 dev eth0 nodad");
    net.ip("pod0", "-6 route add fd09::9/128 dev eth0");
    net.ip("pod2", "-6 route add fd01::2/128 dev eth0 src fd09::9");
    assert!(!cluster.reaches("pod2", "[fd01::2]:80"), "as an address of IPv6 that is nobody's");
    net.ip("pod2", "-6 route del fd01::2/128 dev eth0");

    // The very address of the pod that is allowed, with its hardware address or without, while that one is away.
    net.ip("pod1", "link set eth0 down");
    net.ip("pod2", "addr add 10.1.0.3/32 dev eth0");
    net.ip("pod2", "route replace 10.1.0.2/32 dev eth0 src 10.1.0.3");
    assert!(!cluster.reaches("pod2", "10.1.0.2:80"), "as the other pod");
    let stolen = mac(&net, "pod1");
    let own = mac(&net, "pod2");
    net.ip("pod2", &format!("link set eth0 address {stolen}"));
    assert!(!cluster.reaches("pod2", "10.1.0.2:80"), "as the other pod, from its link");
    net.ip("pod2", &format!("link set eth0 address {own}"));
    net.ip("pod2", "route del 10.1.0.2/32 dev eth0");
    net.ip("pod2", "addr del 10.1.0.3/32 dev eth0");
    net.ip("pod1", "link set eth0 up");
    net.ip("node", "neigh flush dev cni0");
    assert!(cluster.reaches("pod2", "10.1.0.3:80"), "honest again");
}

fn an_address_that_is_used_again_at_once_is_the_new_pods(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]);
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": from_b}));
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    // The next one has the address while the API still shows the one before.
    let netpol::Input::Pod(_, Some(mut next)) = pod(1, json!({"app": "c"}), json!([])) else { unreachable!() };
    next.created = 1;
    cluster.update([netpol::Input::Pod("next".into(), Some(next))]);
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"));
    cluster.update([netpol::Input::Pod("uid1".into(), None)]);
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"));
    cluster.update([netpol::Input::Pod("next".into(), None)]);
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"), "an address that is nobody's is not what it was");
}

fn packets_that_no_connection_explains_are_not_passed_on(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    net.nft("table inet loose {\nchain c {\ntype filter hook prerouting priority -300; policy accept;\ntcp dport 80 notrack\ntcp sport 80 notrack\n}\n}");
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{}]}));
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"), "without a connection nobody knows who answers whom");
}

fn fragments_are_judged_by_the_packet_that_they_are_of(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    net.serve_udp("pod0", "10.1.0.2:54");
    net.serve_udp("pod0", "[fd01::2]:53");
    net.serve_udp("pod0", "[fd01::2]:54");
    let flows = ["10.1.0.2:53", "10.1.0.2:54", "[fd01::2]:53", "[fd01::2]:54"].map(|to| net.flow("pod1", to));
    // Longer than three frames.
    let long = |flow: &UdpSocket| flow.send(&[7; 4_000]).and_then(|_| flow.recv(&mut [0; 64])).is_ok();
    assert!(flows.iter().all(long), "before there is a policy");
    let ports = json!([{"ports": [{"port": 53, "protocol": "UDP"}]}]);
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": ports}));
    assert_eq!(flows.each_ref().map(long), [true, false, true, false]);
}

fn a_family_that_no_rule_speaks_of_is_not_a_way_in(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    let everybody = |cidr: &str| json!([{"from": [{"ipBlock": {"cidr": cidr}}]}]);
    for (cidr, reached, kept) in [("0.0.0.0/0", "10.1.0.2:80", "[fd01::2]:80"), ("::/0", "[fd01::2]:80", "10.1.0.2:80")]
    {
        cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": everybody(cidr)}));
        assert!(cluster.reaches("pod1", reached) && !cluster.reaches("pod1", kept), "{cidr}");
    }
}

fn addresses_that_only_neighbours_know_are_not_a_way_in(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    net.ip("pod0", "addr add fe80::99/64 dev eth0 nodad");
    let index = |pod: &str| {
        let output = Command::new("ip").args(["-n", &net.name(pod), "-j", "link", "show", "eth0"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        u32::try_from(links[0]["ifindex"].as_u64().unwrap()).unwrap()
    };
    let server = net.inside("pod0", || UdpSocket::bind("[::]:99").unwrap());
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let secret = SocketAddrV6::new("fe80::99".parse().unwrap(), 99, 0, index("pod1"));
    let sender = net.inside("pod1", || UdpSocket::bind("[fd01::3]:0").unwrap());
    let arrives = |to: SocketAddrV6| {
        sender.send_to(b"?", to).unwrap();
        server.recv(&mut [0; 8]).is_ok()
    };
    let open = SocketAddrV6::new("fd01::2".parse().unwrap(), 99, 0, 0);
    assert!(arrives(secret) && arrives(open), "before ports are bound and a policy is there");
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    (0..2).for_each(|number| bind(&mut cluster, number));
    cluster.rewrite();
    assert!(!arrives(open) && !arrives(secret));
    cluster.forget("in");
    assert!(arrives(open), "neighbours find each other still");
}

/// Multicast and broadcast are addressed to nobody that a policy speaks of.
fn what_is_sent_to_many_does_not_reach_who_is_isolated(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    (0..3).for_each(|number| bind(&mut cluster, number));
    cluster.rewrite();
    let group = std::net::Ipv4Addr::new(239, 1, 2, 3);
    let listen = |pod: &str, own: std::net::Ipv4Addr| {
        let server = net.inside(pod, || UdpSocket::bind("0.0.0.0:99").unwrap());
        net.inside(pod, || server.join_multicast_v4(&group, &own).unwrap());
        server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        server
    };
    let (isolated, open) = (listen("pod0", [10, 1, 0, 2].into()), listen("pod1", [10, 1, 0, 3].into()));
    net.ip("pod2", "route add 239.0.0.0/8 dev eth0");
    let sender = net.inside("pod2", || UdpSocket::bind("10.1.0.4:0").unwrap());
    sender.set_broadcast(true).unwrap();
    let drain = |server: &UdpSocket| while server.recv(&mut [0; 8]).is_ok() {};
    let arrives = |to: &str| {
        drain(&isolated);
        drain(&open);
        sender.send_to(b"?", to).unwrap();
        [&isolated, &open].map(|server| server.recv(&mut [0; 8]).is_ok())
    };
    let many = ["239.1.2.3:99", "10.1.0.255:99", "255.255.255.255:99"];
    for to in many {
        assert_eq!(arrives(to), [true, true], "{to} before there is a policy");
    }
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]}));
    for to in many {
        assert_eq!(arrives(to), [false, true], "{to}");
    }
    // Not even in a frame that is addressed to it.
    let victim = mac(&net, "pod0");
    net.ip("pod2", &format!("neigh replace 239.1.2.3 lladdr {victim} dev eth0 nud permanent"));
    assert!(!arrives("239.1.2.3:99")[0]);
    assert!(
        cluster.reaches("pod1", "10.1.0.2:80") && cluster.reaches("pod1", "[fd01::2]:80"),
        "neighbours find each other"
    );
    cluster.forget("in");
    assert_eq!(arrives("10.1.0.255:99"), [true, true]);
    // Who may not send to anybody sends to nobody.
    cluster.allow("out", json!({"podSelector": {"matchLabels": {"app": "c"}}, "policyTypes": ["Egress"]}));
    for to in many {
        assert_eq!(arrives(to), [false, false], "{to} from who is isolated");
    }
}

fn a_flood_of_new_connections_lets_nothing_through_and_keeps_nobody_out(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]);
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": from_b}));
    let server = net.inside("pod0", || UdpSocket::bind("10.1.0.2:99").unwrap());
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ending = stop.clone();
    // Every port of the source is a connection of its own.
    let flood = net.spawn_inside("pod2", move || {
        for port in (1_024..60_000).cycle() {
            if ending.load(Ordering::Relaxed) {
                return;
            }
            let Ok(socket) = UdpSocket::bind(("10.1.0.4", port)) else { continue };
            let _ = socket.send_to(b"?", "10.1.0.2:99");
        }
    });
    for _ in 0..200 {
        assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    }
    // A change is made while the flood goes on.
    cluster
        .allow("more", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"ports": [{"port": 81}]}]}));
    assert!(cluster.reaches("pod2", "10.1.0.2:81") && !cluster.reaches("pod2", "10.1.0.2:80"));
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(server.recv(&mut [0; 8]).is_err(), "not one packet of the flood arrived");
}

fn ten_thousand_ports_are_those_and_no_others(kind: Kind) {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, kind);
    let ports: Vec<serde_json::Value> = (0..10_000).map(|number| json!({"port": 2 * number + 80})).collect();
    let every_way = json!([{"ports": ports, "from": [
        {"podSelector": {}}, {"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.0.0/17", "10.1.0.0/24", "10.1.0.0/24"]}}]}]);
    cluster.allow("in", json!({"podSelector": {}, "ingress": every_way}));
    assert!(cluster.reaches("pod1", "10.1.0.2:80") && !cluster.reaches("pod1", "10.1.0.2:81"));
    cluster.forget("in");
    assert!(cluster.reaches("pod1", "10.1.0.2:81"));
}
