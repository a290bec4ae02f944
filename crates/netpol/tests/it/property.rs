//! For generated policies, pods and packets, the specification and the compiled maps agree, after every single change.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netpol::cluster_policy::ClusterPolicy;
use netpol::ebpf::entries::{Steps, places};
use netpol::elements::{self, Transaction};
use netpol::explain::{self, End, explain};
use netpol::model::{self, NodeFacts, PodFacts, Policy, PolicyName};
use netpol::{Compiler, Input};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rules::protocol::Protocol;
use serde_json::{Value, json};

use crate::oracle::World;
use crate::tables::{Maps, Tables};

const NAMESPACES: [&str; 2] = ["a", "b"];
pub const NODE: &str = "here";

fn pick<'a, T>(random: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[random.random_range(0..from.len())]
}

pub fn labels(random: &mut StdRng) -> Value {
    let mut labels = serde_json::Map::new();
    for key in ["app", "tier"] {
        if random.random_bool(0.7) {
            labels.insert(key.into(), json!(pick(random, &["x", "y", "z"])));
        }
    }
    Value::Object(labels)
}

fn selector(random: &mut StdRng) -> Value {
    match random.random_range(0..6) {
        0 => json!({}),
        1 => json!({"matchLabels": labels(random)}),
        2 => json!({"matchLabels": {"app": pick(random, &["x", "y", "z"])}}),
        3 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}),
        4 => json!({"matchExpressions": [{"key": "tier", "operator": pick(random, &["Exists", "DoesNotExist"])}]}),
        _ => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["y", "z"]}]}),
    }
}

fn peer(random: &mut StdRng) -> Value {
    match random.random_range(0..5) {
        0 => json!({"podSelector": selector(random)}),
        1 => json!({"namespaceSelector": selector(random)}),
        2 => json!({"namespaceSelector": selector(random), "podSelector": selector(random)}),
        3 => {
            json!({"ipBlock": {"cidr": pick(random, &["10.0.0.0/24", "10.0.0.0/28", "fd00::/64", "192.0.2.0/24", "0.0.0.0/0"])}})
        }
        _ => {
            let (cidr, except) = pick(
                random,
                &[
                    ("0.0.0.0/0", ["10.0.0.0/29", "192.0.2.7/32"]),
                    ("10.0.0.0/24", ["10.0.0.0/30", "10.0.0.0/29"]),
                    ("::/0", ["fd00::4/126", "fd00::5/128"]),
                    ("192.0.2.0/24", ["192.0.2.0/25", "192.0.2.128/25"]),
                ],
            );
            json!({"ipBlock": {"cidr": cidr, "except": except}})
        }
    }
}

fn port(random: &mut StdRng) -> Value {
    let protocol = pick(random, &["TCP", "UDP", "SCTP"]);
    match random.random_range(0..5) {
        0 => json!({"protocol": protocol}),
        1 => json!({"port": pick(random, &[80, 81])}),
        2 => json!({"protocol": protocol, "port": 80}),
        3 => json!({"protocol": protocol, "port": 80, "endPort": pick(random, &[80, 82, 90])}),
        _ => json!({"protocol": protocol, "port": pick(random, &["web", "dns"])}),
    }
}

fn rules(random: &mut StdRng, peers: &str) -> Value {
    let rules = (0..random.random_range(0..3)).map(|_| {
        let mut rule = serde_json::Map::new();
        if random.random_bool(0.8) {
            rule.insert(peers.into(), (0..random.random_range(0..3)).map(|_| peer(random)).collect());
        }
        if random.random_bool(0.6) {
            rule.insert("ports".into(), (0..random.random_range(0..3)).map(|_| port(random)).collect());
        }
        Value::Object(rule)
    });
    rules.collect()
}

pub fn policy(random: &mut StdRng, name: &str) -> NetworkPolicy {
    let mut spec = json!({"podSelector": selector(random)});
    match random.random_range(0..4) {
        0 => spec["policyTypes"] = json!(["Ingress"]),
        1 => spec["policyTypes"] = json!(["Egress"]),
        2 => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        _ => {}
    }
    if random.random_bool(0.8) {
        spec["ingress"] = rules(random, "from");
    }
    if random.random_bool(0.8) {
        spec["egress"] = rules(random, "to");
    }
    let metadata = json!({"namespace": pick(random, &NAMESPACES), "name": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn cluster_peer(random: &mut StdRng, egress: bool) -> Value {
    match random.random_range(0..if egress { 5 } else { 2 }) {
        0 => json!({"namespaces": selector(random)}),
        1 => json!({"pods": {"namespaceSelector": selector(random), "podSelector": selector(random)}}),
        2 => json!({"nodes": selector(random)}),
        3 => json!({"networks": [pick(random, &["0.0.0.0/0", "10.0.0.0/28", "::/0"])]}),
        _ => {
            json!({"networks": [pick(random, &["10.0.0.0/24", "192.0.2.0/25"]), pick(random, &["fd00::/64", "10.0.0.8/29"])]})
        }
    }
}

fn cluster_protocol(random: &mut StdRng) -> Value {
    let protocol = *pick(random, &["tcp", "udp", "sctp"]);
    match random.random_range(0..4) {
        0 => json!({"destinationNamedPort": pick(random, &["web", "dns"])}),
        1 => json!({protocol: {"destinationPort": {"range": {"start": 80, "end": pick(random, &[82, 90, 65_535])}}}}),
        _ => json!({protocol: {"destinationPort": {"number": pick(random, &[80, 81])}}}),
    }
}

/// The spec of a ClusterNetworkPolicy.
pub fn cluster_policy(random: &mut StdRng) -> Value {
    let rules = |random: &mut StdRng, egress: bool| -> Value {
        let one = |random: &mut StdRng| {
            let mut rule = json!({"action": pick(random, &["Accept", "Deny", "Deny", "Pass"])});
            let peers: Vec<Value> = (0..random.random_range(1..3)).map(|_| cluster_peer(random, egress)).collect();
            rule[if egress { "to" } else { "from" }] = json!(peers);
            if egress && random.random_bool(0.02) {
                rule["to"] = json!([{"domainNames": ["example.com"]}]);
            }
            if random.random_bool(0.6) {
                rule["protocols"] = (0..random.random_range(1..3)).map(|_| cluster_protocol(random)).collect();
            }
            rule
        };
        (0..random.random_range(0..4)).map(|_| one(random)).collect()
    };
    let subject = match random.random_bool(0.5) {
        true => json!({"namespaces": selector(random)}),
        false => json!({"pods": {"namespaceSelector": selector(random), "podSelector": selector(random)}}),
    };
    json!({
        "tier": pick(random, &["Admin", "Admin", "Baseline"]), "priority": random.random_range(0..4), "subject": subject,
        "ingress": rules(random, false), "egress": rules(random, true),
    })
}

pub fn read_cluster_policy(name: &str, spec: &Value) -> ClusterPolicy {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    ClusterPolicy::of(&serde_json::from_value(policy).unwrap()).unwrap()
}

fn pod(random: &mut StdRng, uid: usize) -> Pod {
    let ports = match random.random_range(0..3) {
        0 => json!([{"name": "web", "containerPort": 80}, {"name": "dns", "containerPort": 81, "protocol": "UDP"}]),
        1 => json!([{"name": "web", "containerPort": pick(random, &[80, 81, 88])}]),
        _ => json!([]),
    };
    // Some addresses are claimed twice: those of a pod that is gone are given to the next one at once.
    let number = random.random_range(1..24);
    serde_json::from_value(json!({
        "metadata": {
            "namespace": pick(random, &NAMESPACES), "name": format!("p{uid}"), "labels": labels(random),
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", random.random_range(0..60)),
        },
        "spec": {
            "nodeName": pick(random, &[NODE, NODE, NODE, "there"]), "hostNetwork": random.random_bool(0.1),
            "containers": [{"name": "c", "ports": ports}],
        },
        "status": {
            "phase": if random.random_bool(0.1) { "Succeeded" } else { "Running" },
            "podIPs": [{"ip": format!("10.0.0.{number}")}, {"ip": format!("fd00::{number:x}")}],
        },
    }))
    .unwrap()
}

fn address(random: &mut StdRng) -> IpAddr {
    let text = match random.random_range(0..10) {
        0 => format!("192.0.2.{}", random.random_range(0..=255)),
        1 => format!("fd00:1::{:x}", random.random_range(0..9)),
        2..5 => format!("fd00::{:x}", random.random_range(1..26)),
        _ => format!("10.0.0.{}", random.random_range(1..26)),
    };
    text.parse().unwrap()
}

pub fn packet(random: &mut StdRng) -> (IpAddr, IpAddr, Option<(Protocol, u16)>) {
    loop {
        let (from, to) = (address(random), address(random));
        let protocol = *pick(random, &[Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
        let port = random.random_bool(0.95).then(|| (protocol, *pick(random, &[79, 80, 81, 85, 88, 91, 65_535])));
        if from.is_ipv4() == to.is_ipv4() {
            return (from, to, port);
        }
    }
}

/// One change of the world, as the compiler is told of it.
pub fn change(random: &mut StdRng, world: &mut World) -> Input {
    match random.random_range(0..12) {
        10 => {
            let name = format!("cnp{}", random.random_range(0..4));
            if random.random_bool(0.4) {
                world.cluster.remove(&name);
                return Input::ClusterPolicy(name, None);
            }
            let spec = cluster_policy(random);
            let read = read_cluster_policy(&name, &spec);
            world.cluster.insert(name.clone(), spec);
            Input::ClusterPolicy(name, Some(read))
        }
        11 => {
            let name = (*pick(random, &["n1", "n2"])).to_owned();
            if random.random_bool(0.2) {
                world.nodes.remove(&name);
                return Input::Node(name, None);
            }
            let labels: std::collections::BTreeMap<String, String> = serde_json::from_value(labels(random)).unwrap();
            let addresses =
                [format!("192.0.2.{}", random.random_range(0..8)), format!("fd00:1::{:x}", random.random_range(0..8))];
            let addresses: Vec<IpAddr> = addresses.map(|ip| ip.parse().unwrap()).to_vec();
            world.nodes.insert(name.clone(), (labels.clone(), addresses.clone()));
            Input::Node(name, Some(NodeFacts { labels, addresses: addresses.into_iter().collect() }))
        }
        0 => {
            let name = (*pick(random, &NAMESPACES)).to_owned();
            if random.random_bool(0.2) {
                world.namespaces.remove(&name);
                return Input::Namespace(name, None);
            }
            let labels: std::collections::BTreeMap<String, String> = serde_json::from_value(labels(random)).unwrap();
            world.namespaces.insert(name.clone(), labels.clone());
            Input::Namespace(name, Some(labels))
        }
        1..4 => {
            let name = format!("np{}", random.random_range(0..8));
            let before = world.policies.remove(&name).and_then(|policy| policy.metadata.namespace);
            if let Some(namespace) = before.clone().filter(|_| random.random_bool(0.2)) {
                return Input::Policy(PolicyName { namespace, name }, None);
            }
            let mut made = policy(random, &name);
            // What has the name stays in its namespace.
            made.metadata.namespace = before.or(made.metadata.namespace);
            world.policies.insert(name, made.clone());
            let read = Policy::of(&made).unwrap();
            Input::Policy(read.name.clone(), Some(read))
        }
        _ => {
            let number = random.random_range(0..30);
            let uid = format!("uid{number}");
            if random.random_bool(0.2) {
                world.pods.remove(&uid);
                return Input::Pod(uid, None);
            }
            let made = pod(random, number);
            let facts = PodFacts::of(&made, &[]);
            world.pods.insert(uid.clone(), made);
            Input::Pod(uid, facts)
        }
    }
}

pub fn seed() -> u64 {
    std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::rng().random())
}

/// What a user is told agrees with the specification, wherever the pods are.
fn explained(world: &World, known: explain::World<'_>, (from, to, port): (IpAddr, IpAddr, Option<(Protocol, u16)>)) {
    let end = |ip| {
        let facts = world.owner(ip).and_then(|pod| PodFacts::of(pod, &[]));
        End { addresses: vec![ip], alike: facts.map(|facts| facts.alike) }
    };
    let said = explain(known, &end(from), &end(to), port);
    let want = from == to
        || (world.owner(from).is_none_or(|pod| world.allows(true, pod, to, to, port))
            && world.owner(to).is_none_or(|pod| world.allows(false, pod, from, to, port)));
    assert_eq!(said.allows(), want, "{from} {to} {port:?}: {said:?}");
}

#[test]
fn the_specification_and_the_compiled_maps_agree_on_100_000_packets() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..50 {
        let (mut world, mut compiler) = (World::default(), Compiler::new(NODE));
        let (mut tables, mut maps) = (Tables::default(), Maps::default());
        let all: Vec<Input> = (0..60).map(|_| change(&mut random, &mut world)).collect();
        let changes = compiler.update(all);
        tables.apply(&Transaction::of(&compiler, &changes));
        maps.apply(Steps::of(&changes));
        for _ in 0..40 {
            let changes = compiler.update([change(&mut random, &mut world)]);
            tables.apply(&Transaction::of(&compiler, &changes));
            maps.apply(Steps::of(&changes));
            assert_eq!(tables.0, elements::all(&compiler), "TRIREME_SEED={seed}");
            let all = compiler.all();
            let all = all.iter().flat_map(|(key, value)| places(key).into_iter().map(|place| (place, *value)));
            assert_eq!(maps.0, all.collect(), "TRIREME_SEED={seed}");
            let policies: Vec<Policy> = world.policies.values().filter_map(Policy::of).collect();
            let cluster: Vec<ClusterPolicy> =
                world.cluster.iter().map(|(name, spec)| read_cluster_policy(name, spec)).collect();
            let node = |(labels, addresses): &(model::Labels, Vec<IpAddr>)| NodeFacts {
                labels: labels.clone(),
                addresses: addresses.iter().copied().collect(),
            };
            let nodes = world.nodes.iter().map(|(name, facts)| (name.clone(), node(facts))).collect();
            let known =
                explain::World { policies: &policies, cluster: &cluster, namespaces: &world.namespaces, nodes: &nodes };
            for _ in 0..50 {
                let (from, to, port) = packet(&mut random);
                let want = world.judge(NODE, from, to, port);
                explained(&world, known, (from, to, port));
                if world.owner(to).is_none() {
                    let want = world.arrives(NODE, from, to, port);
                    assert_eq!(tables.arrives(from, to, port), want, "TRIREME_SEED={seed} {from} {to} {port:?}");
                    assert_eq!(maps.arrives(from, to, port), want, "TRIREME_SEED={seed} {from} {to} {port:?}");
                }
                // A pod that is not here is not known to talk to itself, and never does so through this node.
                if from != to {
                    assert_eq!(tables.judge(from, to, port), want, "TRIREME_SEED={seed} {from} {to} {port:?}");
                    assert_eq!(maps.judge(from, to, port), want, "TRIREME_SEED={seed} {from} {to} {port:?}");
                }
                *if want { &mut allowed } else { &mut denied } += 1;
            }
        }
    }
    assert!(allowed + denied >= 100_000 && allowed > 10_000 && denied > 10_000, "{allowed} {denied}");
}

#[test]
fn what_cannot_be_read_allows_nothing() {
    let read = |spec: Value| {
        let policy = json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec});
        Policy::of(&serde_json::from_value(policy).unwrap()).unwrap()
    };
    let bad = read(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]},
        "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}, {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["x"]}}]},
                    {"from": [{}]}, {"ports": [{"port": 99999}]}, {"ports": [{"protocol": "IGMP"}]}, {"ports": [{"port": 9, "endPort": 3}]}]}));
    assert!(bad.selects("a", &model::Labels::new()) && !bad.selects("b", &model::Labels::new()));
    let rules = bad.ingress.unwrap();
    assert!(rules[..3].iter().all(|rule| rule.peers.as_ref().is_some_and(Vec::is_empty)));
    assert!(rules[3..].iter().all(|rule| rule.ports.is_empty() && rule.named.is_empty()));
    assert!(bad.egress.is_none());
}
