//! So many requests at a time, each timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use futures::StreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use tokio::task::JoinSet;

use crate::{Failure, Target};

/// Requests at a time.
pub const CONCURRENCY: usize = 64;

/// What a run of requests took.
pub struct Run {
    pub took: Duration,
    pub latencies: Vec<Duration>,
}

impl Run {
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }
}

/// What bodies and answers are encoded in.
#[derive(Debug, Clone, Copy)]
pub struct Media {
    pub accept: &'static str,
    pub content: &'static str,
    /// Whether answers may be compressed.
    pub gzip: bool,
}

/// As most clients have it.
pub const JSON: Media = Media { accept: "application/json", content: "application/json", gzip: false };

/// A request: its path and its body.
pub type Make = Arc<dyn Fn(usize) -> (Method, String, Option<Bytes>) + Send + Sync>;

/// Sends requests 0 to `count`, [`CONCURRENCY`] at a time.
pub async fn run(target: &Target, count: usize, make: Make) -> Result<Run, Failure> {
    run_as(target, count, JSON, make).await
}

/// As [`run`], in another encoding.
pub async fn run_as(target: &Target, count: usize, media: Media, make: Make) -> Result<Run, Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    let begun = Instant::now();
    for worker in 0..CONCURRENCY {
        let client = target.clients[worker % target.clients.len()].clone();
        let (next, make) = (Arc::clone(&next), Arc::clone(&make));
        workers.spawn(async move {
            let mut latencies = Vec::with_capacity(count / CONCURRENCY + 1);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, Failure>(latencies);
                }
                let (method, path, body) = make(number);
                let sent = Instant::now();
                send_as(&client, media, method, &path, body).await?;
                latencies.push(sent.elapsed());
            }
        });
    }
    let mut latencies = Vec::with_capacity(count);
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    Ok(Run { took: begun.elapsed(), latencies })
}

/// Sends one request and takes its whole answer; how many bytes that was.
pub async fn send(client: &Client, method: Method, path: &str, body: Option<Bytes>) -> Result<usize, Failure> {
    send_as(client, JSON, method, path, body).await
}

/// As [`send`], in another encoding.
pub async fn send_as(
    client: &Client,
    media: Media,
    method: Method,
    path: &str,
    body: Option<Bytes>,
) -> Result<usize, Failure> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", media.accept)
        .header("content-type", media.content)
        .header("accept-encoding", if media.gzip { "gzip" } else { "identity" })
        .body(body.map_or(Body::Empty, Body::Bytes))?;
    let response = client.request(request).await?;
    let status = response.status();
    let Payload::Stream(mut chunks) = response.into_body() else { return Err("no bytes".into()) };
    let mut size = 0;
    let mut refusal = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        size += chunk.len();
        if !status.is_success() {
            refusal.extend_from_slice(&chunk);
        }
    }
    if status.is_success() { Ok(size) } else { Err(String::from_utf8_lossy(&refusal).into_owned().into()) }
}
