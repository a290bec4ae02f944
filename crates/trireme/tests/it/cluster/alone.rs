//! The proxy as a process of its own, in a network namespace of its own, against an API server elsewhere.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::{Client, Config};
use devnet::Layout;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::dev::PATIENCE;

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");

/// Network and processes, gone with the test.
struct Alone {
    layout: Layout,
    running: Vec<Child>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        for machine in &self.layout.machines {
            let _ = Command::new("ip").args(["netns", "del", &machine.namespace]).output();
        }
        for arguments in [["link", "del", &self.layout.link], ["netns", "del", &self.layout.switch]] {
            let _ = Command::new("ip").args(arguments).output();
        }
    }
}

impl Alone {
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.layout.machines[0].namespace)).arg(program);
        command
    }

    /// Runs something in a thread of the machine's network.
    fn thread<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let path = format!("/run/netns/{}", self.layout.machines[0].namespace);
        let thread = std::thread::spawn(move || {
            let file = std::fs::File::open(path).expect("the machine's network");
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).expect("inside");
            what()
        });
        thread.join().expect("a thread that ends well")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_runs_alone() {
    let id = std::process::id();
    let range = format!("198.19.{}.0/24", id % 250).parse().expect("a range");
    let layout = Layout::new(&format!("a{}", id % 1_000_000), 1, range, false).expect("a layout");
    devnet::make(&layout).await.expect("a network");
    let (host, machine) = (layout.host().to_string(), layout.machines[0].clone());
    let mut alone = Alone { layout, running: Vec::new() };

    let home = tempfile::tempdir().expect("a directory");
    let kubeconfig = home.path().join("admin.kubeconfig");
    let parts = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler", "--disable-service-lb"];
    let mut server = Command::new(BINARY);
    // Any port: the usual one may be somebody else's on all addresses.
    server
        .args(["server", "--bind-address", &host, "--https-port", "0"])
        .args(parts)
        .arg("--data-dir")
        .arg(home.path());
    alone.running.push(server.stderr(Stdio::null()).spawn().expect("a server"));
    let client = connected(&kubeconfig).await;

    let node: Node = serde_json::from_value(json!({"metadata": {"name": machine.name}})).expect("a node");
    let mut node = client.create(&node).await.expect("created");
    let addresses = json!({"addresses": [{"type": "InternalIP", "address": machine.address}]});
    node.status = serde_json::from_value(addresses).expect("a status");
    client.update_status(&node).await.expect("updated");
    let mut proxy = alone.inside(BINARY);
    proxy.args(["proxy", "--hostname-override", &machine.name, "--cluster-cidr", "10.1.0.0/16", "--kubeconfig"]);
    alone.running.push(proxy.arg(&kubeconfig).stderr(Stdio::null()).spawn().expect("a proxy"));

    let bound = SocketAddr::from((machine.address, 8080));
    let listener = alone.thread(move || TcpListener::bind(bound).expect("a listener"));
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let meta = json!({"name": "web", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}});
    let service = json!({"metadata": meta, "spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
    let service: Service = serde_json::from_value(service).expect("a Service");
    let made = client.create(&service).await.expect("created");
    let slice = json!({
        "metadata": meta, "addressType": "IPv4", "endpoints": [{"addresses": [machine.address]}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    });
    let slice: EndpointSlice = serde_json::from_value(slice).expect("a slice");
    client.create(&slice).await.expect("created");
    let ip = made.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    let target: SocketAddr = format!("{ip}:80").parse().expect("an address");
    alone.thread(move || {
        let started = std::time::Instant::now();
        while let Err(error) = TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
            assert!(started.elapsed() < PATIENCE, "{error}");
        }
    });

    // Without it its rules stay, until they are cleaned up.
    let mut proxy = alone.running.pop().expect("the proxy");
    let asked = Command::new("kill").args(["-TERM", &proxy.id().to_string()]).status();
    assert!(asked.is_ok_and(|status| status.success()) && proxy.wait().is_ok_and(|status| status.success()));
    alone.thread(move || TcpStream::connect(target).map(drop).expect("a connection"));
    let cleaned = alone.inside(BINARY).args(["proxy", "--cleanup"]).status();
    assert!(cleaned.is_ok_and(|status| status.success()));
    let tables = alone.inside("nft").args(["list", "tables"]).output().expect("nft");
    assert!(tables.status.success() && !String::from_utf8_lossy(&tables.stdout).contains("trireme-proxy"));
}

/// A client, once the server answers.
async fn connected(kubeconfig: &std::path::Path) -> Client {
    let started = std::time::Instant::now();
    loop {
        if let Ok(config) = Config::from_kubeconfig(kubeconfig)
            && let Ok(client) = Client::https(config)
            && client.raw("/readyz").await.is_ok()
        {
            return client;
        }
        assert!(started.elapsed() < PATIENCE, "the server did not become ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
