//! Three servers on an etcd of three members, on machines of their own (network namespaces of this one): ours, each with a member that it looks after, and beside them
//! upstream's, with the same etcd, with TLS between all, and with a controller manager and a scheduler on each machine.
//!
//! The client is the one of `versus`, its four connections to each server. What is lost is the machine that leads: everything on it is killed at once, and
//! what counts is when a pod that is created right then has a node. Nodes are hollow. How long a server and a node take to join is said of ours alone: upstream
//! has nothing that does it. Elections within etcd have the same timing on both sides, those of schedulers each side's defaults. Whether the machine that is lost
//! also leads etcd is not arranged: of ours it mostly does, for it was there first; of upstream's, whose members begin together, by chance.

mod ours;
mod theirs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use devnet::{Layout, Machine};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, PostParams};
use tokio::process::Command;

use crate::report::Line;
use crate::versus::bind::{self, Bound};
use crate::versus::outside::{Outside, eventually};
use crate::{Failure, Options, binary, process};
use ours::Ours;
use theirs::Theirs;

const SPACE: &str = "bench-servers";
const WRITES: usize = 3_000;
const LISTS: usize = 30;
const CHANGES: usize = 300;
const NODES: usize = 10;
/// How often something is asked for that takes seconds to come about.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);
const PORT: u16 = 6443;

/// Whose servers; the first one leads.
enum Trio {
    Ours(Ours),
    Theirs(Theirs),
}

impl Trio {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "trireme",
            Self::Theirs(_) => "upstream",
        }
    }

    fn kubeconfig(&self, number: usize) -> PathBuf {
        match self {
            Self::Ours(ours) => ours.kubeconfig(number),
            Self::Theirs(theirs) => theirs.kubeconfig(number),
        }
    }

    /// The processes of a machine, each with its name.
    fn processes(&self, number: usize) -> Vec<(&'static str, u32)> {
        match self {
            Self::Ours(ours) => ours.processes(number),
            Self::Theirs(theirs) => theirs.processes(number),
        }
    }

    /// A line about one figure.
    fn line(&self, figure: &str) -> Line {
        Line::new("servers").text("side", self.name()).text("figure", figure)
    }
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sides = [None].into_iter().chain(options.peer_bin.as_deref().map(Some));
    for upstream in sides {
        let range = format!("198.19.{}.0/24", 60 + std::process::id() % 60).parse()?;
        let layout = Layout::new(&format!("b{}", std::process::id() % 100_000), 4, range, false)?;
        devnet::make(&layout).await?;
        let measured = side(&layout, upstream, options).await;
        devnet::remove(&layout.name).await?;
        measured?;
    }
    Ok(())
}

async fn side(layout: &Layout, upstream: Option<&Path>, options: &Options) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let mut trio = match upstream {
        Some(programs) => Trio::Theirs(Theirs::start(programs, &layout.machines[..3], home.path()).await?),
        None => Trio::Ours(Ours::start(&layout.machines[..3], options.peer_bin.as_deref()).await?),
    };
    let measured = async {
        requests(&trio, options).await?;
        memory(&trio)?;
        if let Trio::Ours(ours) = &trio {
            ours.joins(&layout.machines[3], home.path()).await?;
        }
        loss(&trio).await
    };
    let measured = measured.await;
    match &mut trio {
        Trio::Ours(ours) => ours.stop().await,
        Trio::Theirs(theirs) => theirs.stop().await,
    }
    measured
}

/// Writes through all servers at once, lists of what was written, and how soon another server tells of a write.
async fn requests(trio: &Trio, options: &Options) -> Result<(), Failure> {
    let mut all = Vec::new();
    for number in 0..3 {
        all.push(Outside::connect(&trio.kubeconfig(number)).await?);
    }
    all[0].space(SPACE).await?;
    let count = options.scaled(WRITES, 300) / 3;
    let begun = Instant::now();
    let writing = all.iter().enumerate().map(|(server, outside)| {
        outside.load(count, move |client, number| async move {
            let map = testkit::build::config_map(&format!("s{server}-{number}"), "k", &"v".repeat(100));
            let map = ConfigMap { metadata: kube::api::ObjectMeta { namespace: None, ..map.metadata }, ..map };
            Api::<ConfigMap>::namespaced(client, SPACE).create(&PostParams::default(), &map).await.map(drop)
        })
    });
    let runs = futures::future::try_join_all(writing).await?;
    let rate = (3 * count) as f64 / begun.elapsed().as_secs_f64();
    let mut latencies: Vec<Duration> = runs.into_iter().flat_map(|run| run.latencies).collect();
    trio.line("writes")
        .figure("objects", (3 * count) as f64)
        .figure("per_second", rate)
        .latencies(&mut latencies)
        .print();

    let path = format!("/api/v1/namespaces/{SPACE}/configmaps");
    let mut latencies = Vec::new();
    for outside in all.iter().cycle().take(LISTS) {
        let begun = Instant::now();
        outside.read(&path).await?;
        latencies.push(begun.elapsed());
    }
    trio.line("list").figure("objects", (3 * count) as f64).latencies(&mut latencies).print();
    watch(trio, &all, options.scaled(CHANGES, 50)).await
}

/// From a create at one server to its event at another, one after the other.
async fn watch(trio: &Trio, all: &[Outside], changes: usize) -> Result<(), Failure> {
    let list: Api<ConfigMap> = Api::namespaced(all[1].client(), SPACE);
    let from = list.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let path = format!("/api/v1/namespaces/{SPACE}/configmaps?watch=true&resourceVersion={from}");
    let mut lines = all[1].watch(&path, "application/json").await?;
    let (mut latencies, mut seen) = (Vec::new(), 0);
    let writer: Api<ConfigMap> = Api::namespaced(all[0].client(), SPACE);
    for number in 0..changes {
        let map = testkit::build::config_map(&format!("watched-{number}"), "k", "v");
        let map = ConfigMap { metadata: kube::api::ObjectMeta { namespace: None, ..map.metadata }, ..map };
        let begun = Instant::now();
        writer.create(&PostParams::default(), &map).await?;
        while seen <= number {
            lines.next(|line| seen += usize::from(line.starts_with(b"{\"type\":\"ADDED\""))).await?;
        }
        latencies.push(begun.elapsed());
    }
    trio.line("create_to_event_at_another_server").latencies(&mut latencies).print();
    Ok(())
}

fn memory(trio: &Trio) -> Result<(), Failure> {
    let processes: Vec<_> = (0..3).flat_map(|number| trio.processes(number)).collect();
    let mut names: Vec<&str> = processes.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mut sizes = Vec::new();
        for (_, id) in processes.iter().filter(|(other, _)| *other == name) {
            sizes.push(process::resident_megabytes(*id)?);
        }
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        trio.line("memory").text("process", name).figure("megabytes_each", mean).print();
    }
    Ok(())
}

/// The machine of the leaders is gone; when a pod that is made right then has a node.
async fn loss(trio: &Trio) -> Result<(), Failure> {
    let survivor = Outside::connect(&trio.kubeconfig(2)).await?;
    let _hollow = Command::new(binary())
        .args(["hollow-node", "--count", &NODES.to_string(), "--kubeconfig"])
        .arg(trio.kubeconfig(2))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let nodes: Api<Node> = Api::all(survivor.client());
    eventually("nodes are ready", LOOK * 10, async || Ok(bind::ready(&nodes).await? >= NODES)).await?;
    let mut bound = Bound::watch(&survivor, SPACE).await?;
    bind::create(&survivor, SPACE, "before", 1, "100m").await?;
    bound.reach(1).await?;
    let leases: Api<Lease> = Api::namespaced(survivor.client(), "kube-system");
    let holder = async || {
        let lease = leases.get("kube-scheduler").await?;
        Ok::<_, Failure>(lease.spec.and_then(|spec| spec.holder_identity))
    };
    let before = holder().await?;

    let lost: Vec<String> = trio.processes(0).into_iter().map(|(_, id)| id.to_string()).collect();
    let begun = Instant::now();
    Command::new("kill").arg("-KILL").args(lost).status().await?;
    let creating = async {
        while let Err(error) = bind::create(&survivor, SPACE, "after", 1, "100m").await {
            // Of a write that was answered with an error nobody knows whether it was made.
            if matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 409) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, creating).await.map_err(|_| "nothing can be written any more")?;
    let written = begun.elapsed();
    bound.reach(2).await?;
    let took = begun.elapsed();
    let line = trio.line("loss_of_the_leading_machine").figure("first_write_ms", written.as_secs_f64() * 1e3);
    let line = line.figure("first_bind_ms", took.as_secs_f64() * 1e3);
    // It is a figure of the schedulers' leases only where the one that was lost had it.
    line.text("led", if holder().await? == before { "another" } else { "it" }).print();
    Ok(())
}

/// A command on a machine. `nsenter` becomes the program, so its process id is the program's.
fn on(machine: &Machine, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace)).arg(program).kill_on_drop(true);
    command
}
