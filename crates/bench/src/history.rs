//! The past: a day of a busy cluster by a simulated clock, with real writes, in a store of many objects. What it takes on disk, what a start
//! with it takes, and how long reading an object as it was takes through the API server; and that the size that was promised is kept.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options as Keeping};
use store::{Expect, Op, Outcome, Revision, Store as _, Txn};
use testkit::Server;

use crate::report::Line;
use crate::server::ALONE;
use crate::{Failure, Options, Target, load, pods, start};

const SPACE: &str = "past";
const OBJECTS: usize = 100_000;
/// What a cluster of so many nodes writes in a minute: each renews its lease six times; a node's status every five minutes; and so many
/// changes of pods.
const NODES: usize = 40;
const RENEWALS: usize = 6;
const POD_CHANGES: u64 = 100;
/// Of so many pods.
const BUSY: usize = 5_000;
const MINUTES: u64 = 24 * 60;
const MINUTE: u64 = 60_000;
const READS: u64 = 1_000;
/// Written as the server writes it: who it was.
const NOTE: &[u8] = b"system:node:n1\0kubelet\0patch\0status";

/// In milliseconds since 1970.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn simulated() -> u64 {
    CLOCK.load(Ordering::Relaxed)
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    // By the wall's clock the day is over when it is read.
    let arguments = [&ALONE[..], &["--history=2d"]].concat();
    let mut server = Server::start(start(&arguments)).await;
    let pattern = pattern(&mut server, options.scale).await?;
    let directory = server.data_dir().join("store");
    std::fs::remove_dir_all(&directory)?;
    let minutes = options.scaled(MINUTES as usize, 60) as u64;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    CLOCK.store(u64::try_from(now.as_millis())? - minutes * MINUTE, Ordering::Relaxed);
    let keeping = Keeping { clock: simulated, ..Keeping::default() };
    let count = options.scaled(OBJECTS, 1_000);
    let first = day(&directory, keeping.clone(), &pattern, count, minutes).await?;
    // The first start makes what every cluster has.
    started(&mut server).await;
    let with = started(&mut server).await;
    read(&mut server, first, count).await?;
    bounded(&directory, keeping, &pattern, minutes).await?;
    std::fs::remove_dir_all(directory.join("history"))?;
    let without = started(&mut server).await;
    Line::new("history_start")
        .figure("objects", count as f64)
        .figure("ms_without", without.as_secs_f64() * 1e3)
        .figure("ms", with.as_secs_f64() * 1e3)
        .figure("ms_per_100000", with.as_secs_f64() * 1e3 * 1e5 / (count as f64).max(1e5))
        .at_most("ms_per_100000", 1_000.0)
        .print();
    Ok(())
}

/// A pod as the server stores it.
async fn pattern(server: &mut Server, scale: f64) -> Result<String, Failure> {
    let target = Target::new(&server.kubeconfig(), server.id(), scale)?;
    pods::space(target.client(), SPACE).await?;
    let path = format!("/api/v1/namespaces/{SPACE}/pods");
    load::send(target.client(), Method::POST, &path, Some(pods::pod("pattern", ""))).await?;
    server.stop().await;
    let store = Embedded::open(&server.data_dir().join("store"), Keeping::default())?;
    let stored = store.get(&format!("/registry/pods/{SPACE}/pattern")).await?.ok_or("the pattern is not there")?;
    store.close().await;
    Ok(String::from_utf8(stored.value.to_vec())?)
}

async fn started(server: &mut Server) -> Duration {
    let begun = Instant::now();
    server.spawn();
    server.ready().await;
    let took = begun.elapsed();
    server.stop().await;
    took
}

/// A store, and who writes to it.
struct Cluster {
    store: Arc<Embedded>,
    /// A pod as the server stores it.
    pattern: String,
    /// Where each pod's last write is.
    pods: Vec<Revision>,
    others: Vec<Option<Revision>>,
    writes: u64,
}

fn pod_key(pod: usize) -> Arc<str> {
    format!("/registry/pods/{SPACE}/pod-{pod}").into()
}

fn hashed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

impl Cluster {
    /// Opens the store, and finds out which of the objects that it writes are there.
    async fn open(directory: &Path, keeping: Keeping, pattern: &str) -> Result<Self, Failure> {
        let store = Embedded::open(directory, keeping)?;
        let (mut pods, mut others) = (Vec::new(), Vec::new());
        while let Some(record) = store.get(&pod_key(pods.len())).await? {
            pods.push(record.revision);
        }
        for place in 0..2 * NODES {
            let (key, _) = Self::node(place % NODES, 0, place < NODES);
            others.push(store.get(&key).await?.map(|record| record.revision));
        }
        Ok(Self { store, pattern: pattern.to_owned(), pods, others, writes: 0 })
    }

    /// A pod with a name and an identity of its own, and what changes when its status does.
    fn pod(&self, pod: usize, change: u64) -> Bytes {
        let text = self.pattern.replace("\"name\":\"pattern\"", &format!("\"name\":\"pod-{pod}\""));
        let at = text.find("\"uid\":\"").map(|at| at + 7);
        let named = at.map_or(text.clone(), |at| {
            let uid = format!("{:08x}-0000-4000-8000-{pod:012x}", hashed(pod as u64) as u32);
            format!("{}{uid}{}", &text[..at], &text[at + 36..])
        });
        let sent = format!("\"bench/sent\":\"{change}-{:016x}\"", hashed(change ^ ((pod as u64) << 20)));
        named.replace("\"bench/sent\":\"\"", &sent).into()
    }

    async fn put(&self, key: Arc<str>, expect: Expect, value: Bytes) -> Result<Revision, Failure> {
        let op = Op::Put { value, ttl: None };
        let outcome = self.store.txn(Txn { key, expect, op, write: None, note: Bytes::from_static(NOTE) }).await?;
        match outcome {
            Outcome::Committed(revision) => Ok(revision),
            Outcome::Conflict(_) => Err("somebody else writes".into()),
        }
    }

    async fn fill(&mut self, count: usize) -> Result<(), Failure> {
        let made = futures::stream::iter(0..count).map(|pod| self.put(pod_key(pod), Expect::Absent, self.pod(pod, 0)));
        self.pods = made.buffered(512).collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?;
        Ok(())
    }

    /// What a node writes: a lease that is renewed, or its status.
    fn node(node: usize, round: u64, is_lease: bool) -> (Arc<str>, Bytes) {
        let (uid, time) = (format!("{node:08x}-0000-4000-9000-000000000000"), jiff::Timestamp::UNIX_EPOCH);
        let (name, sent) = (format!("node-{node}"), format!("{:016x}", hashed((round << 8) | node as u64)));
        let metadata = json!({"name": name, "uid": uid, "creationTimestamp": time.to_string(), "annotations": {"bench/sent": sent}});
        if !is_lease {
            let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "KubeletHasEnough", "message": "kubelet has enough of it"});
            let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
            let images: Vec<Value> = (0..30).map(|image| json!({"names": [format!("registry.example.com/team/image:{image}")], "sizeBytes": 1000 + image})).collect();
            let value = json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": {"conditions": conditions, "images": images}});
            return (format!("/registry/minions/{name}").into(), value.to_string().into());
        }
        let mut metadata = metadata;
        metadata["namespace"] = json!("kube-node-lease");
        let spec =
            json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2030-01-01T00:00:00.000000Z"});
        let value =
            json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec});
        (format!("/registry/leases/kube-node-lease/{name}").into(), value.to_string().into())
    }

    /// Renewals of leases and some statuses of nodes, all at once.
    async fn nodes(&mut self, minute: u64, renewal: u64) -> Result<(), Failure> {
        let round = minute * RENEWALS as u64 + renewal;
        let statuses = (0..NODES).filter(|node| renewal == 0 && *node as u64 % 5 == minute % 5);
        let leases = (0..NODES).map(|node| (node, Self::node(node, round, true)));
        let all: Vec<(usize, (Arc<str>, Bytes))> =
            leases.chain(statuses.map(|node| (NODES + node, Self::node(node, round, false)))).collect();
        let writes = all.iter().map(|(place, (key, value))| {
            let expect = self.others[*place].map_or(Expect::Absent, Expect::At);
            self.put(Arc::clone(key), expect, value.clone())
        });
        let written: Vec<Revision> = join_all(writes).await.into_iter().collect::<Result<_, _>>()?;
        self.writes += written.len() as u64;
        all.iter().zip(written).for_each(|((place, _), revision)| self.others[*place] = Some(revision));
        Ok(())
    }

    /// What a cluster writes in a minute.
    async fn minute(&mut self, minute: u64) -> Result<(), Failure> {
        for renewal in 0..RENEWALS as u64 {
            CLOCK.fetch_add(MINUTE / RENEWALS as u64, Ordering::Relaxed);
            self.nodes(minute, renewal).await?;
        }
        // Most changes are of few pods: those that start, and those that crash.
        let busy = self.pods.len().min(BUSY);
        let changed: BTreeSet<usize> =
            (0..POD_CHANGES).map(|change| hashed(minute * 1_000 + change) as usize % busy).collect();
        let writes =
            changed.iter().map(|pod| self.put(pod_key(*pod), Expect::At(self.pods[*pod]), self.pod(*pod, minute + 1)));
        let written: Vec<Revision> = join_all(writes).await.into_iter().collect::<Result<_, _>>()?;
        self.writes += written.len() as u64;
        changed.iter().zip(written).for_each(|(pod, revision)| self.pods[*pod] = revision);
        Ok(())
    }

    /// Churns for so long; how many bytes the past took at most.
    async fn churn(&mut self, directory: &Path, minutes: std::ops::Range<u64>) -> Result<u64, Failure> {
        let mut most = 0;
        for minute in minutes {
            self.minute(minute).await?;
            most = most.max(past_bytes(directory)?);
        }
        Ok(most)
    }
}

/// What the tables of the past take on disk.
fn past_bytes(directory: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for file in std::fs::read_dir(directory.join("history"))? {
        let file = file?;
        if file.path().extension().is_some_and(|extension| extension == "past") {
            // One that has been joined with others meanwhile is gone.
            bytes += file.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    Ok(bytes)
}

/// Many objects, and a day of changes of some of them: its size, and whether all of it is there. The revision at which the day began.
async fn day(
    directory: &Path,
    keeping: Keeping,
    pattern: &str,
    count: usize,
    minutes: u64,
) -> Result<Revision, Failure> {
    let mut cluster = Cluster::open(directory, keeping.clone(), pattern).await?;
    cluster.fill(count).await?;
    let (first, begun) = (cluster.store.revision().await?, Instant::now());
    let most = cluster.churn(directory, 0..minutes).await?;
    let took = begun.elapsed().as_secs_f64();
    let kept = cluster.store.kept().await?;
    let hours = |milliseconds: u64| milliseconds as f64 / (60 * MINUTE) as f64;
    let since = kept.oldest_time.map_or(0, |oldest| simulated().saturating_sub(oldest));
    Line::new("history_day")
        .figure("hours", hours(minutes * MINUTE))
        .figure("writes", cluster.writes as f64)
        .figure("s", took)
        .figure("bytes_per_write", kept.bytes as f64 / (kept.latest - kept.oldest).max(1) as f64)
        .figure("megabytes", most as f64 / 1e6)
        .at_most("megabytes", keeping.past_bytes as f64 / 1e6)
        .figure("hours_kept", hours(since))
        .at_least("hours_kept", hours(minutes * MINUTE) * 0.99)
        .print();
    cluster.store.close().await;
    Ok(first)
}

/// The same with a third of the room: the oldest goes, and no more than that.
async fn bounded(directory: &Path, keeping: Keeping, pattern: &str, minutes: u64) -> Result<(), Failure> {
    let bound = past_bytes(directory)? / 3;
    let mut cluster = Cluster::open(directory, Keeping { past_bytes: bound, ..keeping }, pattern).await?;
    // There is more than that at first; it goes with the next table.
    let (mut minute, settling) = (minutes, minutes + minutes / 8);
    while past_bytes(directory)? > bound && minute < settling {
        cluster.minute(minute).await?;
        minute += 1;
    }
    let most = cluster.churn(directory, minute..minute + minutes / 8).await?;
    let kept = cluster.store.kept().await?;
    Line::new("history_bound")
        .figure("promised_megabytes", bound as f64 / 1e6)
        .figure("megabytes", most as f64 / 1e6)
        .at_most("megabytes", bound as f64 / 1e6)
        .figure("kept_percent", kept.bytes as f64 / bound as f64 * 100.0)
        .print();
    cluster.store.close().await;
    Ok(())
}

/// Objects as they were at revisions of the day, one after the other, through everything that a request passes.
async fn read(server: &mut Server, first: Revision, pods: usize) -> Result<(), Failure> {
    server.spawn();
    server.ready().await;
    let client = server.client();
    let kept: Value = serde_json::from_slice(&client.raw("/trireme/history").await?)?;
    let latest: Revision = kept["latest"]["resourceVersion"].as_str().ok_or("no revision")?.parse()?;
    let mut latencies = Vec::new();
    for question in 0..READS {
        let at = first + hashed(question) % (latest - first);
        let pod = hashed(question ^ 0xabcd) as usize % pods.min(BUSY);
        let sent = Instant::now();
        load::send(&client, Method::GET, &format!("/api/v1/namespaces/{SPACE}/pods/pod-{pod}?at={at}"), None).await?;
        latencies.push(sent.elapsed());
    }
    Line::new("history_read").figure("reads", READS as f64).latencies(&mut latencies).at_most("p99_ms", 5.0).print();
    server.stop().await;
    Ok(())
}
