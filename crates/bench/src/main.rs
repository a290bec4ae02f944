//! `make bench`: figures of this build as JSON lines, or of another API server with `PEER_KUBECONFIG`.
//!
//! The client is ours, over TLS and HTTP/2, and shares the machine with the server. It sends bodies that were encoded
//! beforehand and does not decode answers, so that it measures the server and not itself. `BENCH_SCALE=0.1` is a quick look.

mod attachments;
mod controllers;
mod custom;
mod gauntlet;
mod kubectl;
mod load;
mod netpol;
mod node;
mod pods;
mod report;
mod scheduler;
mod services;
mod stalls;
mod storage;
mod watches;
mod wire;

use std::time::Duration;

use client::{Client, Config, DeleteOptions};
use k8s_openapi::api::core::v1::Namespace;
use testkit::{Server, ServerOptions};

use report::{Line, private_megabytes, resident_megabytes};

/// As the program itself has it: what is measured in this process is to cost what it costs there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the figures come from.
pub struct Target {
    /// One client is one connection.
    clients: Vec<Client>,
    config: Config,
    /// Whose memory can be read; none for another server.
    process: Option<u32>,
    scale: f64,
}

/// Connections of the load. One would make HTTP/2's framing of a single connection the limit.
const CONNECTIONS: usize = 8;

impl Target {
    fn new(kubeconfig: &std::path::Path, process: Option<u32>) -> Result<Self, Failure> {
        let config = Config::from_kubeconfig(kubeconfig)?;
        let clients: Result<_, _> = (0..CONNECTIONS).map(|_| Client::https(config.clone())).collect();
        Ok(Self { clients: clients?, config, process, scale: scale() })
    }

    fn client(&self) -> &Client {
        &self.clients[0]
    }

    fn scaled(&self, count: usize) -> usize {
        // At least enough for a percentile to mean something.
        ((count as f64 * self.scale) as usize).max(100)
    }
}

fn scale() -> f64 {
    std::env::var("BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if let Some(kubeconfig) = std::env::var_os("PEER_KUBECONFIG") {
        let target = Target::new(std::path::Path::new(&kubeconfig), None)?;
        if std::env::var("BENCH_ONLY").is_ok_and(|part| part == "custom") {
            return custom::measure(&target).await;
        }
        requests(&target).await?;
        return writes(&target).await;
    }
    // One part alone: `BENCH_ONLY=node`; of the scheduler's part only the workloads named as arguments.
    let only = std::env::var("BENCH_ONLY").ok();
    if only.as_deref().is_none_or(|part| part == "server") {
        whole_control_plane().await?;
        api_server().await?;
    }
    if only.as_deref().is_none_or(|part| part == "wire") {
        // A server of its own: what it keeps of old versions is not to be counted among 100,000 pods.
        let mut server = Server::start(start(&ALONE)).await;
        writes(&Target::new(&server.kubeconfig(), server.id())?).await?;
        server.stop().await;
    }
    if only.as_deref().is_none_or(|part| part == "custom") {
        let mut server = Server::start(start(&ALONE)).await;
        custom::measure(&Target::new(&server.kubeconfig(), server.id())?).await?;
        server.stop().await;
    }
    if only.as_deref().is_none_or(|part| part == "node") {
        node::run().await?;
    }
    if only.as_deref().is_none_or(|part| part == "storage") {
        storage::run(scale()).await?;
        attachments::run(scale()).await?;
    }
    if only.as_deref().is_none_or(|part| part == "kubectl") {
        kubectl::run().await?;
    }
    if only.as_deref().is_none_or(|part| part == "stalls") {
        stalls::run().await?;
    }
    if only.as_deref().is_none_or(|part| part == "services") {
        services::measure().await?;
    }
    if only.as_deref().is_none_or(|part| part == "netpol") {
        netpol::measure().await?;
    }
    if only.as_deref().is_none_or(|part| part == "scheduler") {
        let workloads: Vec<String> = std::env::args().skip(1).collect();
        scheduler::all(&workloads).await?;
    }
    if only.as_deref().is_none_or(|part| part == "gauntlet") {
        gauntlet::run().await?;
    }
    if only.as_deref().is_none_or(|part| part == "controllers") {
        controllers::all(scale()).await?;
    }
    Ok(())
}

fn binary() -> std::path::PathBuf {
    // `make bench` builds both into one directory.
    std::env::current_exe().expect("a program knows where it is").with_file_name("trireme")
}

fn start(arguments: &[&str]) -> ServerOptions {
    ServerOptions { binary: binary(), arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() }
}

/// Start-up and idle memory of everything in one process.
async fn whole_control_plane() -> Result<(), Failure> {
    let begun = std::time::Instant::now();
    let mut server = Server::start(start(&["--disable-agent"])).await;
    Line::new("ready_empty").figure("ms", begun.elapsed().as_secs_f64() * 1e3).at_most("ms", 200.0).print();
    wire::openapi(&server.client()).await?;
    // Freed pages go back to the system within seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let id = server.id().ok_or("the server is gone")?;
    Line::new("idle_memory")
        .figure("megabytes", resident_megabytes(id)?)
        .figure("private_megabytes", private_megabytes(id)?)
        .at_most("megabytes", 40.0)
        .print();
    server.stop().await;
    Ok(())
}

/// An API server and its store, nothing else.
const ALONE: [&str; 3] = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"];

/// Requests, watches and memory of the API server and its store.
async fn api_server() -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    let target = Target::new(&server.kubeconfig(), server.id())?;
    requests(&target).await?;
    watches::idle(&target).await?;

    // Together with those of the benches before.
    let count = target.scaled(100_000);
    pods::fill(&target, "full", count - target.scaled(pods::CREATES) - target.scaled(pods::LISTED)).await?;
    let id = server.id().ok_or("the server is gone")?;
    // Freed pages go back within a second or two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Line::new("memory_full")
        .figure("pods", count as f64)
        .figure("megabytes", resident_megabytes(id)?)
        .at_most("megabytes", 600.0)
        .print();
    drop(target);
    server.stop().await;
    let begun = std::time::Instant::now();
    server.spawn();
    server.ready().await;
    Line::new("ready_full")
        .figure("pods", count as f64)
        .figure("ms", begun.elapsed().as_secs_f64() * 1e3)
        .at_most("ms", 1000.0)
        .print();
    server.stop().await;
    Ok(())
}

/// What can be measured of any API server.
async fn requests(target: &Target) -> Result<(), Failure> {
    let spaces = ["bench-create", "bench-list", "bench-watch", "bench-idle", "full"];
    for space in spaces {
        pods::space(target.client(), space).await?;
    }
    pods::creates(target, "bench-create").await?;
    pods::gets(target, "bench-create").await?;
    pods::lists(target, "bench-list").await?;
    wire::protobuf_lists(target, "bench-list").await?;
    watches::fan_out(target, "bench-watch").await?;
    clean(target, &spaces).await
}

async fn writes(target: &Target) -> Result<(), Failure> {
    let spaces = ["bench-wire"];
    pods::space(target.client(), spaces[0]).await?;
    wire::patches(target, spaces[0]).await?;
    clean(target, &spaces).await
}

/// Leaves another server as it was; our own is gone with its directory.
async fn clean(target: &Target, spaces: &[&str]) -> Result<(), Failure> {
    if target.process.is_none() {
        for space in spaces {
            target.client().delete::<Namespace>("", space, &DeleteOptions::default()).await?;
        }
    }
    Ok(())
}
