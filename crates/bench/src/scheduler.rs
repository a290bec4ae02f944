//! Scheduling, in the style of upstream's scheduler_perf: alone, and from create to bound through a real API server.
//!
//! Upstream's own thresholds, on six cores, are 680 pods/s for plain pods, 540 with node affinity, 460 spread, 160 and 70 with
//! preferred and required affinity, 180 with anti-affinity, 570 beside pods that preempt and 590 beside pods that cannot be
//! scheduled; wanted is five times that, and 3,000 for plain pods. Beside the rate stands the processor time that the server
//! took, which a busy machine does not change. `--only scheduler` runs only this, and arguments only the workloads
//! that they name: `plain` through the API server, `alone_plain` without it, `alone` all of them without it.

mod alone;
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use futures::StreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use serde_json::{Value, json};
use testkit::Server;
use tokio::sync::Notify;

use crate::process::cpu_seconds;
use crate::report::Line;
use crate::{Failure, Options, Target, load, pods, start};
use workload::{WORKLOADS, Workload};

/// How long a workload may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the named workloads, or all of them.
pub async fn all(options: &Options) -> Result<(), Failure> {
    let named = &options.workloads;
    let is_named = |name: &str| named.is_empty() || named.iter().any(|n| n == name);
    alone::all(|name| is_named("alone") || named.iter().any(|n| n.strip_prefix("alone_") == Some(name)));
    for workload in WORKLOADS.iter().filter(|w| is_named(w.name)) {
        through_api(workload, options).await?;
    }
    Ok(())
}

async fn through_api(workload: &Workload, options: &Options) -> Result<(), Failure> {
    // Controllers would add to the load what is not the scheduler's.
    let mut server = Server::start(start(&["--disable-agent", "--disable-controller-manager"])).await;
    let target = Target::new(&server.kubeconfig(), server.id(), options.scale)?;
    let process = server.id().ok_or("the server is gone")?;
    let nodes = target.scaled(workload.nodes);
    add_nodes(&target, nodes).await?;
    for space in ["init", "measured", "churn"] {
        pods::space(target.client(), space).await?;
    }
    let class = json!({ "metadata": { "name": "high" }, "value": 1000 });
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    load::send(target.client(), Method::POST, classes, Some(bytes(&class))).await?;
    let init = (workload.init)(nodes);
    let settled = Bound::watch(target.client(), "init").await?;
    add_pods(&target, "init", init.count, init.pod).await?;
    if init.is_schedulable {
        settled.reach(init.count).await?;
    }
    let bound = Bound::watch(target.client(), "measured").await?;
    let count = target.scaled(workload.pods);
    let churn = workload.churn.map(|pod| tokio::spawn(churn(target.client().clone(), pod)));
    let (began, used) = (Instant::now(), cpu_seconds(process)?);
    add_pods(&target, "measured", count, workload.pod).await?;
    let created = began.elapsed().as_secs_f64();
    bound.reach(count).await?;
    let (took, used) = (began.elapsed().as_secs_f64(), cpu_seconds(process)? - used);
    if let Some(churn) = churn {
        churn.abort();
    }
    let line = Line::new(&format!("schedule_{}", workload.name))
        .figure("nodes", nodes as f64)
        .figure("pods", count as f64)
        .figure("per_second", count as f64 / took)
        .figure("created_per_second", count as f64 / created)
        .figure("server_cpu_ms_per_pod", used * 1e3 / count as f64);
    match workload.wanted {
        Some(wanted) => line.at_least("per_second", wanted),
        None => line,
    }
    .print();
    drop(target);
    server.stop().await;
    Ok(())
}

/// Makes nodes that are ready: with room, and without the taint that new nodes carry.
async fn add_nodes(target: &Target, count: usize) -> Result<(), Failure> {
    let name = |number: usize| format!("node-{number}");
    let whole = move |number: usize| workload::node(&name(number), number);
    let make = move |number: usize| (Method::POST, "/api/v1/nodes".to_owned(), Some(bytes(&whole(number))));
    load::run(target, count, Arc::new(make)).await?;
    let status = move |number: usize| {
        (Method::PUT, format!("/api/v1/nodes/{}/status", name(number)), Some(bytes(&whole(number))))
    };
    load::run(target, count, Arc::new(status)).await?;
    let untainted =
        move |number: usize| (Method::PUT, format!("/api/v1/nodes/{}", name(number)), Some(bytes(&whole(number))));
    load::run(target, count, Arc::new(untainted)).await?;
    Ok(())
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

async fn add_pods(target: &Target, space: &'static str, count: usize, pod: fn(usize) -> Value) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    let path = format!("/api/v1/namespaces/{space}/pods");
    let make = move |number: usize| (Method::POST, path.clone(), Some(bytes(&pod(number))));
    load::run(target, count, Arc::new(make)).await?;
    Ok(())
}

/// Makes pods at upstream's pace, until it is stopped.
async fn churn(client: Client, pod: fn(usize) -> Value) {
    let mut pace = tokio::time::interval(workload::CHURN);
    for number in 0.. {
        pace.tick().await;
        let body = bytes(&pod(number));
        if let Err(error) = load::send(&client, Method::POST, "/api/v1/namespaces/churn/pods", Some(body)).await {
            eprintln!("the churn ends: {error}");
            return;
        }
    }
}

/// Counts the pods of a namespace that got a node, by the events of a watch that shows no others and nothing but metadata.
struct Bound {
    count: Arc<AtomicUsize>,
    changed: Arc<Notify>,
    watch: tokio::task::JoinHandle<()>,
}

impl Bound {
    async fn watch(client: &Client, space: &str) -> Result<Self, Failure> {
        let path = format!("/api/v1/namespaces/{space}/pods?watch=1&fieldSelector=spec.nodeName!%3D");
        let request = http::Request::builder()
            .method(Method::GET)
            .uri(path)
            .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
            .body(Body::Empty)?;
        let response = client.request(request).await?;
        let Payload::Stream(mut chunks) = response.into_body() else { return Err("no watch".into()) };
        let (count, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, notify) = (count.clone(), changed.clone());
        let watch = tokio::spawn(async move {
            // An event is a line; a chunk may end anywhere.
            let mut line = Vec::new();
            while let Some(Ok(chunk)) = chunks.next().await {
                for byte in chunk {
                    if byte == b'\n' {
                        if line.starts_with(b"{\"type\":\"ADDED\"") {
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                        line.clear();
                    } else if line.len() < 64 {
                        line.push(byte);
                    }
                }
                notify.notify_waiters();
            }
            notify.notify_waiters();
        });
        Ok(Self { count, changed, watch })
    }

    /// Waits until so many have a node.
    async fn reach(self, wanted: usize) -> Result<(), Failure> {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                let count = self.count.load(Ordering::Relaxed);
                if count >= wanted {
                    return Ok(());
                }
                if self.watch.is_finished() {
                    return Err(format!("the watch ended after {count} of {wanted} pods"));
                }
                changed.await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, reached).await;
        self.watch.abort();
        let seen = self.count.load(Ordering::Relaxed);
        outcome.map_err(|_| format!("only {seen} of {wanted} pods got a node in time"))??;
        Ok(())
    }
}
