//! Scheduling alone: how many pods per second the state machine places, without any API.
//!
//! `cargo run --release -p scheduler --example alone [nodes] [pods] [kind...]`; without kinds, all of them.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler::config::Configuration;
use scheduler::objects::Object;
use scheduler::registry::Registry;
use scheduler::testing::{PodBuilder, container, node, pod};
use scheduler::{Effect, Scheduler};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const KINDS: &[&str] = &[
    "plain",
    "node-affinity",
    "spread",
    "preferred-affinity",
    "affinity",
    "anti-affinity",
    "unschedulable-mix",
    "preemption",
];

fn nodes(count: usize) -> impl Iterator<Item = Node> {
    (0..count).map(|i| {
        let zone = format!("zone-{}", i % 3);
        node(&format!("node-{i}")).cpu("4").memory("32Gi").label(ZONE, &zone).build()
    })
}

fn plain(index: usize) -> PodBuilder {
    pod(&format!("pod-{index}")).with(container("c").cpu("100m").memory("500Mi").image("registry.k8s.io/pause:3.10"))
}

fn pod_of(kind: &str, index: usize) -> Pod {
    let labelled = |p: PodBuilder| p.label("color", "blue");
    match kind {
        "plain" => plain(index),
        "node-affinity" => plain(index).node_affinity(ZONE, "In", &["zone-0", "zone-1"]),
        "spread" => labelled(plain(index)).spread(5, ZONE, "DoNotSchedule", "color", "blue"),
        "preferred-affinity" => labelled(plain(index)).prefers_near(1, "color", "blue", HOST),
        "affinity" => labelled(plain(index)).affinity_to("color", "blue", ZONE),
        "anti-affinity" => labelled(plain(index)).anti_affinity("color", "green", HOST),
        "unschedulable-mix" if index.is_multiple_of(5) => plain(index).node_selector("no-such", "label"),
        "unschedulable-mix" => plain(index),
        "preemption" => plain(index).priority(10).with(container("d").cpu("3500m")),
        other => panic!("unknown kind {other}"),
    }
    .build()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let node_count: usize = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(5_000);
    let pod_count: usize = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(10_000);
    let chosen: Vec<String> = arguments.collect();
    for kind in KINDS.iter().filter(|k| chosen.is_empty() || chosen.iter().any(|c| c == *k)) {
        run(kind, node_count, pod_count);
    }
}

fn run(kind: &str, node_count: usize, pod_count: usize) {
    let clock = informer::clock::Real::shared();
    let mut scheduler = Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, 1)
        .expect("the default configuration is valid");
    for node in nodes(node_count) {
        scheduler.observe(None, Some(Object::Node(Arc::new(node))));
    }
    if kind == "preemption" {
        for i in 0..node_count * 4 {
            let low = pod(&format!("low-{i}")).cpu("900m").on(&format!("node-{}", i / 4)).build();
            scheduler.observe(None, Some(Object::Pod(Arc::new(low))));
        }
    }
    let pods: Vec<_> = (0..pod_count).map(|i| Object::Pod(Arc::new(pod_of(kind, i)))).collect();
    let began = Instant::now();
    for pod in pods {
        scheduler.observe(None, Some(pod));
    }
    let observed = began.elapsed();
    let began = Instant::now();
    let (mut bound, mut preempted, mut failed) = (0usize, 0usize, 0usize);
    while scheduler.schedule_one() {
        for effect in scheduler.take_effects() {
            match effect {
                Effect::Bind(job) => {
                    bound += 1;
                    scheduler.bound(job.pod.uid());
                }
                Effect::Preempt(_) => preempted += 1,
                Effect::PatchStatus { .. } => failed += 1,
                Effect::Record(_) => {}
            }
        }
        scheduler.take_effects();
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{kind:>20}: {:>8.0} pods/s at {node_count} nodes ({bound} bound, {preempted} preempting, {failed} patched, {took:.2} s; observing took {:.2} s)",
        pod_count as f64 / took,
        observed.as_secs_f64(),
    );
}
