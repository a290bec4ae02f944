//! Services: from a ready pod to the first packet, what a change costs, names per second, and what a node keeps in memory.
//!
//! The proxy runs in a network namespace of its own, a process like on any node, against a real API server with its
//! controllers. A pod becomes ready when its status says so; what answers at its address is a listener in that namespace, so
//! the figures hold the whole way of the news, and no container's start.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Config, Patch};
use devnet::Layout;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use crate::process::resident_megabytes;
use crate::report::Line;
use crate::{Failure, binary};

/// The network of the bench.
const CLUSTER: &str = "bench";
const RANGE: &str = "198.18.251.0/24";
const PORT: u16 = 8080;
/// Endpoints of a Service.
const ENDPOINTS: u32 = 10;
/// How often each latency is taken.
const TIMES: usize = 30;

/// A process that ends with the bench.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All figures about Services.
pub async fn measure() -> Result<(), Failure> {
    names()?;
    let layout = Layout::new(CLUSTER, 1, RANGE.parse()?, false)?;
    devnet::make(&layout).await?;
    let outcome = packets(&layout).await;
    devnet::remove(CLUSTER).await?;
    outcome?;
    memory().await
}

/// Runs something in the machine's network.
fn inside<T: Send + 'static>(layout: &Layout, what: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    let path = format!("/run/netns/{}", layout.machines[0].namespace);
    std::thread::spawn(move || {
        let file = std::fs::File::open(path).expect("the machine's network");
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).expect("inside");
        what()
    })
}

async fn packets(layout: &Layout) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let (host, machine) = (layout.host().to_string(), &layout.machines[0]);
    let data = directory.path().join("data");
    let server = Command::new(binary())
        .args(["server", "--bind-address", &host, "--disable-agent", "--disable-scheduler", "--disable-service-lb"])
        // No kubelet says that the node lives.
        .args(["--node-monitor-grace-period", "86400", "--data-dir"])
        .arg(&data)
        .stderr(Stdio::null())
        .spawn()?;
    let _server = Running(server);
    let client = connect(&data.join("admin.kubeconfig")).await?;
    let address = json!([{"type": "InternalIP", "address": machine.address}]);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": machine.name}}))?;
    client.create(&node).await?;
    // The controllers write the node too: this leaves alone what is theirs.
    let status = Patch::Merge(json!({"status": {"addresses": address}}));
    client.patch_status::<Node>("", &machine.name, &status).await?;

    let bound = SocketAddr::from((machine.address, PORT));
    let listener = inside(layout, move || TcpListener::bind(bound)).join().map_err(|_| "no listener")??;
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let proxy = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", machine.namespace))
        .arg(binary())
        .args(["proxy", "--hostname-override", &machine.name, "--cluster-cidr", "10.1.0.0/16", "--kubeconfig"])
        .arg(data.join("admin.kubeconfig"))
        .stderr(Stdio::null())
        .spawn()?;
    let proxy = Running(proxy);

    let mut made = 0;
    let mut medians = Vec::new();
    for (count, wanted) in [(10, 50.0), (5_000, 150.0)] {
        fill(&client, made..count).await?;
        made = count;
        let mut moved = ready_to_first_packet(layout, &client, &format!("pod-{count}")).await?;
        Line::new("ready_to_first_packet")
            .figure("services", f64::from(count))
            .figure("endpoints", f64::from(count * ENDPOINTS))
            .latencies(&mut moved)
            .at_most("p50_ms", wanted)
            .print();
        let mut latencies = connections(layout, &client, &format!("pod-{count}")).await?;
        latencies.sort_unstable();
        medians.push(latencies[latencies.len() / 2].as_secs_f64());
        Line::new("service_connect").figure("services", f64::from(count)).latencies(&mut latencies).print();
    }
    // The same however many there are, but for what the machine does besides.
    Line::new("service_connect_growth").figure("ratio", medians[1] / medians[0]).at_most("ratio", 1.5).print();
    endpoint_changes(layout, &client, "changing", 1).await?;
    let before = processor(proxy.0.id())?;
    let changes = endpoint_changes(layout, &client, "changing", TIMES).await?;
    let spent = processor(proxy.0.id())? - before;
    Line::new("endpoint_change")
        .figure("services", f64::from(made))
        .figure("cpu_ms", spent.as_secs_f64() * 1e3 / changes as f64)
        .at_most("cpu_ms", 5.0)
        .print();
    Ok(())
}

async fn connect(kubeconfig: &Path) -> Result<Client, Failure> {
    let begun = Instant::now();
    loop {
        if let Ok(config) = Config::from_kubeconfig(kubeconfig)
            && let Ok(client) = Client::https(config)
            && client.raw("/readyz").await.is_ok()
        {
            return Ok(client);
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err("the server did not become ready".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn slice(name: &str, addresses: &[Ipv4Addr], ready: bool) -> Result<EndpointSlice, Failure> {
    let endpoint = |address: &Ipv4Addr| json!({"addresses": [address], "conditions": {"ready": ready}});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
    }))?)
}

fn service(name: &str) -> Result<Service, Failure> {
    let spec = json!({"ports": [{"port": 80, "targetPort": PORT}]});
    Ok(serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))?)
}

/// Makes Services with endpoints that nobody reaches.
async fn fill(client: &Client, numbers: std::ops::Range<u32>) -> Result<(), Failure> {
    let make = async |number: u32| -> Result<(), Failure> {
        let name = format!("s{number}");
        let first = Ipv4Addr::new(10, 1, 0, 0).to_bits() + number * ENDPOINTS;
        let addresses: Vec<Ipv4Addr> = (0..ENDPOINTS).map(|n| Ipv4Addr::from_bits(first + n)).collect();
        client.create(&service(&name)?).await?;
        client.create(&slice(&name, &addresses, true)?).await?;
        Ok(())
    };
    futures::stream::iter(numbers).map(make).buffer_unordered(32).try_collect::<()>().await
}

/// A Service with a selector, and the one pod that it selects.
async fn pod(layout: &Layout, client: &Client, name: &str) -> Result<(Service, Pod), Failure> {
    let machine = &layout.machines[0];
    let mut service = service(name)?;
    service.spec.get_or_insert_default().selector = Some([("app".to_owned(), name.to_owned())].into());
    let service = client.create(&service).await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeName": machine.name, "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none", "ports": [{"containerPort": PORT}]}],
        },
    }))?;
    let begun = Instant::now();
    loop {
        match client.create(&pod).await {
            // The namespace's service account is made by a controller.
            Err(error) if error.code() == Some(403) && begun.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            made => return Ok((service, made?)),
        }
    }
}

/// What a kubelet says of a pod.
fn status(layout: &Layout, ready: bool) -> Result<PodStatus, Failure> {
    let address = layout.machines[0].address;
    let ready = if ready { "True" } else { "False" };
    Ok(serde_json::from_value(json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": ready}],
    }))?)
}

/// The time from a pod's becoming ready to the first connection through its Service.
async fn ready_to_first_packet(layout: &Layout, client: &Client, name: &str) -> Result<Vec<Duration>, Failure> {
    let (service, mut pod) = pod(layout, client, name).await?;
    let target = address(&service)?;
    let mut latencies = Vec::new();
    for _ in 0..TIMES {
        let refused = inside(layout, move || while answers(target) {});
        pod.status = Some(status(layout, false)?);
        pod = client.update_status(&pod).await?;
        join(refused).await?;
        pod.status = Some(status(layout, true)?);
        let begun = Instant::now();
        pod = client.update_status(&pod).await?;
        let answered = inside(layout, move || {
            while !answers(target) {}
            Instant::now()
        });
        latencies.push(join(answered).await?.duration_since(begun));
    }
    Ok(latencies)
}

/// Switches an endpoint on and off again so many times, each time seen in the packets; how many changes that were.
async fn endpoint_changes(layout: &Layout, client: &Client, name: &str, times: usize) -> Result<usize, Failure> {
    let made = match client.get::<Service>("default", name).await {
        Err(error) if error.is_not_found() => client.create(&service(name)?).await?,
        found => found?,
    };
    let target = address(&made)?;
    let endpoint = [layout.machines[0].address];
    let mut current = match client.get::<EndpointSlice>("default", name).await {
        Err(error) if error.is_not_found() => client.create(&slice(name, &endpoint, false)?).await?,
        found => found?,
    };
    for _ in 0..times {
        for ready in [true, false] {
            current.endpoints = slice(name, &endpoint, ready)?.endpoints;
            current = client.update(&current).await?;
            join(inside(layout, move || while answers(target) != ready {})).await?;
        }
    }
    Ok(times * 2)
}

/// The time a connection takes when nothing changes.
async fn connections(layout: &Layout, client: &Client, name: &str) -> Result<Vec<Duration>, Failure> {
    let target = address(&client.get::<Service>("default", name).await?)?;
    let take = move || {
        let connect = || {
            let begun = Instant::now();
            let stream = TcpStream::connect(target)?;
            let took = begun.elapsed();
            accepted(stream);
            Ok::<_, std::io::Error>(took)
        };
        (0..1_000).map(|_| connect()).collect::<Result<Vec<_>, _>>()
    };
    Ok(join(inside(layout, take)).await??)
}

/// Whether a connection comes about.
fn answers(target: SocketAddr) -> bool {
    TcpStream::connect(target).map(accepted).is_ok()
}

/// Waits until the listener has taken the connection, and closed it. One connection after the other without that is more than a
/// listener on a busy machine takes from its queue, and what does not fit into the queue is tried again a second later.
fn accepted(mut stream: TcpStream) {
    let _ = stream.read(&mut [0]);
}

fn address(service: &Service) -> Result<SocketAddr, Failure> {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_ref()).ok_or("no address")?;
    Ok(format!("{ip}:80").parse()?)
}

async fn join<T: Send + 'static>(thread: std::thread::JoinHandle<T>) -> Result<T, Failure> {
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.map_err(|_| "a thread failed".into())
}

/// The time on the processor of a process and of the commands that it ran.
fn processor(process: u32) -> Result<Duration, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = text.rsplit_once(')').ok_or("no stat")?.1.split_whitespace().collect();
    let mut ticks = 0;
    for field in fields.get(11..15).ok_or("a short stat")? {
        ticks += field.parse::<u64>()?;
    }
    // The kernel counts in hundredths of a second.
    Ok(Duration::from_millis(ticks * 10))
}

/// Names per second on one core: server and clients are threads of one process each, the server a single one.
fn names() -> Result<(), Failure> {
    const CLIENTS: u16 = 4;
    const EACH: u16 = 20_000;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let bound = dns::bind(&dns::Config::new(vec![SocketAddr::from(([127, 0, 0, 1], 0))])).await?;
            let entry = |number: u32| {
                let ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 96, 0, 0).to_bits() + number);
                let spec = json!({"clusterIP": ip, "ports": [{"port": 80}]});
                serde_json::from_value::<Service>(json!({"spec": spec})).map(|made| dns::zone::Entry::of(&made, []))
            };
            for number in 0..5_000 {
                bound.zone().write().set_service("default", &format!("s{number}"), entry(number)?);
            }
            let _ = sender.send(bound.addresses()[0]);
            let never = tokio_util::sync::CancellationToken::new();
            Ok(bound.serve(std::future::ready(()), never).await?)
        })
    });
    let server = receiver.recv()?;
    let begun = Instant::now();
    let clients: Vec<_> = (0..CLIENTS).map(|client| std::thread::spawn(move || ask(server, client, EACH))).collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.join().map_err(|_| "a client failed")??);
    }
    Line::new("dns_queries")
        .figure("per_second", f64::from(CLIENTS) * f64::from(EACH) / begun.elapsed().as_secs_f64())
        .latencies(&mut latencies)
        .at_least("per_second", 30_000.0)
        .at_most("p99_ms", 1.0)
        .print();
    Ok(())
}

/// Asks one name after the other.
fn ask(server: SocketAddr, client: u16, count: u16) -> std::io::Result<Vec<Duration>> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut answer = [0; 512];
    (0..count)
        .map(|number| {
            let name = format!("s{}", (usize::from(number) * 7 + usize::from(client)) % 5_000);
            let mut question = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            question[..2].copy_from_slice(&number.to_be_bytes());
            for label in [name.as_str(), "default", "svc", "cluster", "local", ""] {
                question.push(u8::try_from(label.len()).unwrap_or_default());
                question.extend(label.bytes());
            }
            question.extend([0, 1, 0, 1]);
            let begun = Instant::now();
            socket.send(&question)?;
            socket.recv(&mut answer)?;
            Ok(begun.elapsed())
        })
        .collect()
}

/// The whole agent of a node that joined, with 500 Services.
async fn memory() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let cluster = |arguments: &[&str]| -> Result<(), Failure> {
        let output =
            Command::new(binary()).arg("cluster").arg("--directory").arg(directory.path()).args(arguments).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(errors.into()) }
    };
    cluster(&["up", "--name", CLUSTER, "--nodes", "2", "--range", RANGE])?;
    let measured = async {
        let home = directory.path().join(CLUSTER);
        let client = connect(&home.join(format!("{CLUSTER}-1/data/admin.kubeconfig"))).await?;
        fill(&client, 0..500).await?;
        // Freed pages go back within a second or two, those of the start's code ten seconds after it.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let pid = std::fs::read_to_string(home.join(format!("{CLUSTER}-2/trireme.pid")))?;
        resident_megabytes(pid.split_whitespace().next().ok_or("no pid")?.parse()?)
    };
    let measured = measured.await;
    cluster(&["down", "--name", CLUSTER])?;
    Line::new("agent_memory")
        .figure("services", 500.0)
        .figure("megabytes", measured?)
        .at_most("megabytes", 40.0)
        .print();
    Ok(())
}
