//! Packets: what reaches whom, what is refused and what is dropped.

use serde_json::{Value, json};

use crate::apply::Rules as _;
use crate::net::{Net, say};
use crate::rules::{Cluster, changed, objects};
use proxy::rules::Rules;

pub fn tcp(ip: &str) -> Value {
    json!({"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "targetPort": 8080}]})
}

pub fn with(mut spec: Value, more: Value) -> Value {
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Three pods that answer on port 8080.
pub fn three_pods() -> Net {
    let net = Net::new(3);
    for pod in 0..3 {
        net.serve(&format!("pod{pod}"), &format!("10.1.0.{}:8080", pod + 2));
        net.serve(&format!("pod{pod}"), &format!("[fd01::{}]:8080", pod + 2));
        net.serve_udp(&format!("pod{pod}"), &format!("10.1.0.{}:5353", pod + 2));
    }
    net
}

#[test]
fn a_cluster_ip_reaches_every_endpoint_from_pods_and_from_the_node() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 40), ["pod0", "pod1"]);
    assert_eq!(net.ask_all("node", "10.96.0.1:80", 40), ["pod0", "pod1"]);
    // A pod's address is seen by the endpoint; an outsider's is not, for the answer must come back this way.
    assert!(net.ask("pod2", "10.96.0.1:80").ends_with(" 10.1.0.4"));
    assert!(net.ask("out", "10.96.0.1:80").ends_with(" 10.1.0.1"));
    // An endpoint that goes is not chosen again; one that comes is.
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.3@node"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 20), ["pod1"]);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@node"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 60), ["pod0", "pod1", "pod2"]);
}

#[test]
fn a_node_without_a_default_route_reaches_services_and_nothing_leaks() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
    net.ip("node", "route del default");
    assert_ne!(net.ask("node", "10.96.0.1:80"), "pod0 10.1.0.1");
    for command in cluster.rules.routes().lines() {
        net.ip("node", command);
    }
    assert_eq!(net.ask("node", "10.96.0.1:80"), "pod0 10.1.0.1");
    assert_eq!(net.ask("node", "10.96.0.99:80"), "refused");
    // Even without rules nothing goes anywhere.
    net.nft("flush ruleset");
    assert_eq!(net.ask("node", "10.96.0.1:80"), "silence");
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
    assert_eq!(net.ask("pod0", "10.96.0.1:80"), "pod0 10.1.0.1");
}

#[test]
fn pods_behind_one_bridge_reach_each_other_and_themselves_through_a_service() {
    let net = Net::bridged(3);
    for pod in 0..2 {
        net.serve(&format!("pod{pod}"), &format!("10.1.0.{}:8080", pod + 2));
    }
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node"]);
    assert_eq!(net.ask_all("pod2", "10.96.0.1:80", 20), ["pod0", "pod1"]);
    assert!(net.ask("pod2", "10.96.0.1:80").ends_with(" 10.1.0.4"));
    assert_eq!(net.ask_all("pod0", "10.96.0.1:80", 20), ["pod0", "pod1"]);
    assert_eq!(net.ask_all("node", "10.96.0.1:80", 20), ["pod0", "pod1"]);
    assert_eq!(net.ask("pod2", "10.96.0.9:80"), "refused");
}

#[test]
fn what_nobody_answers_is_refused_here() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set(
        "empty",
        with(
            tcp("10.96.0.1"),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "targetPort": 8080}]}),
        ),
        &[],
    );
    for from in ["pod0", "node"] {
        assert_eq!(net.ask(from, "10.96.0.1:80"), "refused", "no endpoints, from {from}");
        assert_eq!(net.ask(from, "10.96.0.1:81"), "refused", "no such port, from {from}");
        assert_eq!(net.ask(from, "10.100.9.9:80"), "refused", "no such Service, from {from}");
    }
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "refused");
    cluster.remove("empty");
    assert_eq!(net.ask("pod0", "10.96.0.1:80"), "refused");
}

#[test]
fn node_ports_and_external_addresses_answer_from_outside() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let ports = json!([{"port": 80, "nodePort": 30080, "targetPort": 8080}]);
    let spec = with(
        tcp("10.96.0.1"),
        json!({"type": "LoadBalancer", "ports": ports, "externalIPs": ["192.0.2.77"], "ingress": [{"ip": "198.51.100.7"}]}),
    );
    cluster.set("web", spec.clone(), &["10.1.0.2@node", "10.1.0.3@node"]);
    for address in ["192.0.2.1:30080", "198.51.100.7:80"] {
        assert_eq!(net.ask_all("out", address, 40), ["pod0", "pod1"], "{address}");
        // Another node's endpoint would answer past this node: the node shows its own address.
        assert!(net.ask("out", address).ends_with(" 10.1.0.1"), "{address}");
    }
    assert_eq!(net.ask_all("node", "192.0.2.1:30080", 40), ["pod0", "pod1"]);
    assert_eq!(net.ask_all("pod2", "192.0.2.77:80", 40), ["pod0", "pod1"]);
    assert_ne!(net.ask("node", "127.0.0.1:30080"), "pod0 127.0.0.1");

    let ranges = with(spec, json!({"loadBalancerSourceRanges": ["203.0.113.0/24"]}));
    cluster.set("web", ranges.clone(), &["10.1.0.2@node"]);
    assert_eq!(net.ask("out", "198.51.100.7:80"), "silence");
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "pod0 10.1.0.1");
    cluster.set(
        "web",
        with(ranges, json!({"loadBalancerSourceRanges": ["192.0.2.0/24", "192.0.2.0/25"]})),
        &["10.1.0.2@node"],
    );
    assert_eq!(net.ask("out", "198.51.100.7:80"), "pod0 10.1.0.1");
}

#[test]
fn local_policies_keep_the_clients_address_and_drop_what_has_no_endpoint_here() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let spec = |internal: &str| {
        with(
            tcp("10.96.0.1"),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "targetPort": 8080}],
                   "externalTrafficPolicy": "Local", "internalTrafficPolicy": internal}),
        )
    };
    cluster.set("web", spec("Cluster"), &["10.1.0.2@node", "10.1.0.3@elsewhere"]);
    assert_eq!(net.ask_all("out", "192.0.2.1:30080", 20), ["pod0"]);
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "pod0 192.0.2.9");
    // Insiders are not bound to this node's endpoints.
    assert_eq!(net.ask_all("pod2", "192.0.2.1:30080", 40), ["pod0", "pod1"]);
    assert_eq!(net.ask_all("node", "192.0.2.1:30080", 40), ["pod0", "pod1"]);

    cluster.set("web", spec("Local"), &["10.1.0.3@elsewhere"]);
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "silence");
    assert_eq!(net.ask("pod2", "10.96.0.1:80"), "silence");
    assert_eq!(net.ask("pod2", "192.0.2.1:30080").split(' ').next(), Some("pod1"));
    // The last endpoint here still serves while it terminates.
    cluster.set("web", spec("Local"), &["10.1.0.2@node!", "10.1.0.3@elsewhere"]);
    assert_eq!(net.ask("out", "192.0.2.1:30080"), "pod0 192.0.2.9");
}

#[test]
fn datagrams_and_both_families() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set(
        "dns",
        json!({"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [{"port": 53, "protocol": "UDP", "targetPort": 5353}]}),
        &["10.1.0.3@node"],
    );
    assert_eq!(say(&net.flow("pod0", "10.96.0.10:53")), "pod1 10.1.0.2");
    cluster.set(
        "six",
        json!({"clusterIP": "fd96::1", "clusterIPs": ["fd96::1", "10.96.0.6"], "ports": [{"port": 80, "targetPort": 8080}]}),
        &["fd01::2@node", "fd01::3@node", "10.1.0.4@node"],
    );
    assert_eq!(net.ask_all("pod2", "[fd96::1]:80", 40), ["pod0", "pod1"]);
    assert_eq!(net.ask_all("pod1", "10.96.0.6:80", 10), ["pod2"]);
    assert_eq!(net.ask("pod2", "[fd96::1]:81"), "refused");
    assert_eq!(net.ask("pod2", "[fd96::99]:80"), "refused");
}

#[test]
fn a_client_with_affinity_keeps_its_endpoint_until_that_one_goes() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let sticky = with(
        tcp("10.96.0.1"),
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}),
    );
    let all = ["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@node"];
    cluster.set("web", sticky.clone(), &all);
    let [first] = &net.ask_all("out", "10.96.0.1:80", 20)[..] else { panic!("not sticky") };
    let left: Vec<&str> = all.into_iter().filter(|e| !e.starts_with(address_of(first))).collect();
    cluster.set("web", sticky.clone(), &left);
    let [second] = &net.ask_all("out", "10.96.0.1:80", 20)[..] else { panic!("not sticky") };
    assert_ne!(first, second);
    // Another endpoint's return moves nobody.
    cluster.set("web", sticky, &all);
    assert_eq!(net.ask_all("out", "10.96.0.1:80", 20), [second.as_str()]);
    // Nor does a rewrite of everything, as after a restart.
    for _ in 0..3 {
        net.nft(&cluster.rules.replacement_keeping(&[net.listed("ip"), net.listed("ip6")]));
        assert_eq!(net.ask_all("out", "10.96.0.1:80", 5), [second.as_str()]);
    }
    cluster.remove("web");
    assert_eq!(net.ask("pod0", "10.96.0.1:80"), "refused");
}

fn address_of(pod: &str) -> &'static str {
    ["10.1.0.2", "10.1.0.3", "10.1.0.4"][pod.trim_start_matches("pod").parse::<usize>().unwrap()]
}

#[test]
fn connections_outlive_every_rewrite_of_the_rules() {
    use std::io::{Read, Write};
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let echo = net.inside("pod0", || std::net::TcpListener::bind("10.1.0.2:9090").unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = echo.accept().unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let spec =
        json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80, "targetPort": 9090}]});
    cluster.set("echo", spec, &["10.1.0.2@node"]);
    let mut stream = net.inside("pod1", || std::net::TcpStream::connect("10.96.0.1:80").unwrap());
    let ping = |stream: &mut std::net::TcpStream| {
        let mut byte = [0];
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut byte).unwrap();
    };
    ping(&mut stream);
    // As after a restart: the whole table replaced, twice.
    net.nft(&cluster.rules.replacement());
    ping(&mut stream);
    let before = normal(net.ruleset());
    net.nft(&cluster.rules.replacement());
    assert_eq!(normal(net.ruleset()), before, "no rule doubled or lost");
    cluster.remove("echo");
    ping(&mut stream);
}

/// Connects to the Service, reads who answers, and says what went wrong, if anything did. Ten seconds are several repetitions of the
/// first packet: what is still silent then is silent for good.
fn connect() -> Result<(), String> {
    let to = "10.96.0.1:80".parse().unwrap();
    let stream = std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_secs(10));
    let mut stream = stream.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).map_err(|error| error.to_string())?;
    if answer.starts_with("pod") { Ok(()) } else { Err(format!("the answer {answer:?}")) }
}

/// A few connections as a test, as many as a busy node makes in a minute as `make soak`.
#[test]
fn soak_no_connection_fails_while_endpoints_come_and_go() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let connections = if std::env::var_os("TRIREME_SOAK").is_some() { 64_000 } else { 2_400 };
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let lists: [&[&str]; 4] = [
        &["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@node"],
        &["10.1.0.3@node"],
        &["10.1.0.3@node", "10.1.0.4@node"],
        &["10.1.0.2@node"],
    ];
    cluster.set("web", tcp("10.96.0.1"), lists[0]);
    let (done, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for from in ["pod0", "node"] {
            let (net, done, asked, failed) = (&net, &done, &asked, &failed);
            scope.spawn(move || {
                net.inside(from, || {
                    while asked.fetch_add(1, Ordering::Relaxed) < connections {
                        if let Err(error) = connect() {
                            failed.lock().unwrap().push(format!("{from}: {error}"));
                        }
                    }
                    done.store(true, Ordering::Relaxed);
                });
            });
        }
        let mut round = 0;
        while !done.load(Ordering::Relaxed) || round < 400 {
            round += 1;
            cluster.set("web", tcp("10.96.0.1"), lists[round % lists.len()]);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert_eq!(failed, [] as [String; 0], "of {connections} connections");
}

/// A packet that was sent to its own sender just before that one ceased to be an endpoint still needs another source just after it.
/// Its way through the node is made long here, so that many changes meet a packet that is on it.
#[test]
fn an_endpoint_that_goes_while_it_speaks_to_itself_is_answered() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
    let long = "tcp dport 1\n".repeat(20_000);
    let forward = "type filter hook forward priority 10; ct state new jump long";
    net.nft(&format!("table ip slow {{\nchain long {{\n{long}}}\nchain forward {{\n{forward}\n}}\n}}\n"));
    let done = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let failed = net.inside("pod0", || (0..3_000).filter_map(|_| connect().err()).take(3).collect::<Vec<_>>());
            done.store(true, Ordering::Relaxed);
            failed
        });
        while !done.load(Ordering::Relaxed) {
            cluster.set("web", tcp("10.96.0.1"), &["10.1.0.3@node"]);
            cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
        }
        client.join().unwrap()
    });
    assert_eq!(failed, [] as [String; 0]);
}

#[test]
fn the_kernel_ends_in_the_same_rules_by_updates_and_by_a_rebuild() {
    let net = three_pods();
    let mut cluster = Cluster::new(&net);
    let ports = json!([{"port": 80, "nodePort": 30080, "targetPort": 8080}]);
    let lb = |ip: &str| {
        with(
            tcp(ip),
            json!({"type": "LoadBalancer", "ports": ports, "ingress": [{"ip": "198.51.100.7"}],
                                        "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
        )
    };
    let sticky = |ip: &str| with(lb(ip), json!({"sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local"}));
    cluster.set("a", lb("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node"]);
    cluster.set("b", sticky("10.96.0.2"), &["10.1.0.2@node", "10.1.0.3@node", "10.1.0.4@far"]);
    cluster.set("c", tcp("10.96.0.3"), &[]);
    cluster.set("b", lb("10.96.0.2"), &["10.1.0.4@far"]);
    cluster.set("a", sticky("10.96.0.1"), &["10.1.0.2@node", "10.1.0.3@node!"]);
    cluster.remove("c");
    cluster.set("b", sticky("10.96.0.2"), &["10.1.0.3@node", "10.1.0.4@far"]);
    let by_updates = normal(net.ruleset());
    let mut rebuilt = Rules::new(crate::rules::node());
    for (name, now) in &cluster.objects {
        rebuilt.update(&[changed(name, Some(now))]);
    }
    net.nft(&rebuilt.replacement());
    assert_eq!(by_updates, normal(net.ruleset()));
}

#[test]
fn elements_mean_the_same_as_bytes_and_as_text() {
    let net = Net::new(0);
    let mut cluster = Cluster::new(&net);
    let protocols = ["TCP", "UDP", "SCTP"];
    let spec = |number: usize, policy: &str| {
        let ips = [format!("10.96.0.{number}"), format!("fd96::{number}")];
        let port = |(at, protocol): (usize, &&str)| {
            json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": 80, "nodePort": 30_000 + 10 * number + at,
                   "targetPort": 8080})
        };
        let ports: Vec<Value> = protocols.iter().enumerate().map(port).collect();
        json!({"type": "LoadBalancer", "clusterIP": ips[0], "clusterIPs": ips, "ports": ports, "externalTrafficPolicy": policy,
               "ingress": [{"ip": format!("198.51.100.{number}")}, {"ip": format!("2001:db8::{number}")}]})
    };
    // Both here, one here, none here, none at all; and each of them changed into the next.
    let lists: [&[&str]; 4] = [
        &["10.1.0.2@node", "10.1.0.3@node", "fd01::2@node"],
        &["10.1.0.2@node", "10.1.0.3@far", "10.1.0.4@far", "fd01::2@node", "fd01::3@far"],
        &["10.1.0.3@far", "fd01::3@far"],
        &[],
    ];
    for round in 0..lists.len() + 1 {
        for (number, policy) in ["Cluster", "Local"].iter().enumerate() {
            for at in 0..lists.len() {
                let index = 1 + number * lists.len() + at;
                let name = format!("s{index}");
                let (service, slices) = objects(&name, &spec(index, policy), lists[(at + round) % lists.len()]);
                let transaction = cluster.rules.update(&[changed(&name, Some(&(service, slices)))]);
                assert!(transaction.elements().is_some(), "{}", transaction.update());
                net.apply(&transaction);
            }
        }
        let by_bytes = normal(net.ruleset());
        net.nft(&cluster.rules.replacement());
        assert_eq!(by_bytes, normal(net.ruleset()), "round {round}");
    }
}

/// Rules without what the kernel numbers or orders as it likes.
fn normal(mut ruleset: Value) -> Vec<String> {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("handle");
                for (name, value) in map.iter_mut() {
                    clean(value);
                    if name == "elem"
                        && let Value::Array(list) = value
                    {
                        list.sort_by_key(Value::to_string);
                    }
                }
            }
            Value::Array(list) => list.iter_mut().for_each(clean),
            _ => {}
        }
    }
    clean(&mut ruleset);
    let mut lines: Vec<String> = ruleset["nftables"].as_array().unwrap().iter().map(Value::to_string).collect();
    lines.retain(|line| !line.contains("metainfo"));
    lines.sort();
    lines
}
