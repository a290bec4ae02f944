//! A million pods on 100,000 nodes in one server, everything on but a kubelet: what it costs to come there, to be there, and to start there.
//!
//! The nodes are hollow, in a process of their own, and renew their leases every ten seconds; they say of their pods what kubelets would. Pods come by
//! our own client with bodies encoded beforehand, so that the machine is left to the server. Every line is of the one cluster in its order of growth. At
//! full size this takes the better part of an hour and all of a machine of two cores, so it runs only where it is named.

use std::process::Stdio;
use std::time::{Duration, Instant};

use client::Client;
use futures::StreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use tokio::process::{Child, Command};

use crate::process::{cpu_seconds, private_megabytes, resident_megabytes};
use crate::report::Line;
use crate::versus::{Outside, bind};
use crate::{Failure, Options, Target, binary, load, pods, start};

const PODS: usize = 1_000_000;
const NODES: usize = 100_000;
const SPACE: &str = "bench-million";
/// How long heartbeats are watched: three of every node.
const WATCHED: Duration = Duration::from_secs(30);
/// What was needed for a moment is given back by then.
const SETTLING: Duration = Duration::from_secs(60);
/// Objects per page, as kubectl asks for them.
const PAGE: usize = 500;
/// Pods that are bound one at a time.
const ONE_BY_ONE: usize = 50;
/// How long a stage may take that has to do with every pod, or every node: what it would take at fifty a second.
const PATIENCE: fn(usize) -> Duration = |count| Duration::from_secs(300 + count as u64 / 50);

/// The cluster under measurement.
struct Cluster {
    server: testkit::Server,
    outside: Outside,
    target: Target,
    nodes: usize,
    pods: usize,
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = testkit::Server::start(start(&["--disable-agent"])).await;
    let outside = Outside::connect(&server.kubeconfig()).await?;
    outside.space(SPACE).await?;
    let target = Target::new(&server.kubeconfig(), server.id(), options.scale)?;
    let (nodes, pods) = (options.scaled(NODES, 10), options.scaled(PODS, 100));
    let mut cluster = Cluster { server, outside, target, nodes, pods };
    let hollow = cluster.register().await?;
    cluster.heartbeats("million_heartbeats_empty").await?;
    cluster.fill().await?;
    cluster.memory().await?;
    cluster.heartbeats("million_heartbeats").await?;
    cluster.list_by_pages().await?;
    cluster.list_by_stream().await?;
    cluster.bind_one_by_one().await?;
    let restarted = cluster.restart().await;
    drop(hollow);
    cluster.server.stop().await;
    restarted
}

impl Cluster {
    fn id(&self) -> Result<u32, Failure> {
        Ok(self.server.id().ok_or("the server is gone")?)
    }

    fn client(&self) -> &Client {
        self.target.client()
    }

    /// Runs something and answers how long it took and how much of the server's time.
    async fn timed<T>(&self, what: impl Future<Output = Result<T, Failure>>) -> Result<(T, Duration, f64), Failure> {
        let (begun, used) = (Instant::now(), cpu_seconds(self.id()?)?);
        let done = what.await?;
        Ok((done, begun.elapsed(), cpu_seconds(self.id()?)? - used))
    }

    /// All nodes come, and are ready.
    async fn register(&self) -> Result<Child, Failure> {
        let (before, kubeconfig) = (private_megabytes(self.id()?)?, self.server.kubeconfig());
        let hollow = Command::new(binary())
            .args(["hollow-node", "--count", &self.nodes.to_string(), "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (_, took, used) = self.timed(self.reach("/api/v1/nodes?watch=true", is_ready, self.nodes)).await?;
        let grown = private_megabytes(self.id()?)? - before;
        Line::new("million_nodes")
            .figure("nodes", self.nodes as f64)
            .figure("per_second", self.nodes as f64 / took.as_secs_f64())
            .precise("cpu_ms", used * 1e3 / self.nodes as f64)
            .figure("private_kilobytes", grown * 1024.0 / self.nodes as f64)
            .print();
        Ok(hollow)
    }

    /// Waits until a watch has shown so many objects of a kind, each counted once.
    async fn reach(&self, path: &str, counts: fn(&[u8]) -> bool, wanted: usize) -> Result<(), Failure> {
        let mut seen = std::collections::HashSet::new();
        let reaching = async {
            let mut lines = self.outside.watch(path, load::JSON.accept).await?;
            while seen.len() < wanted {
                let mut add = |line: &[u8]| {
                    if counts(line) {
                        seen.extend(uid(line));
                    }
                };
                if lines.next(&mut add).await.is_err() {
                    // A server may end any watch, one that is slow for example. The next begins with all that there are.
                    lines = self.outside.watch(path, load::JSON.accept).await?;
                }
            }
            Ok::<_, Failure>(())
        };
        let outcome = tokio::time::timeout(PATIENCE(wanted), reaching).await;
        outcome.map_err(|_| format!("{path} did not come to {wanted} in time"))?
    }

    /// What the server does while nothing happens but heartbeats.
    async fn heartbeats(&self, name: &str) -> Result<(), Failure> {
        let revision = self.outside.revision().await?;
        let (_, took, used) = self
            .timed(async {
                tokio::time::sleep(WATCHED).await;
                Ok(())
            })
            .await?;
        let writes = self.outside.revision().await? - revision;
        Line::new(name)
            .figure("nodes", self.nodes as f64)
            .figure("writes_per_second", writes / took.as_secs_f64())
            .precise("cpu_ms", used * 1e3 / writes)
            .precise("cores", used / took.as_secs_f64())
            .at_most("cores", 1.0)
            .print();
        Ok(())
    }

    /// All pods come, are bound, and run.
    async fn fill(&self) -> Result<(), Failure> {
        let revision = self.outside.revision().await?;
        let mut bound = bind::Bound::watch(&self.outside, SPACE).await?;
        let both = async {
            let (filled, reached) = tokio::join!(
                pods::fill(&self.target, SPACE, self.pods),
                bound.reach_within(self.pods, PATIENCE(self.pods))
            );
            reached?;
            filled
        };
        let (mut run, took, used) = self.timed(both).await?;
        Line::new("million_create")
            .figure("pods", self.pods as f64)
            .figure("per_second", run.per_second())
            .latencies(&mut run.latencies)
            .figure("bound_per_second", self.pods as f64 / took.as_secs_f64())
            .precise("cpu_ms", used * 1e3 / self.pods as f64)
            .figure("writes_per_pod", (self.outside.revision().await? - revision) / self.pods as f64)
            .print();
        Ok(())
    }

    async fn memory(&self) -> Result<(), Failure> {
        tokio::time::sleep(SETTLING).await;
        let private = private_megabytes(self.id()?)?;
        Line::new("million_memory")
            .figure("pods", self.pods as f64)
            .figure("nodes", self.nodes as f64)
            .figure("megabytes", resident_megabytes(self.id()?)?)
            .figure("private_megabytes", private)
            .figure("private_kilobytes_per_pod", private * 1024.0 / self.pods as f64)
            .at_most("megabytes", 8_192.0)
            .print();
        Ok(())
    }

    /// A list of all pods as kubectl asks for it.
    async fn list_by_pages(&self) -> Result<(), Failure> {
        let pages = async {
            let (mut next, mut bytes, mut latencies) = (Some(String::new()), 0, Vec::new());
            while let Some(token) = next {
                let sent = Instant::now();
                let (size, following) = page(self.client(), &token).await?;
                latencies.push(sent.elapsed());
                bytes += size;
                next = following;
            }
            Ok((bytes, latencies))
        };
        let ((bytes, mut latencies), took, used) = self.timed(pages).await?;
        Line::new("million_list_paged")
            .figure("pages", latencies.len() as f64)
            .figure("megabytes", bytes as f64 / 1e6)
            .figure("s", took.as_secs_f64())
            .precise("cpu_s", used)
            .latencies(&mut latencies)
            .print();
        Ok(())
    }

    /// The same as a stream of what there is, as informers ask for it.
    async fn list_by_stream(&self) -> Result<(), Failure> {
        let path =
            "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let stream = async {
            let (mut events, mut bytes, mut over) = (0_usize, 0_usize, false);
            let mut lines = self.outside.watch(path, load::JSON.accept).await?;
            while !over {
                let read = lines.next(|line| {
                    bytes += line.len();
                    events += usize::from(line.starts_with(b"{\"type\":\"ADDED\""));
                    over |= line.starts_with(b"{\"type\":\"BOOKMARK\"");
                });
                read.await?;
            }
            Ok((events, bytes))
        };
        let ((events, bytes), took, used) = self.timed(stream).await?;
        Line::new("million_list_streamed")
            .figure("pods", events as f64)
            .figure("megabytes", bytes as f64 / 1e6)
            .figure("s", took.as_secs_f64())
            .precise("cpu_s", used)
            .print();
        Ok(())
    }

    /// From the sending of a create until a watcher hears of its node.
    async fn bind_one_by_one(&self) -> Result<(), Failure> {
        let space = "bench-million-one";
        self.outside.space(space).await?;
        let mut bound = bind::Bound::watch(&self.outside, space).await?;
        let (mut latencies, path) = (Vec::with_capacity(ONE_BY_ONE), format!("/api/v1/namespaces/{space}/pods"));
        for number in 0..ONE_BY_ONE {
            let pod = pods::pod(&format!("one-{number}"), "");
            let sent = Instant::now();
            load::send(self.client(), Method::POST, &path, Some(pod)).await?;
            bound.reach(number + 1).await?;
            latencies.push(sent.elapsed());
        }
        Line::new("million_bind").latencies(&mut latencies).at_most("p50_ms", 5.0).print();
        Ok(())
    }

    /// It stops and starts; the nodes go on all the while.
    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.stop().await;
        let begun = Instant::now();
        self.server.spawn();
        self.server.ready_within(PATIENCE(self.pods)).await;
        let ready = begun.elapsed();
        Line::new("million_restart")
            .figure("pods", self.pods as f64)
            .figure("ms", ready.as_secs_f64() * 1e3)
            .figure("megabytes", resident_megabytes(self.id()?)?)
            .at_most("ms", 10_000.0)
            .print();
        Ok(())
    }
}

fn is_ready(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"\"reason\":\"KubeletReady\"").is_some()
}

/// The uid in an event's line.
fn uid(line: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"\"uid\":\"";
    let rest = &line[memchr::memmem::find(line, KEY)? + KEY.len()..];
    Some(rest[..memchr::memchr(b'"', rest)?].to_vec())
}

/// A page of all pods, as how many bytes it was, and the token of the next.
async fn page(client: &Client, token: &str) -> Result<(usize, Option<String>), Failure> {
    const KEY: &[u8] = b"\"continue\":\"";
    let path = format!("/api/v1/pods?limit={PAGE}&continue={token}");
    let request = http::Request::get(path).header("accept", load::JSON.accept).body(Body::Empty)?;
    let response = client.request(request).await?;
    if !response.status().is_success() {
        return Err(format!("a page was answered {}", response.status()).into());
    }
    let Payload::Stream(mut chunks) = response.into_body() else { return Err("no bytes".into()) };
    // The list says what it is before its items.
    let (mut size, mut head) = (0, Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        size += chunk.len();
        if head.len() < 1024 {
            head.extend_from_slice(&chunk[..chunk.len().min(1024)]);
        }
    }
    let next = memchr::memmem::find(&head, KEY).map(|at| &head[at + KEY.len()..]);
    let next = next.and_then(|rest| Some(String::from_utf8_lossy(&rest[..memchr::memchr(b'"', rest)?]).into_owned()));
    Ok((size, next))
}
