//! Patches, server-side apply, protobuf and the first OpenAPI document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use http::Method;
use serde_json::{Value, json};

use crate::load::{self, CONCURRENCY, Media};
use crate::report::Line;
use crate::{Failure, Target};

/// How many objects the patches go round.
const OBJECTS: usize = 1_000;
const PATCHES: usize = 20_000;
const PROTOBUF: Media = Media {
    accept: "application/vnd.kubernetes.protobuf",
    content: "application/vnd.kubernetes.protobuf",
    gzip: false,
};
const STRATEGIC: Media = Media { content: "application/strategic-merge-patch+json", ..load::JSON };
const APPLY: Media = Media { content: "application/apply-patch+yaml", ..load::JSON };

/// A Deployment of three containers.
fn deployment(name: &str, image: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:v{image}"),
            "env": [{"name": "SETTING", "value": "a value of some length"}],
            "ports": [{"name": "http", "containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "bench"}}, "template": {
            "metadata": {"labels": {"app": "bench"}},
            "spec": {"containers": [container("main"), container("proxy"), container("logs")]}}},
    })
}

fn path(space: &str, number: usize) -> String {
    format!("/apis/apps/v1/namespaces/{space}/deployments/d{}", number % OBJECTS)
}

/// Patches of one container's image, then applies of whole Deployments.
pub async fn patches(target: &Target, space: &str) -> Result<(), Failure> {
    let owned = space.to_owned();
    let make = move |number: usize| {
        let path = format!("/apis/apps/v1/namespaces/{owned}/deployments");
        (Method::POST, path, Some(Bytes::from(deployment(&format!("d{number}"), 0).to_string())))
    };
    load::run(target, OBJECTS, Arc::new(make)).await?;
    let owned = space.to_owned();
    let make = move |number: usize| {
        let image = format!("registry.example.com/team/main:v{number}");
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
        (Method::PATCH, path(&owned, number), Some(Bytes::from(patch.to_string())))
    };
    let mut run = load::run_as(target, target.scaled(PATCHES), STRATEGIC, Arc::new(make)).await?;
    Line::new("strategic_patches")
        .figure("concurrency", CONCURRENCY as f64)
        .figure("per_second", run.per_second())
        .latencies(&mut run.latencies)
        .at_least("per_second", 5_000.0)
        .print();
    let owned = space.to_owned();
    let make = move |number: usize| {
        let path = format!("{}?fieldManager=bench&force=true", path(&owned, number));
        let configuration = deployment(&format!("d{}", number % OBJECTS), number + 1);
        (Method::PATCH, path, Some(Bytes::from(configuration.to_string())))
    };
    let mut run = load::run_as(target, target.scaled(PATCHES), APPLY, Arc::new(make)).await?;
    Line::new("server_side_applies")
        .figure("concurrency", CONCURRENCY as f64)
        .figure("per_second", run.per_second())
        .latencies(&mut run.latencies)
        .at_least("per_second", 3_000.0)
        .print();
    Ok(())
}

/// Full lists as client-go asks for them; the pods are there already.
pub async fn protobuf_lists(target: &Target, space: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{space}/pods");
    let sent = Instant::now();
    let bytes = load::send_as(target.client(), PROTOBUF, Method::GET, &path, None).await?;
    // Every message is made once, for the first reader.
    let first = sent.elapsed();
    let mut latencies: Vec<Duration> = Vec::new();
    for _ in 0..20 {
        let sent = Instant::now();
        load::send_as(target.client(), PROTOBUF, Method::GET, &path, None).await?;
        latencies.push(sent.elapsed());
    }
    Line::new("pod_list_protobuf")
        .figure("megabytes", bytes as f64 / 1e6)
        .figure("first_ms", first.as_secs_f64() * 1e3)
        .latencies(&mut latencies)
        .at_most("p50_ms", 60.0)
        .print();
    Ok(())
}

/// The first answer to whoever asks a new server what its API looks like.
pub async fn openapi(client: &Client) -> Result<(), Failure> {
    let sent = Instant::now();
    load::send(client, Method::GET, "/openapi/v3", None).await?;
    Line::new("openapi_first").figure("ms", sent.elapsed().as_secs_f64() * 1e3).at_most("ms", 50.0).print();
    Ok(())
}
