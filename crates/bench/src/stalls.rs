//! Whether anybody waits for somebody else's work: large requests of every kind beside small ones, and how late the server's own threads are
//! while many pods start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Config, Event, WatchParams};
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use testkit::Server;

use crate::load::{self, JSON, Media};
use crate::report::Line;
use crate::{Failure, start};

/// Elements of each large request.
const ELEMENTS: usize = 20_000;
/// Clients that send them.
const SENDERS: usize = 4;
const WHILE: Duration = Duration::from_secs(15);
/// Objects that the lists with selectors look through.
const LISTED: usize = 5_000;

/// A large request, and what it is called.
struct Large {
    name: &'static str,
    method: Method,
    path: &'static str,
    content: &'static str,
    accept: &'static str,
    body: Option<Bytes>,
}

impl Large {
    async fn send(&self, client: &Client) -> Result<(), Failure> {
        let media = Media { accept: self.accept, content: self.content, gzip: false };
        load::send_as(client, media, self.method.clone(), self.path, self.body.clone()).await.map(drop)
    }
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn finalizers(letter: char, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("example.com/{letter}{number}")).collect()
}

/// One of every kind, all of them for show: nothing is written.
fn all() -> Vec<Large> {
    let (old, new) = (finalizers('a', ELEMENTS / 2), finalizers('b', ELEMENTS));
    let order: Vec<&String> = new.iter().chain(&old).collect();
    let merge = json!({"metadata": {
        "finalizers": new, "$setElementOrder/finalizers": order, "$deleteFromPrimitiveList/finalizers": old,
    }});
    let ports: Vec<Value> =
        (1..=ELEMENTS).map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"})).collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "big"}, "spec": {"ports": ports}});
    let desired = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big", "finalizers": new}});
    let steps: Vec<Value> = (0..10_000)
        .map(|step| json!({"op": "add", "path": "/metadata/finalizers/0", "value": format!("example.com/c{step}")}))
        .collect();
    let variables: Vec<Value> = (0..ELEMENTS).map(|at| json!({"name": format!("E{at}"), "value": "x"})).collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": variables}]}});
    let data: serde_json::Map<String, Value> = (0..ELEMENTS).map(|at| (format!("k{at}"), json!("x"))).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "keys"}, "data": data});
    let owners: Vec<Value> = (0..10_000)
        .map(|at| json!({"manager": format!("m{at}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}))
        .collect();
    let owned =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "managedFields": owners}});
    let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let write = |name, method, path, content, body: Value| Large {
        name,
        method,
        path,
        content,
        accept: JSON.accept,
        body: Some(Bytes::from(body.to_string())),
    };
    let big = "/api/v1/namespaces/default/configmaps/big?dryRun=All&fieldManager=bench&force=true";
    let patched = "/api/v1/namespaces/default/configmaps/big?dryRun=All";
    let applied = "/api/v1/namespaces/default/services/big?dryRun=All&fieldManager=bench";
    vec![
        write("strategic_patch", Method::PATCH, patched, STRATEGIC, merge),
        write("json_patch", Method::PATCH, patched, "application/json-patch+json", json!(steps)),
        write(
            "create_service",
            Method::POST,
            "/api/v1/namespaces/default/services?dryRun=All",
            JSON.content,
            service.clone(),
        ),
        write("apply_service", Method::PATCH, applied, APPLY, service),
        write("apply_finalizers", Method::PATCH, big, APPLY, desired),
        write("create_pod", Method::POST, "/api/v1/namespaces/default/pods?dryRun=All", JSON.content, pod),
        write("create_map", Method::POST, maps, JSON.content, map),
        write("create_owned", Method::POST, maps, JSON.content, owned),
        Large {
            name: "list_table",
            method: Method::GET,
            path: "/api/v1/namespaces/listed/configmaps?labelSelector=even%20in%20(yes),number%20notin%20(1,2,3)",
            content: JSON.content,
            accept: TABLE,
            body: None,
        },
    ]
}

/// All of it; the second part needs a node.
pub async fn run() -> Result<(), Failure> {
    let mut server = Server::start(start(&["--disable-agent"])).await;
    beside(&server).await?;
    server.stop().await;
    crate::node::stalls().await
}

/// Small requests beside large ones.
async fn beside(server: &Server) -> Result<(), Failure> {
    let config = Config::from_kubeconfig(server.kubeconfig())?;
    let client = Client::https(config.clone())?;
    let body = |tree: Value| Some(Bytes::from(tree.to_string()));
    let big = json!({"metadata": {"name": "big", "finalizers": finalizers('a', ELEMENTS / 2)}});
    load::send(&client, Method::POST, "/api/v1/namespaces/default/configmaps", body(big)).await?;
    load::send(&client, Method::POST, "/api/v1/namespaces", body(json!({"metadata": {"name": "listed"}}))).await?;
    for number in 0..LISTED {
        let even = if number % 2 == 0 { "yes" } else { "no" };
        let labels = json!({"even": even, "number": number.to_string()});
        let map = json!({"metadata": {"name": format!("m{number}"), "labels": labels}});
        load::send(&client, Method::POST, "/api/v1/namespaces/listed/configmaps", body(map)).await?;
    }
    let large = Arc::new(all());
    let mut line = Line::new("large_requests");
    for one in large.iter() {
        let sent = Instant::now();
        one.send(&client).await?;
        line = line.figure(&format!("{}_ms", one.name), sent.elapsed().as_secs_f64() * 1e3);
    }
    line.print();

    let over = Arc::new(AtomicBool::new(false));
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..SENDERS {
        let (large, over, client) = (large.clone(), over.clone(), Client::https(config.clone())?);
        senders.spawn(async move {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                large[(sent + 2 * sender) % large.len()].send(&client).await?;
                sent += 1;
            }
            Ok::<_, Failure>(sent)
        });
    }
    let get = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let (gets, health, dials, watched) = tokio::join!(
        timed(&config, get, false),
        timed(&config, "/livez", false),
        timed(&config, "/livez", true),
        watched(&config),
    );
    over.store(true, Ordering::Relaxed);
    let mut sent = 0;
    while let Some(sender) = senders.join_next().await {
        sent += sender??;
    }
    for (name, latencies) in [("get", gets), ("livez", health), ("livez_new_connection", dials), ("watch", watched)] {
        Line::new(&format!("{name}_beside_large_requests"))
            .figure("large", sent as f64)
            .latencies(&mut latencies?)
            .at_most("p99_ms", 50.0)
            .print();
    }
    let text = String::from_utf8_lossy(&client.raw("/metrics").await?).into_owned();
    Line::new("stall_beside_large_requests").figure("longest_ms", longest(&text, "workers") * 1e3).print();
    Ok(())
}

/// GETs one after the other, on one connection or each on its own.
async fn timed(config: &Config, path: &str, dials: bool) -> Result<Vec<Duration>, Failure> {
    let mut client = Client::https(config.clone())?;
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < WHILE {
        if dials {
            client = Client::https(config.clone())?;
        }
        let sent = Instant::now();
        load::send(&client, Method::GET, path, None).await?;
        latencies.push(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(latencies)
}

/// From a small create to its event.
async fn watched(config: &Config) -> Result<Vec<Duration>, Failure> {
    let client = Client::https(config.clone())?;
    let mut events = client.watch::<ConfigMap>("kube-public", &WatchParams::default()).await?;
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < WHILE {
        let name = format!("w{}", latencies.len());
        let body = Bytes::from(json!({"metadata": {"name": name}}).to_string());
        let sent = Instant::now();
        load::send(&client, Method::POST, "/api/v1/namespaces/kube-public/configmaps", Some(body)).await?;
        loop {
            match events.next().await.ok_or("the watch ended")?? {
                Event::Added(map) if map.metadata.name.as_ref() == Some(&name) => break,
                _ => {}
            }
        }
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// The longest stall of a runtime since its start, in seconds.
pub fn longest(metrics: &str, runtime: &str) -> f64 {
    let name = format!("trireme_runtime_longest_stall_seconds{{runtime=\"{runtime}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0.0)
}

/// Below which bound all stalls of a runtime lay that were counted between two readings, in seconds.
pub fn bound(before: &str, after: &str, runtime: &str) -> f64 {
    let name = format!("trireme_runtime_stall_seconds_bucket{{runtime=\"{runtime}\",le=\"");
    let counts = |text: &str| -> Vec<(f64, f64)> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(&name)?.split_once("\"} "));
        lines.filter_map(|(bound, count)| Some((bound.parse().unwrap_or(f64::INFINITY), count.parse().ok()?))).collect()
    };
    let (before, after) = (counts(before), counts(after));
    let grown: Vec<(f64, f64)> = after
        .iter()
        .map(|(bound, count)| {
            let earlier = before.iter().find(|(other, _)| other == bound).map_or(0.0, |(_, count)| *count);
            (*bound, count - earlier)
        })
        .collect();
    let all = grown.last().map_or(0.0, |(_, count)| *count);
    grown.iter().find(|(_, count)| *count >= all).map_or(0.0, |(bound, _)| *bound)
}

/// The figures of a server on this machine.
pub async fn figures(kubeconfig: &Path) -> Result<String, Failure> {
    let client = Client::https(Config::from_kubeconfig(kubeconfig)?)?;
    Ok(String::from_utf8_lossy(&client.raw("/metrics").await?).into_owned())
}
