//! Figures of the embedded engine on this machine, as JSON lines: durable puts per second with 1, 64 and 512 writers, the time
//! to open a store of 100,000 records, and how history costs.
//!
//! `cargo run --release -p bench --bin store [DIRECTORY]` (a directory on the disk to be measured).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use store::embedded::{Embedded, Options};
use store::{Error, Expect, Op, Outcome, Range, Store, Txn};

/// A small pod's size in the store.
const VALUE: usize = 1500;
const RECORDS: usize = 100_000;
const LARGE_VALUE: usize = 2600;
const MEASURED: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for writers in [1, 64, 512] {
        let dir = tempfile::tempdir_in(&base)?;
        puts(dir.path(), writers).await?;
    }
    let dir = tempfile::tempdir_in(&base)?;
    open(dir.path()).await?;
    let dir = tempfile::tempdir_in(&base)?;
    past(dir.path()).await?;
    Ok(())
}

/// Durable puts per second: every writer updates keys of its own, as fast as they are acknowledged.
async fn puts(dir: &Path, writers: usize) -> Result<(), Error> {
    let store = Embedded::open(dir, Options::default())?;
    let value = Bytes::from(vec![b'x'; VALUE]);
    let start = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let (store, value) = (Arc::clone(&store), value.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut expect = Expect::Absent;
            let key: Arc<str> = format!("/registry/pods/default/writer-{writer}").into();
            while start.elapsed() < MEASURED {
                let sent = Instant::now();
                let op = Op::Put { value: value.clone(), ttl: None };
                match store
                    .txn(Txn { key: Arc::clone(&key), expect, op, write: None, note: Default::default() })
                    .await?
                {
                    Outcome::Committed(revision) => expect = Expect::At(revision),
                    Outcome::Conflict(_) => return Err(Error::Unavailable("nobody else writes this key".into())),
                }
                latencies.push(sent.elapsed());
            }
            Ok(latencies)
        })
    });
    let mut latencies = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        latencies.extend(task.await.map_err(|e| Error::Unavailable(e.to_string()))??);
    }
    let seconds = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let rate = latencies.len() as f64 / seconds;
    let stats = store.stats();
    println!(
        "{}",
        json!({"bench": "puts", "writers": writers, "value_bytes": VALUE, "puts_per_second": rate.round(),
            "p50_ms": at(0.5), "p99_ms": at(0.99), "disk_bytes": stats.disk_bytes, "segments": stats.segments})
    );
    store.close().await;
    Ok(())
}

/// Fills a store, then times opening it, listing it, and watching it from an old revision.
async fn open(dir: &Path) -> Result<(), Error> {
    let store = Embedded::open(dir, Options::default())?;
    let value = Bytes::from((0..LARGE_VALUE).map(|i| (i * 31) as u8).collect::<Vec<_>>());
    let fill = Instant::now();
    let mut done = futures::stream::iter(0..RECORDS)
        .map(|i| {
            let key = format!("/registry/pods/namespace-{}/pod-{i}", i % 100).into();
            store.txn(Txn {
                key,
                expect: Expect::Absent,
                op: Op::Put { value: value.clone(), ttl: None },
                write: None,
                note: Default::default(),
            })
        })
        .buffer_unordered(512);
    while let Some(outcome) = done.next().await {
        outcome?;
    }
    drop(done);
    println!("{}", json!({"bench": "fill", "records": RECORDS, "seconds": fill.elapsed().as_secs_f64()}));
    store.close().await;
    drop(store);
    let (before, cpu) = (resident(), cpu_seconds());
    let start = Instant::now();
    let store = Embedded::open(dir, Options::default())?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let bytes = store.stats().bytes;
    println!(
        "{}",
        json!({"bench": "open", "records": RECORDS, "value_bytes": LARGE_VALUE, "live_bytes": bytes, "seconds": seconds,
            "cpu_seconds": cpu, "resident_bytes": resident().saturating_sub(before)})
    );
    let start = Instant::now();
    let page = store.range(Range { prefix: "/registry/pods/".into(), ..Range::default() }).await?;
    println!("{}", json!({"bench": "range", "records": page.records.len(), "seconds": start.elapsed().as_secs_f64()}));
    let start = Instant::now();
    let events = store.watch("/registry/", 1).await?.take(RECORDS).count().await;
    println!("{}", json!({"bench": "watch_from_log", "events": events, "seconds": start.elapsed().as_secs_f64()}));
    store.close().await;
    Ok(())
}

/// Changes pods that are much alike, again and again: what history costs a write, what it takes on disk, how long a question about it takes,
/// and what it adds to a start.
async fn past(dir: &Path) -> Result<(), Error> {
    const PODS: usize = 2000;
    const CHANGES: usize = 200_000;
    let mut cost = Vec::new();
    for kept in [false, true] {
        let dir = dir.join(if kept { "with" } else { "without" });
        let past_time = if kept { Options::default().past_time } else { Duration::ZERO };
        let store = Embedded::open(&dir, Options { past_time, ..Options::default() })?;
        let cpu = cpu_seconds();
        let mut revisions = vec![0; PODS];
        for round in 0..CHANGES / PODS {
            let writes = (0..PODS).map(|pod| {
                let mut value =
                    format!("{{\"metadata\":{{\"name\":\"pod-{pod}\"}},\"status\":{{\"round\":{round},\"pad\":\"");
                (0..150).for_each(|n| value += &format!("{:08x}", (n * pod + n) as u32));
                value += "\"}}";
                let expect = if round == 0 { Expect::Absent } else { Expect::At(revisions[pod]) };
                let (key, op) = (pod_key(pod), Op::Put { value: value.into(), ttl: None });
                store.txn(Txn {
                    key,
                    expect,
                    op,
                    write: None,
                    note: Bytes::from_static(b"system:node:n1\0kubelet\0patch\0status"),
                })
            });
            for (pod, outcome) in futures::future::join_all(writes).await.into_iter().enumerate() {
                if let Outcome::Committed(revision) = outcome? {
                    revisions[pod] = revision;
                }
            }
        }
        store.close().await;
        cost.push((cpu_seconds() - cpu) * 1e6 / CHANGES as f64);
    }
    let dir = dir.join("with");
    let (before, start) = (resident(), Instant::now());
    let store = Embedded::open(&dir, Options::default())?;
    let opened = start.elapsed().as_secs_f64();
    let kept = store.kept().await?;
    let resident = resident().saturating_sub(before);
    println!(
        "{}",
        json!({"bench": "history_cost", "changes": CHANGES, "cpu_us_per_write_without": cost[0], "cpu_us_per_write": cost[1],
            "history_bytes_per_change": kept.bytes as f64 / (kept.latest - kept.oldest) as f64, "open_seconds": opened,
            "resident_bytes": resident, "oldest": kept.oldest, "latest": kept.latest})
    );
    let mut times = Vec::new();
    for question in 0..1000_u64 {
        let at = kept.oldest + 1 + question * 7919 % (kept.latest - kept.oldest);
        let start = Instant::now();
        store.at(&pod_key(question as usize * 31 % PODS), at).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_unstable_by(f64::total_cmp);
    let start = Instant::now();
    let middle = (kept.oldest + kept.latest) / 2;
    let list = store.range(Range { prefix: "/registry/pods/".into(), at: Some(middle), ..Range::default() }).await?;
    println!(
        "{}",
        json!({"bench": "history_read", "reads": times.len(), "p50_ms": times[500], "p99_ms": times[990], "max_ms": times[999],
            "list_records": list.records.len(), "list_ms": start.elapsed().as_secs_f64() * 1e3})
    );
    store.close().await;
    Ok(())
}

fn pod_key(pod: usize) -> Arc<str> {
    format!("/registry/pods/namespace-{}/pod-{pod}", pod % 100).into()
}

/// This process's resident memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// The processor time this process has taken: on a busy machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    // User and system time, in hundredths of a second.
    [11, 12].iter().filter_map(|&i| fields.get(i)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}
