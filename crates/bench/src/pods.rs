//! Creating, reading and listing pods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use http::Method;
use serde_json::{Value, json};
use testkit::build::{Build as _, namespace, service_account};

use crate::load::{self, CONCURRENCY};
use crate::report::Line;
use crate::{Failure, Target};

/// How many pods the benches of creates and lists leave behind.
pub const CREATES: usize = 40_000;
pub const LISTED: usize = 10_000;

/// Makes a namespace in which pods can be made. A controller may be faster, or may not be there.
pub async fn space(client: &Client, name: &str) -> Result<(), Failure> {
    client.create(&namespace(name)).await?;
    match client.create(&service_account("default").in_namespace(name)).await {
        Err(error) if !error.is_already_exists() => Err(error.into()),
        _ => Ok(()),
    }
}

/// A pod of ordinary size, encoded.
pub fn pod(name: &str, annotation: &str) -> Bytes {
    Bytes::from(ordinary(name, annotation, "100m").to_string())
}

/// A pod of ordinary size: about 2.6 KB when it is served, defaults and managed fields included.
pub fn ordinary(name: &str, annotation: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "bench", "pod-template-hash": "7c5ddbdf54"},
            "annotations": {"bench/sent": annotation},
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example.com/team/application:v1.2.3",
                "args": ["--listen=:8080", "--log-level=info"],
                "env": [{"name": "SETTING", "value": "a value of some length"}],
                "ports": [{"name": "http", "containerPort": 8080}],
                "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
            }],
        },
    })
}

fn pods(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/pods")
}

/// Makes pods `p0` to `p<count>`.
pub async fn fill(target: &Target, space: &str, count: usize) -> Result<load::Run, Failure> {
    let path = pods(space);
    let make = move |number: usize| (Method::POST, path.clone(), Some(pod(&format!("p{number}"), "")));
    load::run(target, count, Arc::new(make)).await
}

pub async fn creates(target: &Target, space: &str) -> Result<(), Failure> {
    let mut run = fill(target, space, target.scaled(CREATES)).await?;
    Line::new("pod_creates")
        .figure("concurrency", CONCURRENCY as f64)
        .figure("per_second", run.per_second())
        .latencies(&mut run.latencies)
        .at_least("per_second", 8_000.0)
        .at_most("p99_ms", 20.0)
        .print();
    Ok(())
}

/// Reads of single pods.
pub async fn gets(target: &Target, space: &str) -> Result<(), Failure> {
    let (path, present) = (pods(space), target.scaled(CREATES));
    let make = move |number: usize| (Method::GET, format!("{path}/p{}", number * 7919 % present), None);
    let mut run = load::run(target, target.scaled(100_000), Arc::new(make)).await?;
    Line::new("pod_gets")
        .figure("concurrency", CONCURRENCY as f64)
        .figure("per_second", run.per_second())
        .latencies(&mut run.latencies)
        .at_least("per_second", 20_000.0)
        .print();
    Ok(())
}

/// Full lists of a namespace.
pub async fn lists(target: &Target, space: &str) -> Result<(), Failure> {
    let count = target.scaled(LISTED);
    fill(target, space, count).await?;
    let path = pods(space);
    let mut latencies: Vec<Duration> = Vec::new();
    let mut bytes = 0;
    for _ in 0..20 {
        let sent = Instant::now();
        bytes = load::send(target.client(), Method::GET, &path, None).await?;
        latencies.push(sent.elapsed());
    }
    Line::new("pod_list")
        .figure("pods", count as f64)
        .figure("megabytes", bytes as f64 / 1e6)
        .latencies(&mut latencies)
        .at_most("p50_ms", 40.0)
        .print();
    Ok(())
}
