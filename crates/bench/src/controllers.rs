//! The controllers at scale: how fast a Deployment becomes pods, what an idle cluster costs, how fast a cascade goes.
//!
//! The scheduler is off and there are no nodes, so that the figures are the controllers' and the API server's alone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Event, Gvr, ListParams, Propagation, WatchParams};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use testkit::Server;
use testkit::build::{Build as _, deployment};

use crate::process::cpu_seconds;
use crate::report::Line;
use crate::{Failure, pods, start};

const SPACE: &str = "bench-controllers";
/// How long the idle cluster is watched.
const IDLE: Duration = Duration::from_secs(10);

/// All figures of the controllers.
pub async fn all(scale: f64) -> Result<(), Failure> {
    let count = |wanted: usize| ((wanted as f64 * scale) as usize).max(10);
    let mut server = Server::start(start(&["--disable-agent", "--disable-scheduler"])).await;
    let client = server.client();
    pods::space(&client, SPACE).await?;
    let process = server.id().ok_or("the server is gone")?;

    let alone = median_rollout(&client, "bench-alone").await?;
    let replicas = count(1_000);
    let took = rollout(&client, SPACE, "thousand", replicas).await?;
    Line::new("deployment_to_pods")
        .figure("replicas", replicas as f64)
        .figure("seconds", took.as_secs_f64())
        .at_most("seconds", 1.0)
        .print();
    cascade(&client, "thousand", replicas, None).await?;

    let sets = count(1_000);
    let begun = Instant::now();
    let mut making = futures::stream::iter(0..sets)
        .map(|number| {
            let client = client.clone();
            async move { client.create(&deployment(&format!("d{number}"), 10).in_namespace(SPACE)).await }
        })
        .buffer_unordered(64);
    while making.try_next().await?.is_some() {}
    follow(&client, SPACE, "d", sets * 10, true).await?;
    let made = begun.elapsed();
    settled(&client).await?;
    idle(&client, process, sets, made).await?;

    let crowded = median_rollout(&client, "bench-crowded").await?;
    Line::new("reconcile_cost")
        .figure("alone_ms", alone.as_secs_f64() * 1e3)
        .figure("among_many_ms", crowded.as_secs_f64() * 1e3)
        // Small times vary; what must not be seen is a cost that grew with the ten thousand others.
        .at_most("among_many_ms", (alone.as_secs_f64() * 1e3 * 1.5).max(20.0))
        .print();

    namespace(&client, count(1_000)).await?;
    let replicas = count(10_000);
    rollout(&client, SPACE, "large", replicas).await?;
    cascade(&client, "large", replicas, Some(5.0)).await?;
    server.stop().await;
    Ok(())
}

/// Creates a Deployment and waits for the last of its pods; says how long that took.
async fn rollout(client: &Client, space: &str, name: &str, replicas: usize) -> Result<Duration, Failure> {
    let begun = Instant::now();
    client.create(&deployment(name, i32::try_from(replicas)?).in_namespace(space)).await?;
    follow(client, space, name, replicas, true).await?;
    Ok(begun.elapsed())
}

/// How long a Deployment of ten takes, most of the time: one number of a few milliseconds says nothing. It has a namespace of
/// its own, or else the watch that follows it would begin with all pods there are.
async fn median_rollout(client: &Client, space: &str) -> Result<Duration, Failure> {
    pods::space(client, space).await?;
    let mut all = Vec::new();
    for number in 0..15 {
        all.push(rollout(client, space, &format!("d{number}"), 10).await?);
    }
    all.sort_unstable();
    Ok(all[all.len() / 2])
}

/// Creates a namespace with so many objects of five kinds and waits until nothing of it is left.
async fn namespace(client: &Client, objects: usize) -> Result<(), Failure> {
    const DOOMED: &str = "bench-doomed";
    pods::space(client, DOOMED).await?;
    let kinds = ["configmaps", "secrets", "serviceaccounts", "endpoints", "podtemplates"];
    let of_kind = |kind: &'static str, number: usize| {
        let mut object = json!({"metadata": {"name": format!("o{number}"), "namespace": DOOMED}});
        if kind == "podtemplates" {
            object["template"] = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        }
        (kind, object)
    };
    let all = (0..objects).map(|number| of_kind(kinds[number % kinds.len()], number));
    let mut making = futures::stream::iter(all)
        .map(|(kind, object)| {
            let resource = client.dynamic(&Gvr::new("", "v1", kind));
            async move { resource.create(DOOMED, &object).await }
        })
        .buffer_unordered(64);
    while making.try_next().await?.is_some() {}
    let namespaces = client.dynamic(&Gvr::new("", "v1", "namespaces"));
    let params = WatchParams { send_initial_events: true, bookmarks: true, ..WatchParams::default() };
    let mut events = namespaces.watch_metadata("", &params).await?;
    let begun = Instant::now();
    client.delete::<Namespace>("", DOOMED, &DeleteOptions::default()).await?;
    while let Some(event) = events.next().await {
        if matches!(event?, Event::Deleted(gone) if gone.metadata.name.as_deref() == Some(DOOMED)) {
            Line::new("namespace_deletion")
                .figure("objects", objects as f64)
                .figure("seconds", begun.elapsed().as_secs_f64())
                .at_most("seconds", 5.0)
                .print();
            return Ok(());
        }
    }
    Err("the watch ended".into())
}

/// Deletes a Deployment and waits until the last of its pods is gone.
async fn cascade(client: &Client, name: &str, replicas: usize, wanted: Option<f64>) -> Result<(), Failure> {
    let begun = Instant::now();
    let options = DeleteOptions { propagation_policy: Some(Propagation::Background), ..DeleteOptions::default() };
    client.delete::<Deployment>(SPACE, name, &options).await?;
    follow(client, SPACE, name, 0, false).await?;
    if let Some(wanted) = wanted {
        Line::new("cascade")
            .figure("pods", replicas as f64)
            .figure("seconds", begun.elapsed().as_secs_f64())
            .at_most("seconds", wanted)
            .print();
    }
    Ok(())
}

/// Waits until at least, or at most, so many pods have names that begin like this.
async fn follow(client: &Client, space: &str, prefix: &str, count: usize, at_least: bool) -> Result<(), Failure> {
    let pods = client.dynamic(&Gvr::new("", "v1", "pods"));
    let mut present: HashSet<String> = HashSet::new();
    let params = WatchParams { send_initial_events: true, bookmarks: true, ..WatchParams::default() };
    let mut events = pods.watch_metadata(space, &params).await?;
    let mut complete = false;
    while let Some(event) = events.next().await {
        match event? {
            Event::Added(pod) | Event::Modified(pod) => {
                let name = pod.metadata.name.clone().unwrap_or_default();
                if name.starts_with(prefix) {
                    present.insert(name);
                }
            }
            Event::Deleted(pod) => drop(present.remove(pod.metadata.name.as_deref().unwrap_or_default())),
            Event::Bookmark { initial_events_end, .. } => complete |= initial_events_end,
            Event::Undecodable { object, .. } => return Err(object.error.into()),
        }
        let met = if at_least { present.len() >= count } else { complete && present.len() <= count };
        if met {
            return Ok(());
        }
    }
    Err("the watch ended".into())
}

async fn revision(client: &Client) -> Result<String, Failure> {
    let params = ListParams { limit: Some(1), ..ListParams::default() };
    Ok(client.dynamic(&Gvr::new("", "v1", "namespaces")).list("", &params).await?.revision)
}

/// Waits until nothing is written for a second.
async fn settled(client: &Client) -> Result<(), Failure> {
    let mut before = revision(client).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = revision(client).await?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

async fn idle(client: &Client, process: u32, sets: usize, made: Duration) -> Result<(), Failure> {
    let (before, used) = (revision(client).await?, cpu_seconds(process)?);
    tokio::time::sleep(IDLE).await;
    let (after, used) = (revision(client).await?, cpu_seconds(process)? - used);
    let writes = after.parse::<f64>()? - before.parse::<f64>()?;
    Line::new("idle_at_scale")
        .figure("deployments", sets as f64)
        .figure("pods", sets as f64 * 10.0)
        .figure("made_in_seconds", made.as_secs_f64())
        .figure("percent_of_a_core", used / IDLE.as_secs_f64() * 100.0)
        .figure("writes", writes)
        .at_most("percent_of_a_core", 1.0)
        .at_most("writes", 0.0)
        .print();
    Ok(())
}
