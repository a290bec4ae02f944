//! What it costs to know what a full node uses: one look of the kubelet at all its pods, and what `kubectl top` waits for.
//!
//! Pods are real. The processor time of a look is the agent's, as the kernel counts it, less what it uses when nobody looks; the container runtime's, which
//! is asked which containers there are, is said beside it. `top` is measured as the answer of the API and as the whole command of `trireme kubectl`.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions};
use k8s_openapi::api::core::v1::Node;
use tokio::process::Command;

use crate::process::cpu_seconds;
use crate::report::Line;
use crate::{Failure, Options, binary, node};

/// As many as a node takes by default.
const PODS: usize = 110;
const LOOKS: usize = 100;
const ANSWERS: usize = 100;
const COMMANDS: usize = 15;
/// How long the node is watched while nobody looks.
const QUIET: Duration = Duration::from_secs(15);
/// How long the rates of pods that have just started may take: two looks, 15 s apart.
const PATIENCE: Duration = Duration::from_secs(120);

/// The two processes of a node.
struct Processes {
    agent: u32,
    runtime: u32,
}

impl Processes {
    fn used(&self) -> Result<[f64; 2], Failure> {
        Ok([cpu_seconds(self.agent)?, cpu_seconds(self.runtime)?])
    }
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    let pods = options.scaled(PODS, 10).min(PODS);
    let mut server = node::with_image().await?.with_arguments(&["--disable-agent"]);
    server.spawn();
    server.ready().await;
    let client = server.client();
    client.delete::<Node>("", node::NODE, &DeleteOptions::default()).await.or_else(absent)?;
    let home = node::home(&server)?;
    let agent = node::start_agent(&server, home.path())?;
    node::node_ready(&client).await?;
    node::create(&client, "used", pods, false).await?;
    node::running(&client, pods).await?;
    let own = Processes { agent: agent.id().ok_or("the agent is gone")?, runtime: runtime(home.path())? };
    looks(&client, &own, pods).await?;
    top(&client, pods).await?;
    command(&server.kubeconfig(), pods).await?;
    node::delete_all(&client).await?;
    drop(agent);
    server.stop().await;
    node::clean(home.path()).await
}

fn absent(error: client::Error) -> Result<(), client::Error> {
    if error.is_not_found() { Ok(()) } else { Err(error) }
}

/// The container runtime that was started for this directory.
fn runtime(home: &Path) -> Result<u32, Failure> {
    let home = home.to_string_lossy().into_owned();
    for process in std::fs::read_dir("/proc")? {
        let process = process?;
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile.
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        if words.next().is_some_and(|program| program.ends_with("containerd")) && words.any(|word| word.contains(&home))
        {
            return Ok(id);
        }
    }
    Err("the node has no container runtime".into())
}

/// One look after the other at what all pods use.
async fn looks(client: &Client, node: &Processes, pods: usize) -> Result<(), Failure> {
    let path = format!("/api/v1/nodes/{}/proxy/metrics/resource", node::NODE);
    let text = String::from_utf8(client.raw(&path).await?.to_vec())?;
    let measured = text.lines().filter(|line| line.starts_with("pod_memory_working_set_bytes{")).count();
    if measured < pods {
        return Err(format!("{measured} of {pods} pods are measured").into());
    }
    // What their start left to do is done by then.
    tokio::time::sleep(QUIET).await;
    let (begun, before) = (Instant::now(), node.used()?);
    tokio::time::sleep(QUIET).await;
    let after = node.used()?;
    let idle = [0, 1].map(|of| (after[of] - before[of]) / begun.elapsed().as_secs_f64());
    let (begun, before, mut latencies) = (Instant::now(), node.used()?, Vec::new());
    for _ in 0..LOOKS {
        let begun = Instant::now();
        client.raw(&path).await?;
        latencies.push(begun.elapsed());
    }
    let (seconds, after) = (begun.elapsed().as_secs_f64(), node.used()?);
    let [agent, runtime] =
        [0, 1].map(|of| ((after[of] - before[of] - idle[of] * seconds) / LOOKS as f64 * 1e3).max(0.0));
    Line::new("metrics_scrape")
        .figure("pods", pods as f64)
        .figure("bytes", text.len() as f64)
        .figure("cpu_ms", agent)
        .figure("runtime_cpu_ms", runtime)
        .latencies(&mut latencies)
        .at_most("cpu_ms", 10.0)
        .print();
    Ok(())
}

/// What `kubectl top` asks, once the rates of all are known.
async fn top(client: &Client, pods: usize) -> Result<(), Failure> {
    let path = "/apis/metrics.k8s.io/v1beta1/pods";
    let known = async {
        loop {
            let list: serde_json::Value = serde_json::from_slice(&client.raw(path).await?)?;
            if list["items"].as_array().is_some_and(|items| items.len() >= pods) {
                return Ok::<_, Failure>(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.map_err(|_| "the pods' use does not become known")??;
    for (name, path) in [("top_pods", path), ("top_nodes", "/apis/metrics.k8s.io/v1beta1/nodes")] {
        let (mut latencies, mut bytes) = (Vec::new(), 0);
        for _ in 0..ANSWERS {
            let begun = Instant::now();
            bytes = client.raw(path).await?.len();
            latencies.push(begun.elapsed());
        }
        let line = Line::new(name).figure("pods", pods as f64).figure("bytes", bytes as f64);
        line.latencies(&mut latencies).at_most("p99_ms", 20.0).print();
    }
    Ok(())
}

/// The whole command, from its start to its end.
async fn command(kubeconfig: &Path, pods: usize) -> Result<(), Failure> {
    let mut latencies = Vec::new();
    for _ in 0..COMMANDS {
        let mut command = Command::new(binary());
        command.args(["kubectl", "top", "pods", "--all-namespaces", "--kubeconfig"]).arg(kubeconfig);
        let begun = Instant::now();
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().await?;
        latencies.push(begun.elapsed());
        if !status.success() {
            return Err(format!("kubectl top: {status}").into());
        }
    }
    Line::new("top_command").figure("pods", pods as f64).latencies(&mut latencies).print();
    Ok(())
}
