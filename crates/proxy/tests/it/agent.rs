//! The whole proxy: a real API server, the proxy in the node's namespace, packets.

use std::time::{Duration, Instant};

use client::{Client, DeleteOptions};
use informer::Informers;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

use crate::net::{Net, say};

/// The proxy in a thread inside the node's namespace; the commands it runs are inside too.
struct Agent {
    shutdown: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    fn start(net: &Net, client: Client) -> Self {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let thread = net.spawn_inside("node", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = proxy::Config {
                    cluster_cidrs: vec!["10.1.0.0/16".parse().unwrap()],
                    service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
                    ..proxy::Config::new("node")
                };
                proxy::run(config, &Informers::new(client), stop).await.unwrap();
            });
        });
        Self { shutdown, thread: Some(thread) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn service(name: &str, spec: serde_json::Value) -> Service {
    serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})).unwrap()
}

fn slice(name: &str, port: serde_json::Value, addresses: &[&str]) -> EndpointSlice {
    let endpoints: Vec<_> = addresses.iter().map(|a| json!({"addresses": [a], "nodeName": "node"})).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [port],
    }))
    .unwrap()
}

/// Asks until the answer is right; how long that took.
fn until(mut answer: impl FnMut() -> String, right: impl Fn(&str) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let said = answer();
        if right(&said) {
            return start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "still {said}");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_or_served_and_harms_nobody() {
    let cluster = Cluster::start().await;
    let net = Net::new(2);
    net.serve("pod0", "10.1.0.2:8080");
    let api = cluster.in_process();
    let node = json!({"metadata": {"name": "node"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    api.create(&serde_json::from_value::<Node>(node).unwrap()).await.unwrap();
    let _agent = Agent::start(&net, cluster.in_process());
    let port = json!({"name": "", "port": 8080, "protocol": "TCP"});

    // The same node port twice.
    let fixed = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]});
    let first = api.create(&service("first", fixed.clone())).await.unwrap();
    api.create(&slice("first", port.clone(), &["10.1.0.2"])).await.unwrap();
    let refused = api.create(&service("second", fixed)).await.unwrap_err();
    assert!(refused.to_string().contains("Invalid value: 30080: provided port is already allocated"), "{refused}");
    // Endpoints that are none.
    for address in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "10.1.0", "::1"] {
        let refused = api.create(&slice("bad", port.clone(), &[address])).await.unwrap_err();
        assert_eq!(refused.code(), Some(422), "{address}: {refused}");
    }
    // A thousand ports, and names as long as they may be.
    let long = "n".repeat(63);
    let ports: Vec<_> = (1..=1000)
        .map(|n| json!({"name": format!("{n:0>63}").replace('0', "p"), "port": n, "targetPort": 8080}))
        .collect();
    let many = api.create(&service(&long, json!({"ports": ports}))).await.unwrap().spec.unwrap();
    let ports: Vec<_> = (1..=1000)
        .map(|n| json!({"name": format!("{n:0>63}").replace('0', "p"), "port": 8080, "protocol": "TCP"}))
        .collect();
    for (number, part) in ports.chunks(100).enumerate() {
        let mut made = slice(&long, port.clone(), &["10.1.0.2"]);
        made.metadata.name = Some(format!("part-{number}"));
        made.ports = Some(serde_json::from_value(json!(part)).unwrap());
        api.create(&made).await.unwrap();
    }
    let address = many.cluster_ip.unwrap();
    for port in [1, 500, 999] {
        until(|| net.ask("pod1", &format!("{address}:{port}")), |said| said == "pod0 10.1.0.3");
    }
    assert_eq!(net.ask("pod1", &format!("{address}:1001")), "refused");
    // What was there before is there still.
    let address = first.spec.unwrap().cluster_ip.unwrap();
    assert_eq!(net.ask("pod1", &format!("{address}:80")), "pod0 10.1.0.3");
    assert!(net.ask("out", "192.0.2.1:30080").starts_with("pod0 "));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_answer_within_moments_and_outlive_the_proxy() {
    let cluster = Cluster::start().await;
    let net = Net::new(2);
    net.serve("pod0", "10.1.0.2:8080");
    net.serve("pod1", "10.1.0.3:8080");
    net.serve_udp("pod0", "10.1.0.2:5353");
    net.serve_udp("pod1", "10.1.0.3:5353");
    let api = cluster.in_process();
    let node = json!({"metadata": {"name": "node"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    api.create(&serde_json::from_value::<Node>(node).unwrap()).await.unwrap();
    let agent = Agent::start(&net, cluster.in_process());

    let port = json!({"name": "", "port": 8080, "protocol": "TCP"});
    let made =
        api.create(&service("web", json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": 8080}]}))).await;
    let spec = made.unwrap().spec.unwrap();
    let address = format!("{}:80", spec.cluster_ip.unwrap());
    let node_port = format!("192.0.2.1:{}", spec.ports.unwrap()[0].node_port.unwrap());
    until(|| net.ask("pod0", &address), |said| said == "refused");
    api.create(&slice("web", port.clone(), &["10.1.0.3"])).await.unwrap();
    let took = until(|| net.ask("pod0", &address), |said| said == "pod1 10.1.0.2");
    println!("endpoint to first answer: {took:?}");
    assert!(net.ask("out", &node_port).starts_with("pod1 "));

    // An endpoint of a datagram Service goes: the client's flow moves, although it never pauses.
    let dns = json!({"ports": [{"port": 53, "targetPort": 5353, "protocol": "UDP"}]});
    let dns = api.create(&service("dns", dns)).await.unwrap().spec.unwrap().cluster_ip.unwrap();
    let udp = json!({"name": "", "port": 5353, "protocol": "UDP"});
    let before = api.create(&slice("dns", udp.clone(), &["10.1.0.2"])).await.unwrap();
    let flow = net.flow("pod1", &format!("{dns}:53"));
    until(|| say(&flow), |said| said.starts_with("pod0"));
    let mut after = slice("dns", udp, &["10.1.0.3"]);
    after.metadata = before.metadata;
    api.update(&after).await.unwrap();
    until(|| say(&flow), |said| said.starts_with("pod1"));

    // Without the proxy all goes on; with the next one nothing is doubled.
    let rules = net.ruleset()["nftables"].as_array().unwrap().len();
    drop(agent);
    assert_eq!(net.ask("pod0", &address), "pod1 10.1.0.2");
    api.delete::<Service>("default", "dns", &DeleteOptions::default()).await.unwrap();
    let _agent = Agent::start(&net, cluster.in_process());
    until(|| say(&net.flow("pod1", &format!("{dns}:53"))), |said| said == "refused");
    assert_eq!(net.ask("pod0", &address), "pod1 10.1.0.2");
    assert!(net.ruleset()["nftables"].as_array().unwrap().len() <= rules);

    // Somebody flushes the rules: they come back by themselves, and changes go on.
    for harm in [
        "flush ruleset",
        "flush table ip trireme-proxy",
        "flush chain ip trireme-proxy services",
        "flush map ip trireme-proxy service-ips",
        "delete table ip trireme-proxy",
    ] {
        net.nft(harm);
        until(|| net.ask("pod0", &address), |said| said == "pod1 10.1.0.2");
    }
    // What somebody adds goes.
    net.nft("add rule ip trireme-proxy masquerading counter");
    until(|| net.ruleset().to_string(), |rules| !rules.contains("counter"));
    let mut web = api.get::<EndpointSlice>("default", "web").await.unwrap();
    web.endpoints = slice("web", port, &["10.1.0.2"]).endpoints;
    api.update(&web).await.unwrap();
    until(|| net.ask("pod1", &address), |said| said == "pod0 10.1.0.3");
    cluster.stop().await;
}

/// The status of the answer to a health check from outside; nothing while nobody listens.
fn health(net: &Net, port: i32) -> String {
    use std::io::{Read as _, Write as _};
    net.inside("out", || {
        let mut text = String::new();
        let asked = std::net::TcpStream::connect(("192.0.2.1", u16::try_from(port).unwrap())).and_then(|mut stream| {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")?;
            stream.read_to_string(&mut text)
        });
        asked.map_or_else(|error| error.to_string(), |_| text.split(' ').nth(1).unwrap_or_default().to_owned())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_told_which_nodes_have_endpoints() {
    let cluster = Cluster::start().await;
    let net = Net::new(1);
    let api = cluster.in_process();
    let node = json!({"metadata": {"name": "node"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    api.create(&serde_json::from_value::<Node>(node).unwrap()).await.unwrap();
    let _agent = Agent::start(&net, cluster.in_process());
    let spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "targetPort": 8080}]});
    let made = api.create(&service("web", spec)).await.unwrap();
    let port = made.spec.and_then(|spec| spec.health_check_node_port).expect("a port for health checks");
    until(|| health(&net, port), |status| status == "503");
    let of_port = json!({"name": "", "port": 8080, "protocol": "TCP"});
    let mut slice = api.create(&slice("web", of_port, &["10.1.0.2"])).await.unwrap();
    until(|| health(&net, port), |status| status == "200");
    slice.endpoints.as_mut().unwrap()[0].node_name = Some("elsewhere".to_owned());
    api.update(&slice).await.unwrap();
    until(|| health(&net, port), |status| status == "503");
    api.delete::<Service>("default", "web", &DeleteOptions::default()).await.unwrap();
    until(|| health(&net, port), |status| status.contains("refused"));
    cluster.stop().await;
}
