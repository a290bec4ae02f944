//! A node with pods behind its bridge, and what this crate decides in the real kernel, by either engine.

use netpol::cluster_policy::ClusterPolicy;
use netpol::model::{PodFacts, Policy};
use netpol::{Compiler, Engine, Input, Kind, Port, Quiet};
use node::nft;
use serde_json::{Value, json};

use crate::net::Net;

/// Where the node answers itself what pods answer elsewhere.
pub const SERVED: &str = "10.96.0.10";

pub struct Cluster<'a> {
    pub net: &'a Net,
    pub compiler: Compiler,
    pub engine: Engine,
    pub ports: Vec<Port>,
    quiet: Quiet,
    _left: Left<'a>,
}

/// The same tests for both engines.
macro_rules! on_both_engines {
    ($($test:ident),* $(,)?) => {
        mod nftables {
            $(#[test] fn $test() { super::$test(netpol::Kind::Nftables) })*
        }
        mod ebpf {
            $(#[test] fn $test() { if $crate::cluster::kernel_runs_programs() { super::$test(netpol::Kind::Ebpf) } })*
        }
    };
}
pub(crate) use on_both_engines;

macro_rules! on_both_engines_async {
    ($($test:ident),* $(,)?) => {
        mod nftables {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(netpol::Kind::Nftables).await })*
        }
        mod ebpf {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() {
                if $crate::cluster::kernel_runs_programs() { super::$test(netpol::Kind::Ebpf).await }
            })*
        }
    };
}
pub(crate) use on_both_engines_async;

/// Whether the kernel is one on which the programs have to work; an older one has the rules, and a test of programs says that it was not run.
pub fn kernel_runs_programs() -> bool {
    const SINCE: (u32, u32) = (6, 4);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let runs = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= SINCE;
    if !runs {
        eprintln!("SKIPPED: Linux {release} has no programs behind netfilter's hooks; they come with 6.4");
    }
    runs
}

/// Awaits something in the node's network namespace.
pub fn on_node<T: Send>(net: &Net, what: impl Future<Output = T> + Send) -> T {
    net.inside("node", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(what)
    })
}

/// What an agent leaves in the kernel, removed at the end: programs that are pinned would hold the namespaces of a test for ever.
pub struct Left<'a>(pub &'a Net);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let _ = on_node(self.0, netpol::cleanup());
    }
}

/// Pods `pod0`, `pod1`, … at 10.1.0.2, 10.1.0.3, … and fd01::2, fd01::3, …, all of which serve.
pub fn bridged(pods: u8) -> Net {
    let net = Net::bridged(pods);
    net.set("node", "net/bridge/bridge-nf-call-ip6tables", "1");
    net.ip("node", "addr add fd01::1/64 dev cni0 nodad");
    net.ip("node", &format!("addr add {SERVED}/32 dev lo"));
    for pod in 0..pods {
        let (name, host) = (format!("pod{pod}"), pod + 2);
        net.ip(&name, &format!("addr add fd01::{host:x}/64 dev eth0 nodad"));
        net.ip(&name, "-6 route add default via fd01::1");
        for port in [80, 81] {
            net.serve(&name, &format!("10.1.0.{host}:{port}"));
            net.serve(&name, &format!("[fd01::{host:x}]:{port}"));
        }
        net.serve_udp(&name, &format!("10.1.0.{host}:53"));
    }
    net.serve("node", &format!("{SERVED}:53"));
    net.serve("node", "192.0.2.1:10250");
    net.serve("out", "192.0.2.9:80");
    net
}

/// The pod with this number, in namespace `default` unless its labels say otherwise.
pub fn pod(number: u8, labels: Value, ports: Value) -> Input {
    let host = number + 2;
    let namespace = labels["namespace"].as_str().unwrap_or("default").to_owned();
    let pod = json!({
        "metadata": {"namespace": namespace, "name": format!("pod{number}"), "labels": labels},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": ports}]},
        "status": {"podIPs": [{"ip": format!("10.1.0.{host}")}, {"ip": format!("fd01::{host:x}")}]},
    });
    Input::Pod(format!("uid{number}"), PodFacts::of(&serde_json::from_value(pod).unwrap(), &[]))
}

pub fn policy(name: &str, spec: Value) -> Input {
    let policy = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec});
    let policy = Policy::of(&serde_json::from_value(policy).unwrap()).unwrap();
    Input::Policy(policy.name.clone(), Some(policy))
}

impl<'a> Cluster<'a> {
    /// Pods with label `app` from `a` on.
    pub fn new(net: &'a Net, pods: u8, kind: Kind) -> Self {
        let engine = on_node(net, async { Engine::open(kind).unwrap() });
        let (compiler, ports, quiet) = (Compiler::new("node"), Vec::new(), Quiet::default());
        let mut cluster = Self { net, compiler, engine, ports, quiet, _left: Left(net) };
        let inputs = (0..pods).map(|number| {
            let app = char::from(b'a' + number).to_string();
            pod(number, json!({"app": app}), json!([{"name": "web", "containerPort": 80}]))
        });
        cluster.compiler.update(inputs.collect::<Vec<_>>());
        cluster.rewrite();
        cluster
    }

    pub fn rewrite(&mut self) {
        let served = [SERVED.parse().unwrap()];
        on_node(self.net, self.engine.replace(&self.compiler, &served, &self.ports)).unwrap();
        self.quiet = Quiet::default();
        self.quiet.change(&mut nft::Elements::default(), &self.compiler, self.ports.iter());
    }

    /// Applies a change as the agent does.
    pub fn update(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let changes = self.compiler.update(inputs);
        let mut elements = nft::Elements::default();
        self.quiet.change(&mut elements, &self.compiler, self.ports.iter());
        let change = self.engine.change(&self.compiler, &changes, elements);
        on_node(self.net, change).unwrap();
    }

    pub fn allow(&mut self, name: &str, spec: Value) {
        self.update([policy(name, spec)]);
    }

    /// A ClusterNetworkPolicy; nothing takes it away.
    pub fn say(&mut self, name: &str, spec: Option<Value>) {
        let read = |spec| {
            let policy = json!({"metadata": {"name": name}, "spec": spec});
            ClusterPolicy::of(&serde_json::from_value(policy).unwrap()).unwrap()
        };
        self.update([Input::ClusterPolicy(name.to_owned(), spec.map(read))]);
    }

    pub fn forget(&mut self, name: &str) {
        let name = netpol::model::PolicyName { namespace: "default".into(), name: name.into() };
        self.update([Input::Policy(name, None)]);
    }

    /// Whether a pod, the node or the outsider reaches an address, in one go.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        match self.net.ask(from, to).as_str() {
            "silence" => false,
            said => {
                assert!(!said.contains("refused") && !said.contains("unreachable"), "{from} to {to}: {said}");
                true
            }
        }
    }
}
