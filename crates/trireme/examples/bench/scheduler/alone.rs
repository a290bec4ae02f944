//! Scheduling alone: how many pods per second the state machine places, without any API, and what it keeps in memory.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Node;
use scheduler::config::Configuration;
use scheduler::objects::Object;
use scheduler::pod::{PodInfo, Shapes};
use scheduler::registry::Registry;
use scheduler::{Effect, Scheduler};
use serde_json::Value;

use super::workload::{self, WORKLOADS};
use crate::report::{Line, resident_megabytes};

/// The named workloads or all of them, the large one for memory too.
pub fn all(named: &[String]) {
    let is_named =
        |name: &str| named.is_empty() || named.iter().any(|n| n == "alone" || n.strip_prefix("alone_") == Some(name));
    for workload in WORKLOADS.iter().filter(|w| is_named(w.name)) {
        let line = run(workload.name, workload.nodes, workload.pods, (workload.init)(workload.nodes), workload.pod);
        match workload.name {
            "plain" => line.at_least("per_second", 20_000.0),
            "large" => line
                .at_most("seconds", 60.0)
                .at_most("bytes_per_node", 8.0 * 1024.0)
                .at_most("bytes_per_pod", 2.0 * 1024.0),
            _ => line,
        }
        .print();
    }
}

fn memory() -> f64 {
    resident_megabytes(std::process::id()).unwrap_or(f64::NAN) * 1024.0 * 1024.0
}

struct Rig {
    scheduler: Scheduler,
    shapes: Shapes,
    next_uid: usize,
}

impl Rig {
    fn pod(&mut self, pod: &Value) -> Arc<PodInfo> {
        self.next_uid += 1;
        Arc::new(PodInfo::shared(&Arc::new(workload::typed(pod, self.next_uid)), &self.shapes, false))
    }

    fn observe(&mut self, pod: Arc<PodInfo>) {
        self.scheduler.observe(None, Some(Object::Pod(pod)));
    }

    /// Schedules until there is nothing to try, and does what that asks for at once.
    fn settle(&mut self) -> (usize, usize) {
        let (mut bound, mut evicted) = (0, 0);
        while self.scheduler.schedule_one() {
            for effect in self.scheduler.take_effects() {
                match effect {
                    Effect::Bind(job) => {
                        bound += 1;
                        let confirmed = Arc::new(job.pod.on_node(&job.node));
                        self.scheduler.bound(job.pod.uid());
                        self.scheduler.observe(Some(Object::Pod(job.pod)), Some(Object::Pod(confirmed)));
                    }
                    Effect::Preempt(job) => {
                        for victim in job.victims {
                            evicted += 1;
                            self.scheduler.observe(Some(Object::Pod(victim)), None);
                        }
                        self.scheduler.preempted(&job.preemptor, false);
                    }
                    Effect::PatchStatus { .. } | Effect::Record(_) => {}
                }
            }
        }
        self.scheduler.take_effects();
        (bound, evicted)
    }
}

fn run(name: &str, nodes: usize, pods: usize, init: workload::Init, pod: fn(usize) -> Value) -> Line {
    let clock = informer::clock::Real::shared();
    let scheduler = Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, 1)
        .expect("the default configuration is valid");
    let mut rig = Rig { scheduler, shapes: Shapes::default(), next_uid: 0 };
    let empty = memory();
    for number in 0..nodes {
        let node: Node =
            serde_json::from_value(workload::node(&format!("node-{number}"), number)).expect("it is a node");
        rig.scheduler.observe(None, Some(Object::Node(Arc::new(node))));
    }
    let with_nodes = memory();
    for number in 0..init.count {
        let pod = rig.pod(&(init.pod)(number));
        rig.observe(pod);
    }
    rig.settle();
    let before = memory();
    let incoming: Vec<_> = (0..pods).map(|number| rig.pod(&pod(number))).collect();
    let began = Instant::now();
    incoming.into_iter().for_each(|pod| rig.observe(pod));
    let (bound, evicted) = rig.settle();
    let seconds = began.elapsed().as_secs_f64();
    Line::new(&format!("alone_{name}"))
        .figure("nodes", nodes as f64)
        .figure("pods", pods as f64)
        .figure("bound", bound as f64)
        .figure("evicted", evicted as f64)
        .figure("seconds", seconds)
        .figure("per_second", pods as f64 / seconds)
        .figure("bytes_per_node", (with_nodes - empty) / nodes as f64)
        .figure("bytes_per_pod", (memory() - before) / pods as f64)
}
