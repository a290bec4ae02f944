//! Network policies: what deciding costs, how soon a policy is in force, and what it costs packets.
//!
//! Pods are namespaces behind a bridge in a namespace that is the node; no packet leaves them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use client::DeleteOptions;
use informer::Informers;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netpol::model::{PodFacts, Policy};
use netpol::{Attachment, Compiler, Input};
use serde_json::{Value, json};
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::report::Line;

const POLICIES: usize = 1_000;
const PODS: usize = 1_000;
/// How often each change and each latency is taken.
const TIMES: usize = 50;
const NODE: &str = "node";

pub async fn measure() -> Result<(), Failure> {
    decisions()?;
    for kind in netpol::Kind::BOTH {
        let net = Net::make()?;
        let outcome = packets(&net, kind).await;
        // Programs that are pinned would hold the namespace.
        waited(net.inside("node", || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(netpol::cleanup()).map_err(std::io::Error::other)
        }))?;
        outcome?;
    }
    Ok(())
}

fn policy(name: &str, spec: &Value) -> Result<Input, Failure> {
    let policy = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec});
    let policy = Policy::of(&serde_json::from_value(policy)?).ok_or("a policy has a name")?;
    Ok(Input::Policy(policy.name.clone(), Some(policy)))
}

/// A pod of one of a thousand kinds, all on this node.
fn pod(number: usize, app: &str) -> Result<Input, Failure> {
    let ip = format!("10.{}.{}.{}", 1 + number / 60_000, number / 250 % 240, number % 250 + 1);
    let pod = json!({
        "metadata": {"namespace": "default", "name": format!("pod{number}"), "labels": {"app": app}},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}]},
        "status": {"podIPs": [{"ip": ip}]},
    });
    Ok(Input::Pod(format!("uid{number}"), PodFacts::of(&serde_json::from_value(pod)?, &[])))
}

fn decisions() -> Result<(), Failure> {
    let app = |number: usize| format!("app{}", number % PODS);
    let spec = |number: usize| {
        json!({
            "podSelector": {"matchLabels": {"app": app(number)}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": app(number + 1)}}}], "ports": [{"port": 80}]}],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": app(number + 2)}}}]}, {"ports": [{"port": 53, "protocol": "UDP"}]}],
        })
    };
    let everything = |number: usize| {
        let from = json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": app(number)}}}]);
        json!({"podSelector": {}, "ingress": [{"from": from, "ports": [{"port": 80 + number % 100}]}]})
    };
    for (bench, spec) in
        [("policies_one_each", &spec as &dyn Fn(usize) -> Value), ("policies_all_select_all", &everything)]
    {
        let mut inputs = (0..PODS).map(|number| pod(number, &app(number))).collect::<Result<Vec<_>, _>>()?;
        for number in 0..POLICIES {
            inputs.push(policy(&format!("p{number}"), &spec(number))?);
        }
        inputs.push(Input::Namespace("default".to_owned(), Some(Default::default())));
        let mut compiler = Compiler::new(NODE);
        let begun = Instant::now();
        compiler.update(inputs);
        let took = begun.elapsed().as_secs_f64() * 1e3;
        Line::new(bench).figure("ms", took).at_most("ms", 1_000.0).print();
    }
    let mut inputs = (0..PODS).map(|number| pod(number, &app(number))).collect::<Result<Vec<_>, _>>()?;
    inputs.extend(
        (0..POLICIES).map(|number| policy(&format!("p{number}"), &spec(number))).collect::<Result<Vec<_>, _>>()?,
    );
    let mut compiler = Compiler::new(NODE);
    compiler.update(inputs);
    let mut changes: Vec<(&str, Vec<Input>)> =
        vec![("policy", Vec::new()), ("pod_like_others", Vec::new()), ("pod_unlike_others", Vec::new())];
    for number in 0..TIMES {
        changes[0].1.push(policy(&format!("p{number}"), &spec(number + 7))?);
        changes[1].1.push(pod(PODS + number, &app(number))?);
        changes[2].1.push(pod(PODS + TIMES + number, &format!("new{number}"))?);
    }
    for (what, inputs) in changes {
        let mut latencies: Vec<Duration> = inputs
            .into_iter()
            .map(|input| {
                let begun = Instant::now();
                compiler.update([input]);
                begun.elapsed()
            })
            .collect();
        Line::new(&format!("policy_change_{what}")).latencies(&mut latencies).at_most("p99_ms", 5.0).print();
    }
    Ok(())
}

/// A node with two pods behind a bridge.
struct Net(String);

impl Drop for Net {
    fn drop(&mut self) {
        for name in ["node", "a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(name)]).status();
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new(program).args(arguments).output()?;
    let failure = || format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(failure().into()) }
}

impl Net {
    fn make() -> Result<Self, Failure> {
        let net = Self(format!("bench-netpol{}", std::process::id()));
        let ip = |name: &str, arguments: &str| {
            let namespace = net.name(name);
            let all: Vec<&str> = ["-n", &namespace].into_iter().chain(arguments.split(' ')).collect();
            run("ip", &all)
        };
        for name in ["node", "a", "b"] {
            run("ip", &["netns", "add", &net.name(name)])?;
            ip(name, "link set lo up")?;
        }
        ip("node", "link add cni0 type bridge")?;
        ip("node", "link set cni0 up")?;
        ip("node", "addr add 10.1.0.1/24 dev cni0")?;
        let switch = "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables";
        run("ip", &["netns", "exec", &net.name("node"), "sh", "-c", switch])?;
        for (name, host) in [("a", 2), ("b", 3)] {
            ip("node", &format!("link add pod-{name} type veth peer name eth0 netns {}", net.name(name)))?;
            ip("node", &format!("link set pod-{name} master cni0 up"))?;
            ip(name, "link set eth0 up")?;
            ip(name, &format!("addr add 10.1.0.{host}/24 dev eth0"))?;
        }
        Ok(net)
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.0)
    }

    /// Runs something inside a namespace: sockets made there stay there.
    fn inside<T: Send + 'static>(
        &self,
        name: &str,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name(name));
        std::thread::spawn(move || {
            let file = std::fs::File::open(path).expect("a network namespace");
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).expect("inside");
            what()
        })
    }
}

fn waited<T>(thread: std::thread::JoinHandle<std::io::Result<T>>) -> Result<T, Failure> {
    Ok(thread.join().map_err(|_| "a thread of the bench panicked")??)
}

async fn packets(net: &Net, kind: netpol::Kind) -> Result<(), Failure> {
    let cluster = Cluster::start().await;
    let api = cluster.in_process();
    let stop = CancellationToken::new();
    let (client, ending) = (cluster.in_process(), stop.clone());
    let (say, hear) = std::sync::mpsc::channel();
    let agent = net.inside("node", move || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let informers = Informers::new(client);
            let config = netpol::Config { node_name: NODE.to_owned(), served: Vec::new(), engine: kind };
            let agent = netpol::Agent::new(config, &informers).map_err(std::io::Error::other)?;
            let _ = say.send(agent.network());
            agent.run(ending).await.map_err(std::io::Error::other)
        })
    });
    let network = hear.recv()?;
    for (name, host) in [("a", 2), ("b", 3)] {
        let pod = json!({"metadata": {"namespace": "default", "name": name, "labels": {"app": name}},
                         "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
        let pod = api.create(&serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod)?).await?;
        let addresses = vec![format!("10.1.0.{host}").parse()?];
        network.attach(Attachment { pod: std::sync::Arc::new(pod), addresses, port: None }).await?;
    }
    let server = waited(net.inside("a", || UdpSocket::bind("10.1.0.2:7")))?;
    std::thread::spawn(move || {
        let mut packet = [0; 16];
        while let Ok((length, from)) = server.recv_from(&mut packet) {
            let _ = server.send_to(&packet[..length], from);
        }
    });
    let flow = waited(net.inside("b", || {
        let flow = UdpSocket::bind("10.1.0.3:0")?;
        flow.connect("10.1.0.2:7")?;
        Ok(flow)
    }))?;
    let before = round_trip(&flow)?;
    let plain = throughput(net)?;
    enforcement(&api, &flow, kind).await?;
    let allow = json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]});
    api.create(&serde_json::from_value::<NetworkPolicy>(named("allow", &allow))?).await?;
    flow.set_read_timeout(Some(Duration::from_millis(1)))?;
    while !answered(&flow) {}
    let after = round_trip(&flow)?;
    // There and back: only the way there is judged.
    Line::new(&format!("policy_packet_{}", kind.as_str()))
        .figure("added_us", (after - before).as_secs_f64() * 1e6)
        .at_most("added_us", 1.0)
        .print();
    let judged = throughput(net)?;
    Line::new(&format!("policy_throughput_{}", kind.as_str()))
        .figure("gigabits", judged)
        .figure("share", judged / plain)
        .at_least("share", 0.97)
        .print();
    stop.cancel();
    waited(agent)?;
    cluster.stop().await;
    Ok(())
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})
}

fn answered(flow: &UdpSocket) -> bool {
    flow.send(b"?").and_then(|_| flow.recv(&mut [0; 16])).is_ok()
}

/// The median time of a packet there and back.
fn round_trip(flow: &UdpSocket) -> Result<Duration, Failure> {
    flow.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let begun = Instant::now();
        if !answered(flow) {
            return Err("a packet was lost".into());
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Gigabits per second of one connection, for two seconds.
fn throughput(net: &Net) -> Result<f64, Failure> {
    let listener = waited(net.inside("a", || TcpListener::bind("10.1.0.2:9")))?;
    let reader = std::thread::spawn(move || -> std::io::Result<u64> {
        let (mut stream, _) = listener.accept()?;
        let (mut buffer, mut total) = (vec![0; 1 << 18], 0);
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(total),
                length => total += length as u64,
            }
        }
    });
    let mut stream = waited(net.inside("b", || TcpStream::connect("10.1.0.2:9")))?;
    let (begun, bytes) = (Instant::now(), vec![0; 1 << 18]);
    while begun.elapsed() < Duration::from_secs(2) {
        stream.write_all(&bytes)?;
    }
    drop(stream);
    let total = waited(reader)?;
    Ok(total as f64 * 8.0 / 1e9 / begun.elapsed().as_secs_f64())
}

/// From the API's answer to a policy to the first packet that is kept back, and from its end to the first that passes.
async fn enforcement(api: &client::Client, flow: &UdpSocket, kind: netpol::Kind) -> Result<(), Failure> {
    let deny =
        serde_json::from_value::<NetworkPolicy>(named("deny", &json!({"podSelector": {"matchLabels": {"app": "a"}}})))?;
    let mut latencies = Vec::new();
    flow.set_read_timeout(Some(Duration::from_millis(2)))?;
    for _ in 0..TIMES {
        api.create(&deny).await?;
        let begun = Instant::now();
        // A packet that is late is not one that was kept back: three in a row are.
        let mut missing: Option<Instant> = None;
        let mut count = 0;
        while count < 3 {
            let sent = Instant::now();
            if answered(flow) {
                (missing, count) = (None, 0);
            } else {
                missing.get_or_insert(sent);
                count += 1;
            }
        }
        latencies.push(missing.map_or(Duration::ZERO, |at| at.saturating_duration_since(begun)));
        api.delete::<NetworkPolicy>("default", "deny", &DeleteOptions::default()).await?;
        while !answered(flow) {}
    }
    Line::new(&format!("policy_to_enforcement_{}", kind.as_str()))
        .latencies(&mut latencies)
        .at_most("p99_ms", 50.0)
        .print();
    Ok(())
}
