//! Services on three nodes with real containers: by name and by port, across nodes, under load, through failures.
//!
//! One cluster for all of it: making one takes longer than most of what is asked of it.

mod alone;
mod authority;
mod clocks;
mod dev;
mod policies;
mod storage;
mod tunnel;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::{Kind, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use pki::{Authority, Certificate, Leaf, PrivateKey, Subject};
use serde_json::{Value, json};

use dev::{Dev, IMAGE};

#[tokio::test(flavor = "multi_thread")]
async fn services_on_three_nodes() {
    let dev = Dev::up(3);
    let listed = dev.trireme(&["list"]);
    assert_eq!(listed.matches(" running ").count(), 3, "{listed}");
    deploy(&dev).await;
    // Agents and their logs, too, are no business of the machine's other users.
    assert_eq!(crate::private::open_to_others(&dev.directory()), []);
    by_name_across_nodes(&dev).await;
    names_of_pods(&dev).await;
    from_outside(&dev).await;
    datagrams(&dev).await;
    affinity(&dev).await;
    rolling_update_under_load(&dev).await;
    killed_under_load(&dev).await;
    cut_off_and_back(&dev).await;
    rejoining_and_renewal(&dev).await;
}

/// Runs a step's name before it, so that a failure says where.
fn step(name: &str) {
    println!("--- {name}");
}

fn container(command: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", command],
    });
    container.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    container
}

/// A page with the pod's name, one pod per node; clients on the first two nodes; an echo of everything that is sent.
async fn deploy(dev: &Dev) {
    step("deploy");
    let serve = "mkdir /tmp/www && hostname > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www";
    let probe = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
    let web = container(
        serve,
        &json!({
            "ports": [{"containerPort": 8080, "hostPort": 18080}], "readinessProbe": probe,
            // Traffic has to have moved before the server goes.
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        }),
    );
    let labels = json!({"app": "web"});
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels}, "matchLabelKeys": ["pod-template-hash"],
    }]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 8, "topologySpreadConstraints": spread, "containers": [web]},
            },
        },
    });
    // A host port is a node's only one: a pod that replaces another on its node could not have it too.
    let mut without = deployment.clone();
    without["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080}]);
    let port = json!([{"port": 80, "targetPort": 8080}]);
    let service = |name: &str, spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec,
        })
    };
    let pod = |name: &str, node: u8, container: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": dev.node(node), "terminationGracePeriodSeconds": 1, "containers": [container]},
        })
    };
    let mut echo = pod("echo", 3, container("exec nc -ll -p 7 -e cat", &json!({})));
    (echo["spec"]["hostname"], echo["spec"]["subdomain"]) = (json!("one"), json!("peers"));
    let mut hosted = deployment["spec"]["template"]["spec"]["containers"][0].clone();
    hosted.as_object_mut().expect("a map").remove("lifecycle");
    // One port of a node is several, by address and by protocol.
    let at = |ip: &str, protocol: &str| {
        let mut own = hosted.clone();
        own["ports"] = json!([{"containerPort": 8080, "hostPort": 18080, "hostIP": ip, "protocol": protocol}]);
        own
    };
    let address = dev.address(2);
    let items = [
        without,
        service("web", json!({"type": "NodePort", "selector": labels, "ports": port})),
        service("sticky", json!({"selector": labels, "ports": port, "sessionAffinity": "ClientIP"})),
        service("balanced", json!({"type": "LoadBalancer", "selector": {"app": "echo"}, "ports": [{"port": 7}]})),
        service("udp", json!({"ports": [{"port": 53, "protocol": "UDP", "targetPort": 5353}]})),
        pod("client-1", 1, container("while sleep 1; do :; done", &json!({}))),
        pod("client-2", 2, container("while sleep 1; do :; done", &json!({}))),
        pod("hosted", 2, at(&address, "TCP")),
        pod("hosted-near", 2, at("127.0.0.1", "TCP")),
        pod("hosted-datagrams", 2, at(&address, "UDP")),
        echo,
        service("peers", json!({"clusterIP": "None", "selector": {"app": "echo"}, "ports": [{"port": 7}]})),
        service("elsewhere", json!({"type": "ExternalName", "externalName": "web.default.svc.cluster.local"})),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    dev.kubectl.run_with(&["apply", "-f", "-"], &list).await;
    dev.patiently(&["rollout", "status", "deployment/web", "--timeout=30s"]).await;
    for pod in ["client-1", "client-2", "hosted", "hosted-near", "hosted-datagrams", "echo"] {
        dev.patiently(&["wait", "--for=condition=Ready", "pod", pod, "--timeout=30s"]).await;
    }
}

/// What a client in a pod gets, once per request.
async fn ask(dev: &Dev, client: &str, url: &str, times: usize) -> BTreeSet<String> {
    let script =
        format!("for i in $(busybox seq {times}); do busybox timeout 5 wget -q -O - {url} || echo failed; done");
    let said = dev.kubectl.run(&["exec", client, "--", "sh", "-c", &script]).await;
    said.lines().map(str::to_owned).collect()
}

async fn listed<K: Kind>(dev: &Dev, labels: &str) -> Vec<Arc<K>> {
    let params = ListParams { label_selector: labels.to_owned(), ..ListParams::default() };
    dev.client().list::<K>("default", &params).await.expect("a list").items
}

async fn pods(dev: &Dev) -> BTreeSet<String> {
    let list = listed::<Pod>(dev, "app=web").await;
    let live = list.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    live.filter_map(|pod| pod.metadata.name.clone()).collect()
}

async fn by_name_across_nodes(dev: &Dev) {
    step("pod → Service by name → pod on another node");
    let pods = pods(dev).await;
    assert_eq!(pods.len(), 3);
    for client in ["client-1", "client-2"] {
        assert_eq!(ask(dev, client, "http://web/", 60).await, pods, "by its short name, from {client}");
    }
    assert!(pods.is_superset(&ask(dev, "client-1", "http://web.default.svc.cluster.local/", 3).await));
}

/// Names of single pods, of other names and of addresses, as a pod asks for them; and a pod that asks for itself.
async fn names_of_pods(dev: &Dev) {
    step("names of pods, and a pod that reaches itself through its Service");
    let echo = dev.client().get::<Pod>("default", "echo").await.expect("a pod");
    let address = echo.status.and_then(|status| status.pod_ip).expect("an address");
    let web = cluster_ip(dev, "web").await;
    let dashed = format!("{}.default.pod.cluster.local", address.replace('.', "-"));
    for (name, answer) in [
        ("peers.default.svc.cluster.local", address.as_str()),
        ("one.peers.default.svc.cluster.local", address.as_str()),
        (dashed.as_str(), address.as_str()),
        ("elsewhere.default.svc.cluster.local", "canonical name = web.default.svc.cluster.local"),
        ("elsewhere.default.svc.cluster.local", web.as_str()),
        (web.as_str(), "name = web.default.svc.cluster.local"),
    ] {
        let script = format!("until nslookup {name} 2>&1 | grep -F '{answer}'; do sleep 0.1; done");
        dev.patiently(&["exec", "client-2", "--", "busybox", "timeout", "30", "sh", "-c", &script]).await;
    }
    let pod = pods(dev).await.into_iter().next().expect("a pod");
    assert!(ask(dev, &pod, "http://web/", 40).await.contains(&pod), "{pod} reaches itself");
}

async fn cluster_ip(dev: &Dev, name: &str) -> String {
    let service = dev.client().get::<Service>("default", name).await.expect("a Service");
    service.spec.and_then(|spec| spec.cluster_ip).expect("an address")
}

async fn from_outside(dev: &Dev) {
    step("node port, host port and load balancer from outside");
    let service = dev.client().get::<Service>("default", "web").await.expect("a Service");
    let port = service.spec.and_then(|spec| spec.ports?.first()?.node_port).expect("a node port");
    let pods = pods(dev).await;
    for node in 1..=3 {
        let page = dev.page(&format!("{}:{port}", dev.address(node)));
        assert!(pods.contains(&page), "{page} at node {node}");
    }
    assert_eq!(dev.page(&format!("{}:18080", dev.address(2))), "hosted");
    let near = "until busybox timeout 2 wget -q -O - http://127.0.0.1:18080/; do sleep 0.1; done";
    assert_eq!(dev.on(2, &["busybox", "timeout", "60", "sh", "-c", near]).trim(), "hosted-near");
    let all: Vec<String> = (1..=3).map(|node| dev.address(node)).collect();
    dev.object::<Service>("default", "balanced", "a load balancer with all nodes' addresses", |service| {
        let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.clone()).collect::<Vec<_>>() == all
    })
    .await;
    let mut echo = connect_to_echo(dev);
    ping(&mut echo);
}

/// A connection through the load balancer's address on the second node to the pod on the third.
fn connect_to_echo(dev: &Dev) -> TcpStream {
    let address = format!("{}:7", dev.address(2));
    let started = std::time::Instant::now();
    loop {
        match TcpStream::connect(&address) {
            Ok(stream) => return stream,
            Err(error) => assert!(started.elapsed() < dev::PATIENCE, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ping(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let mut byte = [0];
    stream.write_all(b"x").expect("sent");
    stream.read_exact(&mut byte).expect("echoed");
}

/// A resolver on the second node that knows no name, behind a Service: a pod on the first node hears that from it.
async fn datagrams(dev: &Dev) {
    step("datagrams");
    let address = dev.address(2);
    let (network, bound) = (dev.network(2), format!("{address}:5353"));
    let socket = std::thread::spawn(move || {
        let file = std::fs::File::open(network).expect("the node's network");
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).expect("inside");
        UdpSocket::bind(bound).expect("a socket")
    });
    let socket = socket.join().expect("a socket in the node's network");
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            // An answer, of a server that would recurse: there is no such name.
            packet[2] |= 0x80;
            packet[3] = 0x83;
            let _ = socket.send_to(&packet[..length], from);
        }
    });
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "udp", "namespace": "default", "labels": {"kubernetes.io/service-name": "udp"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address], "nodeName": dev.node(2)}],
        "ports": [{"name": "", "port": 5353, "protocol": "UDP"}],
    }))
    .expect("a slice");
    dev.client().create(&slice).await.expect("created");
    let service = cluster_ip(dev, "udp").await;
    let script = format!("until nslookup nobody.example {service} 2>&1 | grep NXDOMAIN; do sleep 0.1; done");
    let said = dev.kubectl.run(&["exec", "client-1", "--", "busybox", "timeout", "60", "sh", "-c", &script]).await;
    assert!(said.contains("nobody.example"), "{said}");
}

async fn affinity(dev: &Dev) {
    step("affinity");
    for client in ["client-1", "client-2"] {
        let reached = ask(dev, client, "http://sticky/", 20).await;
        assert!(reached.len() == 1 && reached.is_subset(&pods(dev).await), "{client} reached {reached:?}");
    }
}

/// Asks without pause in a pod, until stopped.
struct Load {
    client: &'static str,
}

impl Load {
    async fn start(dev: &Dev, client: &'static str, url: &str) -> Self {
        let script = format!(
            "rm -f /tmp/stop /tmp/done; (while test ! -e /tmp/stop; do \
             if busybox timeout 10 wget -q -O /tmp/page {url} 2>/tmp/error; then echo ok; else echo failed: $(cat /tmp/error); fi; done > /tmp/asked; \
             echo > /tmp/done) > /dev/null 2>&1 < /dev/null &"
        );
        dev.kubectl.run(&["exec", client, "--", "sh", "-c", &script]).await;
        Self { client }
    }

    /// How often it asked; every time in vain is a failure of the test.
    async fn stop(self, dev: &Dev) -> usize {
        let script = "echo > /tmp/stop; until test -e /tmp/done; do sleep 0.1; done; cat /tmp/asked";
        let said = dev.kubectl.run(&["exec", self.client, "--", "sh", "-c", script]).await;
        let failed: Vec<&str> = said.lines().filter(|line| *line != "ok").collect();
        assert!(failed.is_empty(), "{} of {} requests failed: {failed:?}", failed.len(), said.lines().count());
        said.lines().count()
    }
}

async fn rolling_update_under_load(dev: &Dev) {
    step("a rolling update under load");
    let before = pods(dev).await;
    let loads = [Load::start(dev, "client-1", "http://web/").await, Load::start(dev, "client-2", "http://web/").await];
    dev.kubectl.run(&["rollout", "restart", "deployment/web"]).await;
    dev.patiently(&["rollout", "status", "deployment/web", "--timeout=30s"]).await;
    // The last of the old ones still takes what was under way.
    for pod in &before {
        dev.patiently(&["wait", "--for=delete", "pod", pod, "--timeout=30s"]).await;
    }
    assert!(pods(dev).await.is_disjoint(&before));
    for load in loads {
        let asked = load.stop(dev).await;
        assert!(asked > 20, "only {asked} requests");
        println!("{asked} requests, none failed");
    }
}

/// Rules and routes of a node, without what the kernel numbers and what packets change.
fn kernel(dev: &Dev, node: u8) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for family in ["ip", "ip6"] {
        let text = dev.on(node, &["nft", "--stateless", "list", "table", family, "trireme-proxy"]);
        // Elements are listed as the kernel hashes them.
        lines.extend(
            text.split([',', '\n'])
                .map(|part| part.trim().trim_start_matches("elements = {").trim_end_matches('}').trim().to_owned()),
        );
    }
    lines.extend(dev.on(node, &["ip", "route"]).lines().map(|line| line.trim().to_owned()));
    lines.sort();
    lines
}

/// Ends a node's Trireme by a signal; its pods go on.
async fn end(dev: &Dev, node: u8, signal: &str) {
    let pid = dev.pid(node);
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "node {node} was running");
    // Ended, though perhaps nobody asked about it yet.
    until("it is dead", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    })
    .await;
}

async fn killed_under_load(dev: &Dev) {
    step("SIGKILL of Trireme while traffic flows");
    let address = cluster_ip(dev, "web").await;
    let mut echo = connect_to_echo(dev);
    ping(&mut echo);
    let before: Vec<Vec<String>> = (1..=2).map(|node| kernel(dev, node)).collect();
    let load = Load::start(dev, "client-2", &format!("http://{address}/")).await;
    // The first has the control plane, too.
    for node in 1..=2 {
        end(dev, node, "-KILL").await;
    }
    ping(&mut echo);
    let mut fresh = connect_to_echo(dev);
    ping(&mut fresh);
    for node in 1..=2 {
        dev.trireme(&["start", &dev.node(node)]);
    }
    dev.object::<Node>("", &dev.node(2), "the API answers again", |_| true).await;
    for node in 1..=3 {
        dev.ready(node, true).await;
    }
    ping(&mut echo);
    ping(&mut fresh);
    // A node that came back at once was never seen to be away: that it is Ready does not say that its kubelet listens.
    dev.patiently(&["exec", "client-2", "--", "true"]).await;
    let asked = load.stop(dev).await;
    println!("{asked} requests, none failed");
    // A change passes both proxies after their first full write, so what is compared is settled.
    let port = json!([{"port": 80, "targetPort": 8080}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "after"}, "spec": {"selector": {"app": "web"}, "ports": port}});
    dev.kubectl.run_with(&["apply", "-f", "-"], &service.to_string()).await;
    for client in ["client-1", "client-2"] {
        let wait = "until busybox timeout 2 wget -q -O /dev/null http://after/; do sleep 0.1; done";
        dev.kubectl.run(&["exec", client, "--", "busybox", "timeout", "120", "sh", "-c", wait]).await;
    }
    let after = cluster_ip(dev, "after").await;
    dev.kubectl.run(&["delete", "service", "after"]).await;
    let started = std::time::Instant::now();
    for node in 1..=2 {
        let index = usize::from(node) - 1;
        loop {
            let now = kernel(dev, node);
            let settled = !now.iter().any(|line| line.contains(&after));
            if settled && now == before[index] {
                break;
            }
            let differ: Vec<&String> = now.iter().filter(|line| !before[index].contains(line)).collect();
            let missing: Vec<&String> = before[index].iter().filter(|line| !now.contains(line)).collect();
            assert!(started.elapsed() < dev::PATIENCE, "node {node}: doubled or new {differ:?}, lost {missing:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Whether the Service has a ready endpoint on a node.
fn serves(slice: &EndpointSlice, node: &str) -> bool {
    slice.endpoints.iter().flatten().any(|endpoint| {
        endpoint.node_name.as_deref() == Some(node)
            && endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    })
}

async fn cut_off_and_back(dev: &Dev) {
    step("a node is cut off and comes back");
    let slices = listed::<EndpointSlice>(dev, "kubernetes.io/service-name=web").await;
    let slice = slices[0].metadata.name.clone().expect("a name");
    let node = dev.node(3);
    dev.trireme(&["disconnect", &node]);
    dev.ready(3, false).await;
    dev.object::<EndpointSlice>("default", &slice, "its endpoints leave", |slice| !serves(slice, &node)).await;
    let started = std::time::Instant::now();
    loop {
        // The rules follow the endpoints by moments.
        let left = ask(dev, "client-1", "http://web/", 30).await;
        if left.len() == 2 && !left.contains("failed") {
            break;
        }
        assert!(started.elapsed() < dev::PATIENCE, "{left:?}");
    }
    dev.trireme(&["connect", &node]);
    dev.ready(3, true).await;
    dev.object::<EndpointSlice>("default", &slice, "its endpoints come back", |slice| serves(slice, &node)).await;
    let wait = "until busybox timeout 2 wget -q -O - http://web/; do :; done";
    dev.kubectl.run(&["exec", "client-1", "--", "busybox", "timeout", "60", "sh", "-c", wait]).await;
}

async fn rejoining_and_renewal(dev: &Dev) {
    step("a node joins again, and renews its certificate");
    let (node, file) = (dev.node(3), dev.data(3).join("agent/pki/client.pem"));
    let uid = dev.ready(3, true).await.metadata.uid.clone();
    dev.trireme(&["stop", &node]);
    let listed = dev.trireme(&["list"]);
    assert!(listed.lines().any(|line| line.starts_with(&node) && line.contains(" stopped ")), "{listed}");
    std::fs::remove_dir_all(dev.data(3).join("agent/pki")).expect("removed");
    dev.trireme(&["start", &node]);
    let newer = |than: Timestamp| {
        let file = file.clone();
        move || {
            let pem = std::fs::read_to_string(&file).unwrap_or_default();
            Certificate::from_pem(&pem).is_ok_and(|certificate| certificate.not_after > than)
        }
    };
    until("it has a certificate", newer(Timestamp::now())).await;
    // Its pods run again, it is known as the one it was, and the API server reaches its kubelet, whose certificate is new.
    exec(dev, "echo").await;
    assert_eq!(dev.ready(3, true).await.metadata.uid, uid, "the same Node");

    // Most of this certificate's life is over: it is replaced at once.
    dev.trireme(&["stop", &node]);
    let pki = dev.data(1).join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).expect("a file");
    let authority = Authority::from_parts(
        Certificate::from_pem(&read("ca.crt")).expect("a certificate"),
        PrivateKey::from_pem(&read("ca.key")).expect("a key"),
    );
    let key = PrivateKey::generate().expect("a key");
    let leaf = Leaf::client(Subject::new(format!("system:node:{node}"), ["system:nodes"]), Duration::from_secs(1800));
    let long_ago = Timestamp::now().checked_sub(jiff::SignedDuration::from_secs(1680)).expect("a time");
    let old = authority.issue(&leaf, &key.public(), long_ago.max(Timestamp::UNIX_EPOCH)).expect("a certificate");
    std::fs::write(&file, format!("{}{}", old.to_pem(), key.to_pem())).expect("written");
    dev.trireme(&["start", &node]);
    let month = Timestamp::now().checked_add(jiff::SignedDuration::from_hours(24 * 30)).expect("a time");
    until("the certificate is renewed", newer(month)).await;
    exec(dev, "echo").await;
}

/// Runs something in a pod, as soon as that works again.
async fn exec(dev: &Dev, pod: &str) {
    let started = std::time::Instant::now();
    loop {
        let output = dev.kubectl.output(&["exec", pod, "--", "true"], "").await;
        if output.success {
            return;
        }
        assert!(started.elapsed() < dev::PATIENCE, "{}{}{}", output.stdout, output.stderr, dev.logs());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !met() {
        assert!(started.elapsed() < dev::PATIENCE, "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
