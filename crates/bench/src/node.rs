//! A node: from `apply` to Running, many pods at once, and what the node costs when nothing happens.
//!
//! Times are those of an outside client that watches. The parts of a pod's start are the runtime's own calls as the kubelet
//! counts them (`kubelet_runtime_operations_duration_seconds`); the network's part is the difference between sandboxes with
//! and without a network of their own. The same number of pods is also started by calls straight to the runtime, which is the
//! least that any kubelet could take on this machine. An agent of its own tells what the node's part takes without a control
//! plane beside it.

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Event, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use node::cri::{Runtime as _, v1};
use serde_json::json;
use testkit::Server;
use tokio::process::Command;

use crate::process::{cpu_seconds, private_megabytes, resident_megabytes};
use crate::report::Line;
use crate::{Failure, binary, start};

pub const NODE: &str = "bench";
pub const IMAGE: &str = "trireme.local/bench:1";
const ONE_BY_ONE: usize = 20;
const AT_ONCE: usize = 40;
const RESIDENT: usize = 30;
const IDLE: usize = 100;

/// A server, not running, that has the image.
pub async fn with_image() -> Result<Server, Failure> {
    let mut server = Server::start(start(&["--disable-agent"])).await;
    let made = Command::new(binary())
        .args(["image", "busybox", "--name", IMAGE])
        .arg(server.data_dir().join("images/bench.tar"))
        .status()
        .await?;
    if !made.success() {
        return Err("the image is not made".into());
    }
    server.stop().await;
    Ok(server)
}

/// Objects that change while pods start.
const CHANGED: usize = 1_000;

/// How late the threads of the whole cluster are while many pods start and many objects change.
pub async fn stalls() -> Result<(), Failure> {
    let mut server = with_image().await?.with_arguments(&[&format!("--node-name={NODE}")]);
    server.spawn();
    server.ready().await;
    let client = server.client();
    node_ready(&client).await?;
    one(&client, "warm", false).await?;
    delete_all(&client).await?;
    let before = crate::stalls::figures(&server.kubeconfig()).await?;
    let changes = async {
        for number in 0..CHANGED {
            let map = testkit::build::config_map(&format!("changed-{}", number % 100), "at", &number.to_string());
            let written = if number < 100 { client.create(&map).await } else { client.update(&map).await };
            written?;
        }
        Ok::<_, Failure>(())
    };
    let pods = async {
        create(&client, "many", AT_ONCE, false).await?;
        running(&client, AT_ONCE).await
    };
    tokio::try_join!(changes, pods)?;
    let after = crate::stalls::figures(&server.kubeconfig()).await?;
    let mut line = Line::new("runtime_stall").figure("pods", AT_ONCE as f64).figure("changes", CHANGED as f64);
    for runtime in ["workers", "promises", "feed"] {
        let name = format!("{runtime}_below_ms");
        line = line.figure(&name, crate::stalls::bound(&before, &after, runtime) * 1e3).at_most(&name, 20.0);
    }
    line.print();
    delete_all(&client).await?;
    server.stop().await;
    clean(&server.data_dir()).await
}

/// All figures of a node.
pub async fn run() -> Result<(), Failure> {
    let arguments = [format!("--node-name={NODE}")];
    let mut server = with_image().await?.with_arguments(&[&arguments[0]]);
    // The first start starts the runtime and imports images; the last finds both, and a cluster that does not know the node.
    server.spawn();
    server.ready().await;
    node_ready(&server.client()).await?;
    server.stop().await;
    let mut server = server.with_arguments(&["--disable-agent"]);
    server.spawn();
    server.ready().await;
    server.client().delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    server.stop().await;
    let mut server = server.with_arguments(&[&arguments[0]]);
    let begun = Instant::now();
    server.spawn();
    server.ready().await;
    node_ready(&server.client()).await?;
    let ready = begun.elapsed();
    Line::new("node_ready").figure("ms", ready.as_secs_f64() * 1e3).at_most("ms", 500.0).print();

    let client = server.client();
    starts(&client).await?;
    let floor = straight(&server.data_dir().join("agent/containerd/containerd.sock")).await?;
    let begun = Instant::now();
    create(&client, "many", AT_ONCE, false).await?;
    running(&client, AT_ONCE).await?;
    let seconds = begun.elapsed().as_secs_f64();
    Line::new("pods_at_once")
        .figure("pods", AT_ONCE as f64)
        .figure("s", seconds)
        .figure("runtime_alone_s", floor.as_secs_f64())
        .at_most("s", 5.0)
        .print();
    delete_all(&client).await?;

    let id = server.id().ok_or("the server is gone")?;
    let memory = memory(&client, id).await?;
    Line::new("node_memory")
        .figure("pods", RESIDENT as f64)
        .figure("whole_process_megabytes", memory.resident)
        .figure("private_megabytes", memory.private)
        .figure("before_pods_megabytes", memory.before)
        .print();
    let percent = idle_percent(&client, id).await?;
    Line::new("node_idle").figure("pods", IDLE as f64).figure("percent", percent).at_most("percent", 1.0).print();
    delete_all(&client).await?;
    server.stop().await;
    clean(&server.data_dir()).await?;
    agent(server.with_arguments(&["--disable-agent"])).await
}

/// What a process takes with pods on its node, in megabytes.
struct Memory {
    /// Resident, without pods.
    before: f64,
    resident: f64,
    private: f64,
}

async fn memory(client: &Client, id: u32) -> Result<Memory, Failure> {
    let before = resident_megabytes(id)?;
    create(client, "resident", RESIDENT, false).await?;
    running(client, RESIDENT).await?;
    // The memory of their start is given back within seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    Ok(Memory { before, resident: resident_megabytes(id)?, private: private_megabytes(id)? })
}

/// How much of a core a process uses while more pods only run.
async fn idle_percent(client: &Client, id: u32) -> Result<f64, Failure> {
    create(client, "idle", IDLE - RESIDENT, false).await?;
    running(client, IDLE).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (since, used) = (Instant::now(), cpu_seconds(id)?);
    tokio::time::sleep(Duration::from_secs(30)).await;
    Ok((cpu_seconds(id)? - used) / since.elapsed().as_secs_f64() * 100.0)
}

/// Ends what a node left running on purpose.
pub async fn clean(data_dir: &Path) -> Result<(), Failure> {
    let cleaned = Command::new(binary()).args(["node", "clean", "--data-dir"]).arg(data_dir).output().await?;
    if cleaned.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&cleaned.stderr).into()) }
}

/// A directory for the node's part as a process of its own, with the image of this.
pub fn home(server: &Server) -> Result<tempfile::TempDir, Failure> {
    let home = tempfile::tempdir()?;
    std::fs::create_dir_all(home.path().join("images"))?;
    std::fs::copy(server.data_dir().join("images/bench.tar"), home.path().join("images/bench.tar"))?;
    Ok(home)
}

/// The node's part as a process of its own, for a server without one.
pub fn start_agent(server: &Server, home: &Path) -> std::io::Result<tokio::process::Child> {
    let mut command = Command::new(binary());
    command
        .args(["agent", "--node-ip", "127.0.0.1", "--node-name", NODE])
        .args(["--server", &format!("https://127.0.0.1:{}", server.port())])
        .arg("--token-file")
        .arg(server.data_dir().join("token"))
        .arg("--data-dir")
        .arg(home)
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

/// What the node's part takes as a process of its own.
async fn agent(mut server: Server) -> Result<(), Failure> {
    server.spawn();
    server.ready().await;
    let client = server.client();
    let home = home(&server)?;
    client.delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    let mut first = start_agent(&server, home.path())?;
    node_ready(&client).await?;
    first.kill().await?;
    client.delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    let begun = Instant::now();
    let agent = start_agent(&server, home.path())?;
    node_ready(&client).await?;
    let ready = begun.elapsed().as_secs_f64() * 1e3;
    let id = agent.id().ok_or("the agent is gone")?;
    let memory = memory(&client, id).await?;
    let percent = idle_percent(&client, id).await?;
    Line::new("agent")
        .figure("ready_ms", ready)
        .figure("empty_megabytes", memory.before)
        .figure("pods", RESIDENT as f64)
        .figure("megabytes", memory.resident)
        .figure("private_megabytes", memory.private)
        .figure("idle_pods", IDLE as f64)
        .figure("idle_percent", percent)
        .at_most("ready_ms", 500.0)
        .at_most("megabytes", 30.0)
        .at_most("idle_percent", 1.0)
        .print();
    delete_all(&client).await?;
    drop(agent);
    server.stop().await;
    clean(home.path()).await
}

/// As many pods at once by calls straight to the runtime: no cluster, no volumes, no statuses. How long that takes.
async fn straight(socket: &Path) -> Result<Duration, Failure> {
    let runtime = node::cri::Client::new(&socket.to_string_lossy())?;
    let logs = tempfile::tempdir()?;
    let begun = Instant::now();
    let started = futures::future::try_join_all((0..AT_ONCE).map(|number| {
        let runtime = &runtime;
        let sandbox = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("straight-{number}"),
                namespace: "bench".into(),
                uid: format!("straight-{number}"),
                attempt: 0,
            }),
            hostname: "straight".into(),
            log_directory: logs.path().to_string_lossy().into_owned(),
            linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: "/bench".into(), ..Default::default() }),
            ..Default::default()
        };
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: vec!["sleep".into(), "86400".into()],
            log_path: format!("{number}.log"),
            ..Default::default()
        };
        async move {
            let id = runtime.run_sandbox(sandbox.clone(), "").await?;
            let container = runtime.create_container(&id, container, sandbox).await?;
            runtime.start_container(&container).await?;
            Ok::<_, node::cri::Error>(id)
        }
    }))
    .await?;
    let took = begun.elapsed();
    futures::future::try_join_all(started.iter().map(|id| async {
        runtime.stop_sandbox(id).await?;
        runtime.remove_sandbox(id).await
    }))
    .await?;
    Ok(took)
}

/// Pods one after the other, and where their time goes.
async fn starts(client: &Client) -> Result<(), Failure> {
    // The first of all pays for what is cold.
    one(client, "warm", false).await?;
    delete_all(client).await?;
    let before = calls(client).await?;
    let (mut whole, mut scheduled) = (Vec::new(), Vec::new());
    for number in 0..ONE_BY_ONE {
        let (bound, running) = one(client, &format!("one-{number}"), false).await?;
        scheduled.push(bound);
        whole.push(running);
    }
    let middle = calls(client).await?;
    for number in 0..ONE_BY_ONE {
        one(client, &format!("host-{number}"), true).await?;
    }
    let after = calls(client).await?;
    delete_all(client).await?;
    let average = |operation: &str, from: &str, to: &str| {
        let read = |text: &str, part: &str| {
            let name = format!("kubelet_runtime_operations_duration_seconds_{part}{{operation_type=\"{operation}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let count = read(to, "count") - read(from, "count");
        if count > 0.0 { (read(to, "sum") - read(from, "sum")) / count * 1e3 } else { 0.0 }
    };
    let sandbox = average("run_podsandbox", &before, &middle);
    let network = (sandbox - average("run_podsandbox", &middle, &after)).max(0.0);
    let create = average("create_container", &before, &middle);
    let begin = average("start_container", &before, &middle);
    whole.sort_unstable();
    scheduled.sort_unstable();
    let half = |list: &[Duration]| list.get(list.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let rest = (half(&whole) - half(&scheduled) - sandbox - create - begin).max(0.0);
    Line::new("apply_to_running")
        .latencies(&mut whole)
        .figure("scheduler_ms", half(&scheduled))
        .figure("sandbox_ms", sandbox - network)
        .figure("cni_ms", network)
        .figure("create_ms", create)
        .figure("start_ms", begin)
        .figure("status_and_rest_ms", rest)
        .at_most("p50_ms", 300.0)
        .print();
    Ok(())
}

/// Makes a pod; how long until it was bound, and until it ran.
async fn one(client: &Client, name: &str, host: bool) -> Result<(Duration, Duration), Failure> {
    let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
    let mut events = client.watch::<Pod>("default", &params).await?;
    let sent = Instant::now();
    create_one(client, name, host).await?;
    let mut bound = None;
    while let Some(event) = events.next().await {
        if let Event::Added(pod) | Event::Modified(pod) = event? {
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                bound.get_or_insert_with(|| sent.elapsed());
            }
            if is_running(&pod) {
                return Ok((bound.unwrap_or_default(), sent.elapsed()));
            }
        }
    }
    Err("the watch ended".into())
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

async fn create_one(client: &Client, name: &str, host: bool) -> Result<(), Failure> {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "hostNetwork": host,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "86400"]}],
        },
    }))?;
    client.create(&pod).await?;
    Ok(())
}

pub async fn create(client: &Client, prefix: &str, count: usize, host: bool) -> Result<(), Failure> {
    for number in 0..count {
        create_one(client, &format!("{prefix}-{number}"), host).await?;
    }
    Ok(())
}

pub async fn running(client: &Client, count: usize) -> Result<(), Failure> {
    testkit::objects::<Pod>(client, "default", "pods that run", |pods| {
        pods.iter().filter(|pod| is_running(pod)).count() == count
    })
    .await;
    Ok(())
}

pub async fn delete_all(client: &Client) -> Result<(), Failure> {
    for pod in client.list::<Pod>("default", &Default::default()).await?.items {
        let name = pod.metadata.name.clone().unwrap_or_default();
        client.delete::<Pod>("default", &name, &DeleteOptions::default()).await?;
    }
    testkit::objects::<Pod>(client, "default", "no pods", <[_]>::is_empty).await;
    Ok(())
}

pub async fn node_ready(client: &Client) -> Result<(), Failure> {
    testkit::object::<Node>(client, "", NODE, "a ready node", |node| node.is_some_and(rules::pods::is_node_ready))
        .await;
    Ok(())
}

/// The kubelet's figures, through the API server.
async fn calls(client: &Client) -> Result<String, Failure> {
    let bytes = client.raw(&format!("/api/v1/nodes/{NODE}/proxy/metrics")).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
