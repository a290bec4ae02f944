//! Custom resources: what many definitions cost, and whether their objects are as fast as built-in ones.
//!
//! `BENCH_ONLY=custom`; with `PEER_BIN` upstream's API server is measured after ours, by the same client, and every line says whose it is. Memory
//! and processor time are of the API server's process, which has the store in it on our side; upstream's etcd is not counted. Definitions
//! are as large as those of providers of clouds: about 30 KB each.

mod conversion;
mod definitions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::load::{self, CONCURRENCY};
use crate::process::{cpu_seconds, private_megabytes};
use crate::report::Line;
use crate::{Failure, Target, pods};

const DEFINITIONS: usize = 2_000;
const GROUP: &str = "bench.example.com";
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Everything about custom resources, on a server that has none.
pub async fn measure(target: &Target) -> Result<(), Failure> {
    pods::space(target.client(), "bench-custom").await?;
    usable(target).await?;
    rules(target).await?;
    lists(target).await?;
    conversion::measure(target).await?;
    many(target).await
}

/// A line that says whose server it is about.
fn line(target: &Target, name: &str) -> Line {
    Line::new(name).text("side", target.side)
}

/// Makes a definition and waits until it is served.
async fn define(target: &Target, definition: &Value) -> Result<(), Failure> {
    let body = Bytes::from(definition.to_string());
    load::send(target.client(), Method::POST, PATH, Some(body)).await?;
    let version = definition["spec"]["versions"][0]["name"].as_str().ok_or("no version")?;
    let plural = definition["spec"]["names"]["plural"].as_str().ok_or("no plural")?;
    let path = format!("/apis/{GROUP}/{version}/namespaces/bench-custom/{plural}");
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = load::send(target.client(), Method::GET, &path, None).await {
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn objects(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/bench-custom/{plural}")
}

/// From sending a definition to the first object of it that is made.
async fn usable(target: &Target) -> Result<(), Failure> {
    let mut latencies = Vec::new();
    for number in 0..50 {
        let plural = format!("quicks{number}");
        let definition =
            definitions::small(&plural, json!({"type": "object", "properties": {"size": {"type": "integer"}}}));
        let body = Bytes::from(definition.to_string());
        let object = definitions::object(&plural, "first", json!({"size": 1}));
        let sent = Instant::now();
        load::send(target.client(), Method::POST, PATH, Some(body)).await?;
        while load::send(target.client(), Method::POST, &objects(&plural), Some(object.clone())).await.is_err() {
            if sent.elapsed() > Duration::from_secs(60) {
                return Err("a definition is never served".into());
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        latencies.push(sent.elapsed());
    }
    line(target, "definition_usable").latencies(&mut latencies).at_most("p99_ms", 20.0).print();
    Ok(())
}

/// Creates of objects with ten expressions.
async fn rules(target: &Target) -> Result<(), Failure> {
    define(target, &definitions::ruled("ruleds")).await?;
    let path = objects("ruleds");
    let make = move |number: usize| {
        let spec = json!({
            "name": format!("r{number}"), "low": 1, "high": 10, "replicas": 3, "mode": "fast",
            "hosts": ["a.example.com", "b.example.com"], "labels": {"app": "bench", "tier": "web"},
        });
        (Method::POST, path.clone(), Some(definitions::object("ruleds", &format!("r{number}"), spec)))
    };
    let count = target.scaled(40_000);
    let before = target.process.map(cpu_seconds).transpose()?;
    let mut run = load::run(target, count, Arc::new(make)).await?;
    let after = target.process.map(cpu_seconds).transpose()?;
    let mut line = line(target, "custom_creates_ten_rules")
        .figure("concurrency", CONCURRENCY as f64)
        .figure("per_second", run.per_second())
        .latencies(&mut run.latencies)
        .at_least("per_second", 5_000.0);
    if let (Some(before), Some(after)) = (before, after) {
        line = line.figure("cpu_us_each", (after - before) * 1e6 / count as f64);
    }
    line.print();
    Ok(())
}

/// Full lists of custom resources and of pods with the same content.
async fn lists(target: &Target) -> Result<(), Failure> {
    let count = target.scaled(pods::LISTED);
    define(target, &definitions::small("likepods", definitions::like_pods())).await?;
    pods::fill(target, "bench-custom", count).await?;
    let path = objects("likepods");
    let make = move |number: usize| {
        let spec = definitions::pod_spec();
        (Method::POST, path.clone(), Some(definitions::object("likepods", &format!("p{number}"), spec)))
    };
    load::run(target, count, Arc::new(make)).await?;
    let (pods, pod_bytes) = listed(target, "/api/v1/namespaces/bench-custom/pods").await?;
    let (customs, bytes) = listed(target, &objects("likepods")).await?;
    // Objects are not quite of one size: time is compared byte by byte.
    let ratio = (customs.as_secs_f64() / bytes as f64) / (pods.as_secs_f64() / pod_bytes as f64);
    line(target, "custom_list")
        .figure("objects", count as f64)
        .figure("megabytes", bytes as f64 / 1e6)
        .figure("p50_ms", customs.as_secs_f64() * 1e3)
        .figure("pods_megabytes", pod_bytes as f64 / 1e6)
        .figure("pods_p50_ms", pods.as_secs_f64() * 1e3)
        .figure("ratio", ratio)
        .at_most("ratio", 1.3)
        .print();
    Ok(())
}

/// How long a list takes, and how large it is.
async fn listed(target: &Target, path: &str) -> Result<(Duration, usize), Failure> {
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    for _ in 0..20 {
        let sent = Instant::now();
        bytes = load::send(target.client(), Method::GET, path, None).await?;
        latencies.push(sent.elapsed());
    }
    latencies.sort_unstable();
    Ok((latencies[latencies.len() / 2], bytes))
}

/// Many large definitions: how long they take, what they cost, and whether clients still learn of the API in no time.
async fn many(target: &Target) -> Result<(), Failure> {
    let count = target.scaled(DEFINITIONS);
    let before = memory(target).await?;
    let size = definitions::large(0).to_string().len();
    let make =
        move |number: usize| (Method::POST, PATH.to_owned(), Some(Bytes::from(definitions::large(number).to_string())));
    let begun = Instant::now();
    let mut run = load::run(target, count, Arc::new(make)).await?;
    let made = begun.elapsed();
    // All are served when each answers.
    for number in 0..count {
        let path = format!("/apis/{GROUP}/v1/{}", definitions::large_plural(number));
        while load::send(target.client(), Method::GET, &path, None).await.is_err() {
            if begun.elapsed() > Duration::from_secs(3_600) {
                return Err("a definition is never served".into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    line(target, "definitions_applied")
        .figure("definitions", count as f64)
        .figure("kilobytes_each", size as f64 / 1e3)
        .figure("seconds", begun.elapsed().as_secs_f64())
        .figure("seconds_made", made.as_secs_f64())
        .latencies(&mut run.latencies)
        .at_most("seconds", 30.0)
        .print();
    cold(target).await?;
    if let (Some(before), Some(after)) = (before, memory(target).await?) {
        line(target, "definitions_memory")
            .figure("definitions", count as f64)
            .figure("private_megabytes", after - before)
            .at_most("private_megabytes", 100.0)
            .print();
    }
    Ok(())
}

/// The first answers to whoever asks what there is.
async fn cold(target: &Target) -> Result<(), Failure> {
    const AGGREGATED: load::Media = load::Media {
        accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        content: "application/json",
        gzip: false,
    };
    // As kubectl and all of Go's clients ask; the plain ones take what it takes to move so many bytes.
    const GZIP: load::Media = load::Media { gzip: true, ..load::JSON };
    // As Go's clients ask for version 2.
    const PROTOBUF: load::Media =
        load::Media { accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", ..GZIP };
    let one = format!("/openapi/v3/apis/{GROUP}/v1");
    for (name, path, media) in [
        ("discovery_cold", "/apis", AGGREGATED),
        ("openapi_v3_cold", "/openapi/v3", load::JSON),
        ("openapi_v3_group_cold", &one, GZIP),
        ("openapi_v2_cold", "/openapi/v2", GZIP),
        ("openapi_v2_protobuf_cold", "/openapi/v2", PROTOBUF),
        ("openapi_v3_group_plain", &one, load::JSON),
        ("openapi_v2_plain", "/openapi/v2", load::JSON),
    ] {
        let sent = Instant::now();
        let bytes = load::send_as(target.client(), media, Method::GET, path, None).await?;
        let first = sent.elapsed();
        let sent = Instant::now();
        load::send_as(target.client(), media, Method::GET, path, None).await?;
        let line = line(target, name)
            .figure("megabytes", bytes as f64 / 1e6)
            .figure("ms", first.as_secs_f64() * 1e3)
            .figure("again_ms", sent.elapsed().as_secs_f64() * 1e3);
        if name.ends_with("_plain") { line } else { line.at_most("ms", 100.0) }.print();
    }
    Ok(())
}

/// What the server keeps in memory, once freed pages are given back.
async fn memory(target: &Target) -> Result<Option<f64>, Failure> {
    let Some(process) = target.process else { return Ok(None) };
    tokio::time::sleep(Duration::from_secs(15)).await;
    private_megabytes(process).map(Some)
}
