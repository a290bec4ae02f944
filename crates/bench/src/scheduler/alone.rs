//! Scheduling alone: how many pods per second the state machine places, without any API, and what it keeps in memory.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Node;
use scheduler::config::Configuration;
use scheduler::config::registry::Registry;
use scheduler::model::objects::Object;
use scheduler::model::pod::{PodInfo, Shapes};
use scheduler::{Effect, Scheduler};
use serde_json::Value;

use super::workload::{self, WORKLOADS, Workload};
use crate::process::resident_megabytes;
use crate::report::Line;

/// Of the churn one pod comes for so many measured ones: at some thousand pods a second that is upstream's pace.
const MEASURED_PER_CHURN: usize = 500;

/// The workloads for which `is_wanted`, the large one for memory too.
pub fn all(is_wanted: impl Fn(&str) -> bool) {
    for workload in WORKLOADS.iter().filter(|w| is_wanted(w.name)) {
        let line = run(workload);
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
                    Effect::PatchStatus { pod, patch } => {
                        // The API tells what it was told.
                        if let Some(node) = patch["status"]["nominatedNodeName"].as_str() {
                            let nominated = Arc::new(pod.nominated_to(node, "2"));
                            self.scheduler.observe(Some(Object::Pod(pod)), Some(Object::Pod(nominated)));
                        }
                    }
                    Effect::Record(_) => {}
                }
            }
        }
        self.scheduler.take_effects();
        (bound, evicted)
    }
}

fn run(workload: &Workload) -> Line {
    let Workload { name, nodes, pods, churn, pod, .. } = *workload;
    let init = (workload.init)(nodes);
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
    let mut incoming = Vec::with_capacity(pods);
    for number in 0..pods {
        incoming.push(rig.pod(&pod(number)));
        if let Some(churn) = churn.filter(|_| number % MEASURED_PER_CHURN == 0) {
            incoming.push(rig.pod(&churn(pods + number)));
        }
    }
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
