//! Pods that lie about who they are.

use std::net::IpAddr;
use std::process::Command;

use netpol::Port;
use serde_json::json;

use crate::cluster::{Cluster, bridged, pod};
use crate::net::Net;

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

#[test]
fn a_pod_cannot_pretend_to_be_another() {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3);
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

#[test]
fn an_address_that_is_used_again_at_once_is_the_new_pods() {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2);
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

#[test]
fn packets_that_no_connection_explains_are_not_passed_on() {
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2);
    net.nft("table inet loose {\nchain c {\ntype filter hook prerouting priority -300; policy accept;\ntcp dport 80 notrack\ntcp sport 80 notrack\n}\n}");
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{}]}));
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"), "without a connection nobody knows who answers whom");
}
