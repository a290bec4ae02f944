//! Create to bound, through a real API server with a durable store: pods per second.
//!
//! `cargo run --release -p scheduler --example through_api [nodes] [pods]`

use std::time::Instant;

use client::{Client, Patch};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery::rest::User;
use scheduler::Config;
use scheduler::testing::{container, node, pod};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Requests at the same time.
const AT_ONCE: usize = 64;

async fn add_node(client: Client, index: usize) {
    let wanted = node(&format!("node-{index}")).cpu("4").memory("32Gi").build();
    let mut made: Node = client.create(&wanted).await.expect("a node");
    made.status = wanted.status;
    client.update_status(&made).await.expect("its status");
    let ready = Patch::Merge(json!({ "spec": { "taints": null } }));
    client.patch::<Node>("", &format!("node-{index}"), &ready).await.expect("an untainted node");
}

async fn add_pod(client: Client, index: usize) {
    let mut pod = pod(&format!("pod-{index}")).with(container("c").cpu("100m").memory("500Mi").image("pause")).build();
    (pod.metadata.uid, pod.metadata.resource_version, pod.status) = (None, None, None);
    client.create(&pod).await.expect("a pod");
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let (nodes, pods) = (arguments.next().unwrap_or(1_000), arguments.next().unwrap_or(5_000));
    let cluster = testkit::Cluster::start().await;
    let client = cluster.in_process();
    futures::stream::iter(0..nodes).for_each_concurrent(AT_ONCE, |i| add_node(client.clone(), i)).await;
    let own = cluster.in_process_as(User::new("system:kube-scheduler", ["system:authenticated"]));
    let stop = CancellationToken::new();
    let running = tokio::spawn(scheduler::run(Config::default(), own, stop.clone()));
    let informers = informer::Informers::new(client.clone());
    let informer = informers.of::<Pod>();
    let (done, mut bound) = tokio::sync::mpsc::unbounded_channel();
    informer.subscribe(move |change| {
        let is_bound = |p: &Pod| p.spec.as_ref().and_then(|s| s.node_name.as_ref()).is_some();
        if change.after().is_some_and(|p| is_bound(p)) && !change.before().is_some_and(|p| is_bound(p)) {
            let _ = done.send(());
        }
    });
    informer.synced().await;
    let began = Instant::now();
    futures::stream::iter(0..pods).for_each_concurrent(AT_ONCE, |i| add_pod(client.clone(), i)).await;
    let created = began.elapsed();
    for _ in 0..pods {
        bound.recv().await.expect("the informer lives");
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{pods} pods at {nodes} nodes: {:.0} created/s, {:.0} created and bound/s",
        pods as f64 / created.as_secs_f64(),
        pods as f64 / took
    );
    stop.cancel();
    running.await.expect("the scheduler does not panic").expect("the scheduler ends well");
}
