//! The parts of the bench, in the order in which they run.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use testkit::Server;

use crate::server::{self, ALONE};
use crate::versus::upstream::Upstream;
use crate::{
    Failure, Options, Target, attachments, controllers, custom, flood, gauntlet, history, kubectl, million, netpol,
    node, page, scheduler, servers, services, stalls, start, storage, usage, versus,
};

type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// One part.
struct Part {
    name: &'static str,
    about: &'static str,
    run: for<'a> fn(&'a Options) -> Running<'a>,
}

const PARTS: &[Part] = &[
    Part {
        name: "versus",
        about: "like with like: both sides by the same outside client, everything on; upstream's with --peer-bin",
        run: |options| Box::pin(versus::run(options)),
    },
    Part {
        name: "flood",
        about: "pods that fit nowhere: what they cost and whom they disturb",
        run: |options| Box::pin(flood::run(options)),
    },
    Part {
        name: "million",
        about: "a million pods on 100,000 nodes in one server; only where it is named, for it takes long",
        run: |options| Box::pin(million::run(options)),
    },
    Part {
        name: "server",
        about: "start-up, memory, requests and watches of the API server alone",
        run: |options| {
            Box::pin(async {
                server::whole_control_plane().await?;
                server::api_server(options).await
            })
        },
    },
    Part {
        name: "servers",
        about: "three servers on an etcd of three: requests, memory, the loss of one, joins; upstream's with --peer-bin",
        run: |options| Box::pin(servers::run(options)),
    },
    Part { name: "wire", about: "patches and server-side apply", run: |options| Box::pin(wire_alone(options)) },
    Part {
        name: "custom",
        about: "custom resources; with --peer-bin both sides once more, at a scale of no more than 0.1",
        run: |options| Box::pin(custom_alone(options)),
    },
    Part { name: "node", about: "from apply to Running, and an idle node", run: |_| Box::pin(node::run()) },
    Part {
        name: "usage",
        about: "what 110 pods use: a look of the kubelet at them, and kubectl top",
        run: |options| Box::pin(usage::run(options)),
    },
    Part {
        name: "storage",
        about: "from a claim to a pod with its volume",
        run: |options| {
            Box::pin(async {
                storage::run(options.scale).await?;
                attachments::run(options.scale).await
            })
        },
    },
    Part {
        name: "kubectl",
        about: "commands of kubectl; beside another's with --peer-kubectl",
        run: |options| Box::pin(kubectl::run(options)),
    },
    Part {
        name: "history",
        about: "a day of a busy cluster in the past: its size, reads of it, starts with it",
        run: |options| Box::pin(history::run(options)),
    },
    Part {
        name: "page",
        about: "the page with a long table in a real Chromium: paint, scrolling, memory, updates",
        run: |options| Box::pin(page::run(options)),
    },
    Part { name: "stalls", about: "small requests beside large ones", run: |_| Box::pin(stalls::run()) },
    Part { name: "services", about: "Services, endpoints and DNS", run: |_| Box::pin(services::measure()) },
    Part { name: "netpol", about: "network policies", run: |_| Box::pin(netpol::measure()) },
    Part {
        name: "scheduler",
        about: "workloads of upstream's scheduler_perf, those named as arguments or all",
        run: |options| Box::pin(scheduler::all(options)),
    },
    Part {
        name: "gauntlet",
        about: "what all gates of a request cost",
        run: |options| Box::pin(gauntlet::run(options.scale)),
    },
    Part {
        name: "controllers",
        about: "Deployments at scale, idleness, cascades",
        run: |options| Box::pin(controllers::all(options.scale)),
    },
];

/// What runs only where it is named.
const NAMED_ONLY: [&str; 1] = ["million"];

/// What the parts are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// The parts as `--help` lists them.
pub fn help() -> String {
    let lines = PARTS.iter().map(|part| format!("\n  {:<12}{}", part.name, part.about));
    format!("Parts, in the order in which they run:{}", lines.collect::<String>())
}

/// Runs those that are wanted.
pub async fn run(options: &Options) -> Result<(), Failure> {
    if let Some(kubeconfig) = &options.peer_kubeconfig {
        return peer(kubeconfig, options).await;
    }
    let unnamed = |part: &Part| options.only.is_empty() && NAMED_ONLY.contains(&part.name);
    for part in PARTS.iter().filter(|part| options.wants(part.name) && !unnamed(part)) {
        (part.run)(options).await.map_err(|error| format!("{}: {error}", part.name))?;
    }
    Ok(())
}

/// What can be measured of another API server without being its host.
async fn peer(kubeconfig: &Path, options: &Options) -> Result<(), Failure> {
    let target = Target::new(kubeconfig, None, options.scale)?;
    if options.wants("server") {
        server::requests(&target).await?;
    }
    if options.wants("wire") {
        server::writes(&target).await?;
    }
    // It takes long, and leaves hundreds of definitions behind if it is stopped: only for whoever asks for it.
    if options.only.iter().any(|part| part == "custom") {
        custom::measure(&target.of("peer")).await?;
    }
    Ok(())
}

/// A server of its own: what it keeps of old versions is not to be counted among 100,000 pods.
async fn wire_alone(options: &Options) -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    server::writes(&Target::new(&server.kubeconfig(), server.id(), options.scale)?).await?;
    server.stop().await;
    Ok(())
}

/// How much of it upstream is asked at most: it takes longer for each definition the more there are.
const CUSTOM_BESIDE: f64 = 0.1;

async fn custom_alone(options: &Options) -> Result<(), Failure> {
    custom_ours(options.scale).await?;
    let Some(programs) = &options.peer_bin else { return Ok(()) };
    let scale = options.scale.min(CUSTOM_BESIDE);
    if scale < options.scale {
        custom_ours(scale).await?;
    }
    let mut upstream = Upstream::start_alone(programs).await?;
    let target = Target::new(&upstream.kubeconfig(), upstream.api_server(), scale)?;
    custom::measure(&target.of("upstream")).await?;
    upstream.stop().await;
    Ok(())
}

async fn custom_ours(scale: f64) -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    custom::measure(&Target::new(&server.kubeconfig(), server.id(), scale)?).await?;
    server.stop().await;
    Ok(())
}
