//! Preemption among replicas: few kinds of pods, so that what was remembered for one is used for the next, while evictions are
//! under way, promises stand, budgets change and nodes come and go. Every cycle is checked against the slow way.

use std::sync::Arc;

use informer::clock::Fake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::World;
use super::random::{ZONE, check_eviction, one, surroundings};
use crate::config::Configuration;
use crate::config::registry::Registry;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::scheduling::{Effect, PreemptJob, Scheduler};
use crate::testing::{container, node, pod};

/// A scheduler, the cluster as the slow way sees it, and the evictions under way.
struct Run {
    seed: u64,
    scheduler: Scheduler,
    world: World,
    waiting: Vec<Arc<PodInfo>>,
    jobs: Vec<PreemptJob>,
    next: usize,
}

fn some_node(rng: &mut SmallRng, index: usize) -> Node {
    let name = format!("n{index}");
    node(&name).cpu(one(rng, &["1", "2", "2"])).memory("8Gi").pods(rng.random_range(3..7)).label(ZONE, "a").build()
}

/// One of few kinds; now and then one that looks at others, for which nothing may be remembered.
fn some_pod(rng: &mut SmallRng, index: usize) -> Pod {
    let mut c = container("c").cpu(one(rng, &["300m", "700m", "1"]));
    if rng.random_bool(0.1) {
        c = c.host_port("", "TCP", 8000);
    }
    let mut builder = pod(&format!("p{index}")).with(c).label("app", one(rng, &["web", "db"]));
    if rng.random_bool(0.05) {
        // Never important enough to be promised anything: as upstream's, the scheduler looks at the refusals of promised pods
        // only when there are others.
        return builder.anti_affinity("app", "web", "kubernetes.io/hostname").build();
    }
    builder = builder.priority(one(rng, &["0", "0", "10", "100"]).parse().unwrap_or_default());
    if rng.random_bool(0.05) {
        builder = builder.spread(2, "kubernetes.io/hostname", "DoNotSchedule", "app", "db");
    }
    builder.build()
}

impl Run {
    fn new(seed: u64, rng: &mut SmallRng) -> Self {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let scheduler =
            Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, seed).unwrap();
        let mut run = Self { seed, scheduler, world: World::default(), waiting: Vec::new(), jobs: Vec::new(), next: 0 };
        for index in 0..rng.random_range(2..7) {
            let node = Arc::new(some_node(rng, index));
            run.scheduler.observe(None, Some(Object::Node(node.clone())));
            run.world.nodes.push(node);
        }
        surroundings(rng, &mut run.scheduler, &mut run.world);
        run
    }

    fn step(&mut self, rng: &mut SmallRng) {
        match rng.random_range(0..12) {
            0..6 => {
                let pod = Arc::new(PodInfo::new(Arc::new(some_pod(rng, self.next))));
                self.next += 1;
                self.waiting.push(pod.clone());
                self.scheduler.observe(None, Some(Object::Pod(pod)));
            }
            6..9 if !self.jobs.is_empty() => {
                let job = self.jobs.swap_remove(rng.random_range(0..self.jobs.len()));
                job.victims.iter().for_each(|victim| self.leave(victim));
                self.scheduler.preempted(&job.preemptor, false);
            }
            9 if !self.world.placed.is_empty() => {
                let gone = self.world.placed[rng.random_range(0..self.world.placed.len())].0.clone();
                self.leave(&gone);
            }
            10 if !self.waiting.is_empty() => {
                let gone = self.waiting.swap_remove(rng.random_range(0..self.waiting.len()));
                self.scheduler.observe(Some(Object::Pod(gone)), None);
            }
            11 => {
                let (nodes, budgets) = (self.world.nodes.len(), self.world.budgets.len());
                if budgets > 0 && rng.random_bool(0.5) {
                    let position = rng.random_range(0..budgets);
                    let old = self.world.budgets[position].object(&format!("b{position}"));
                    self.world.budgets[position].allowed = rng.random_range(0..3);
                    let new = self.world.budgets[position].object(&format!("b{position}"));
                    self.scheduler.observe(Some(old), Some(new));
                } else {
                    let position = rng.random_range(0..nodes);
                    let new = Arc::new(some_node(rng, position));
                    let old = std::mem::replace(&mut self.world.nodes[position], new.clone());
                    self.scheduler.observe(Some(Object::Node(old)), Some(Object::Node(new)));
                }
            }
            _ => {}
        }
        for _ in 0..rng.random_range(0..4) {
            if !self.cycle() {
                break;
            }
        }
        self.scheduler.check_invariants().unwrap();
    }

    fn leave(&mut self, pod: &Arc<PodInfo>) {
        if let Some(position) = self.world.placed.iter().position(|(p, _)| p.uid() == pod.uid()) {
            let (gone, _) = self.world.placed.swap_remove(position);
            self.scheduler.observe(Some(Object::Pod(gone)), None);
        }
    }

    /// One cycle, and whether it did what the slow way would do.
    fn cycle(&mut self) -> bool {
        self.world.promised = self.scheduler.nominated();
        if !self.scheduler.schedule_one() {
            return false;
        }
        let (mut bound, mut failed, mut preempting) = (None, None, None);
        for effect in self.scheduler.take_effects() {
            match effect {
                Effect::Bind(job) => bound = Some((job.pod, job.node)),
                Effect::Preempt(job) => preempting = Some(job),
                Effect::Record(event) if event.reason == "FailedScheduling" => failed = Some(event.pod),
                _ => {}
            }
        }
        let (seed, world) = (self.seed, &self.world);
        let about = |pod: &PodInfo| format!("seed {seed}, pod {}: {:#?}", pod.name(), pod.object());
        if let Some(pod) = failed {
            let open = world.best(&pod);
            assert!(open.is_empty(), "not placed, but {open:?} would do; {}", about(&pod));
            check_eviction(world, &pod, preempting.as_ref(), &|| about(&pod));
            self.jobs.extend(preempting);
        }
        if let Some((pod, node)) = bound {
            let best = world.best(&pod);
            assert!(best.iter().any(|b| **b == *node), "on {node}, expected one of {best:?}; {}", about(&pod));
            self.waiting.retain(|p| p.uid() != pod.uid());
            self.scheduler.bound(pod.uid());
            let mut confirmed = pod.object().map(|pod| Pod::clone(pod)).expect("it was made from an object");
            confirmed.spec.get_or_insert_default().node_name = Some(node.to_string());
            // Nobody starts at the same time as another, so that it is clear who is more important.
            self.next += 1;
            let began = Timestamp::from_second(self.next as i64).expect("a small number");
            confirmed.status.get_or_insert_default().start_time = Some(Time(began));
            let confirmed = Arc::new(PodInfo::new(Arc::new(confirmed)));
            self.scheduler.observe(Some(Object::Pod(pod)), Some(Object::Pod(confirmed.clone())));
            self.scheduler.take_effects();
            self.world.placed.push((confirmed, node.to_string()));
        }
        true
    }
}

#[test]
fn what_is_remembered_is_what_would_be_found() {
    let mut evictions = 0;
    for seed in super::seeds(1000) {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let mut run = Run::new(seed, rng);
        for _ in 0..80 {
            run.step(rng);
            evictions += run.jobs.len();
        }
    }
    assert!(evictions > 0, "without evictions nothing was checked");
}
