//! Many watchers: how fast events reach all of them, and what idle ones cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use futures::StreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::process::resident_megabytes;
use crate::report::Line;
use crate::{Failure, Target, load, pods};

const SENT: &[u8] = b"\"bench/sent\":\"";

type Chunks = futures::stream::BoxStream<'static, Result<bytes::Bytes, std::io::Error>>;

/// Opens a watch of a namespace that only tells of what happens from now on.
async fn open(client: &Client, space: &str) -> Result<Chunks, Failure> {
    let path = format!("/api/v1/namespaces/{space}/pods?watch=true&resourceVersion=0");
    let request = http::Request::builder().uri(path).header("accept", "application/json").body(Body::Empty)?;
    let response = client.request(request).await?;
    if !response.status().is_success() {
        return Err(format!("a watch was answered {}", response.status()).into());
    }
    match response.into_body() {
        Payload::Stream(chunks) => Ok(chunks),
        _ => Err("a watch is a stream".into()),
    }
}

/// 1,000 watchers see 50 creates: the time from sending the create to each delivery.
pub async fn fan_out(target: &Target, space: &str) -> Result<(), Failure> {
    let (watchers, creates) = (target.scaled(1_000), 50);
    let epoch = Instant::now();
    let mut readers = JoinSet::new();
    for number in 0..watchers {
        let chunks = open(&target.clients[number % target.clients.len()], space).await?;
        readers.spawn(latencies(chunks, creates, epoch));
    }
    let begun = Instant::now();
    for number in 0..creates {
        let sent = epoch.elapsed().as_nanos().to_string();
        let body = pods::pod(&format!("w{number}"), &sent);
        let path = format!("/api/v1/namespaces/{space}/pods");
        load::send(target.client(), Method::POST, &path, Some(body)).await?;
        // Spread out, as changes are in a cluster: this measures delivery, not how long a backlog gets.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let mut all = Vec::with_capacity(watchers * creates);
    while let Some(reader) = readers.join_next().await {
        all.extend(reader??);
    }
    let took = begun.elapsed();
    Line::new("watch_fan_out")
        .figure("watchers", watchers as f64)
        .figure("events_per_second", all.len() as f64 / took.as_secs_f64())
        .latencies(&mut all)
        .at_most("p99_ms", 10.0)
        .print();
    Ok(())
}

/// Reads events until `count` have come.
async fn latencies(mut chunks: Chunks, count: usize, epoch: Instant) -> Result<Vec<Duration>, Failure> {
    let mut found = Vec::with_capacity(count);
    let mut line = Vec::new();
    while found.len() < count {
        let chunk = chunks.next().await.ok_or("the watch ended")??;
        let now = epoch.elapsed();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                if let Some(sent) = sent_at(&line) {
                    found.push(now.saturating_sub(sent));
                }
                line.clear();
            }
        }
    }
    Ok(found)
}

fn sent_at(line: &[u8]) -> Option<Duration> {
    let at = memchr::memmem::find(line, SENT)? + SENT.len();
    let digits: String =
        line[at..].iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    digits.parse().ok().map(Duration::from_nanos)
}

/// What 10,000 idle watchers cost in memory.
pub async fn idle(target: &Target) -> Result<(), Failure> {
    let Some(process) = target.process else { return Ok(()) };
    let watchers = target.scaled(10_000);
    let before = resident_megabytes(process)?;
    let mut open_watches = Vec::with_capacity(watchers);
    let turns = Arc::new(Semaphore::new(load::CONCURRENCY));
    let mut opening = JoinSet::new();
    // A server takes a bounded number of streams per connection.
    let connections: Vec<Client> =
        (0..watchers.div_ceil(500)).map(|_| Client::https(target.config.clone())).collect::<Result<_, _>>()?;
    for number in 0..watchers {
        let (client, turn) = (connections[number / 500].clone(), Arc::clone(&turns).acquire_owned().await?);
        opening.spawn(async move {
            let _turn = turn;
            open(&client, "bench-idle").await
        });
    }
    while let Some(opened) = opening.join_next().await {
        open_watches.push(opened??);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let with = resident_megabytes(process)?;
    Line::new("idle_watchers")
        .figure("watchers", open_watches.len() as f64)
        .figure("megabytes", with - before)
        .at_most("megabytes", 200.0)
        .print();
    Ok(())
}
