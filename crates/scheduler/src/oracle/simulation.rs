//! Nothing is lost: a simulated API with delays, failures and lost answers, and a scheduler that is killed now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use informer::clock::Fake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::World;
use super::random::random_pod;
use crate::config::Configuration;
use crate::config::registry::Registry;
use crate::framework::api::ApiFailure;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::scheduling::{BindJob, Effect, Scheduler};
use crate::testing::node;

/// The API server and everything between it and the scheduler.
struct Simulation {
    rng: SmallRng,
    seed: u64,
    clock: Arc<Fake>,
    scheduler: Scheduler,
    version: u64,
    nodes: BTreeMap<String, Arc<Node>>,
    pods: BTreeMap<String, Arc<PodInfo>>,
    /// Changes on their way to the scheduler, in order.
    watch: VecDeque<(Option<Object>, Option<Object>)>,
    requests: Vec<BindJob>,
    /// Copies of requests that nobody waits for any more, but which may still arrive.
    stragglers: Vec<(Arc<PodInfo>, Arc<str>)>,
    /// No more trouble from here on.
    healed: bool,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let mut simulation = Self {
            rng: SmallRng::seed_from_u64(seed),
            seed,
            scheduler: start(&clock, seed),
            clock,
            version: 0,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            watch: VecDeque::new(),
            requests: Vec::new(),
            stragglers: Vec::new(),
            healed: false,
        };
        for index in 0..simulation.rng.random_range(2..6) {
            simulation.add_node(index);
        }
        simulation
    }

    fn add_node(&mut self, index: usize) {
        let node = Arc::new(
            node(&format!("n{index}")).cpu("4").memory("8Gi").pods(12).label(super::random::ZONE, "a").build(),
        );
        self.nodes.insert(format!("n{index}"), node.clone());
        self.watch.push_back((None, Some(Object::Node(node))));
    }

    fn write(&mut self, mut pod: Pod) {
        self.version += 1;
        pod.metadata.resource_version = Some(self.version.to_string());
        let key = pod.metadata.name.clone().unwrap_or_default();
        let pod = Arc::new(PodInfo::new(Arc::new(pod)));
        let old = self.pods.insert(key, pod.clone()).map(Object::Pod);
        self.watch.push_back((old, Some(Object::Pod(pod))));
    }

    fn remove(&mut self, name: &str) {
        if let Some(old) = self.pods.remove(name) {
            self.watch.push_back((Some(Object::Pod(old)), None));
        }
    }

    /// A new scheduler takes over with what the API has. Of the old one's requests some still arrived, but nobody heard
    /// the answers; the lease keeps any from arriving after the new one has begun.
    fn kill(&mut self) {
        for job in std::mem::take(&mut self.requests) {
            if self.rng.random_bool(0.5) {
                // Whether it was refused, the old scheduler will not know.
                let _ = self.bind(&job.pod, &job.node);
            }
        }
        self.stragglers.clear();
        self.scheduler = start(&self.clock, self.seed + self.version);
        self.watch.clear();
        self.watch.extend(self.nodes.values().map(|n| (None, Some(Object::Node(n.clone())))));
        self.watch.extend(self.pods.values().map(|p| (None, Some(Object::Pod(p.clone())))));
        // It schedules nothing before it knows what there is.
        self.deliver(usize::MAX);
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some((old, new)) = self.watch.pop_front() else { return };
            self.scheduler.observe(old, new);
        }
    }

    fn collect(&mut self) {
        for effect in self.scheduler.take_effects() {
            match effect {
                Effect::Bind(job) => self.requests.push(job),
                Effect::Preempt(job) => {
                    for victim in &job.victims {
                        self.remove(victim.name());
                    }
                    self.scheduler.preempted(&job.preemptor, false);
                }
                Effect::PatchStatus { pod, patch } => self.patch(&pod, &patch),
                Effect::Record(_) => {}
            }
        }
    }

    fn patch(&mut self, pod: &PodInfo, patch: &serde_json::Value) {
        let Some(held) = self.pods.get(pod.name()).filter(|p| p.uid() == pod.uid()) else { return };
        let mut held = object(held);
        if let Some(value) = patch["status"].get("nominatedNodeName") {
            held.status.get_or_insert_default().nominated_node_name = value.as_str().map(str::to_owned);
        }
        self.write(held);
    }

    /// What the API makes of a binding that reaches it.
    fn bind(&mut self, pod: &PodInfo, node: &str) -> Result<(), ApiFailure> {
        let name = pod.name();
        let pod = self.pods.get(name).filter(|p| p.uid() == pod.uid()).cloned();
        let Some(pod) = pod.filter(|_| self.nodes.contains_key(node)) else {
            return Err(ApiFailure::NotFound(format!("pods {name:?} not found")));
        };
        if pod.node_name().is_some() {
            // The API binds a pod once: this is what keeps two schedulers from doing harm.
            return Err(ApiFailure::Conflict(format!("pod {name} is already assigned")));
        }
        let mut bound = object(&pod);
        bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
        self.write(bound);
        Ok(())
    }

    /// A binding reaches the API, is lost, is held up, or its answer is lost; then it is sent again until its fate is known.
    fn answer(&mut self, job: BindJob) {
        let uid = job.pod.uid().clone();
        let fate = if self.healed { 0 } else { self.rng.random_range(0..10) };
        if fate == 1 || fate == 2 {
            if fate == 2 {
                self.stragglers.push((job.pod.clone(), job.node.clone()));
            }
            return self.requests.push(job);
        }
        let answer = match self.bind(&job.pod, &job.node) {
            Err(ApiFailure::Conflict(_)) if self.is_bound(&job) => Ok(()),
            answer => answer,
        };
        match (fate, answer) {
            (3, _) => self.requests.push(job),
            (_, Ok(())) => self.scheduler.bound(&uid),
            (_, Err(refusal)) => self.scheduler.bind_failed(&uid, &refusal),
        }
    }

    fn is_bound(&self, job: &BindJob) -> bool {
        self.pods.get(job.pod.name()).is_some_and(|p| p.uid() == job.pod.uid() && p.node_name() == Some(&*job.node))
    }

    /// A copy of a request arrives after all.
    fn straggle(&mut self) {
        if !self.stragglers.is_empty() {
            let position = self.rng.random_range(0..self.stragglers.len());
            let (pod, node) = self.stragglers.swap_remove(position);
            // Nobody hears whether it was refused.
            let _ = self.bind(&pod, &node);
        }
    }

    fn step(&mut self, next_pod: &mut usize) {
        match self.rng.random_range(0..21) {
            0..5 => {
                let pod = random_pod(&mut self.rng, *next_pod);
                *next_pod += 1;
                self.write(pod);
            }
            5 if !self.pods.is_empty() => {
                let position = self.rng.random_range(0..self.pods.len());
                let name = self.pods.keys().nth(position).cloned().unwrap_or_default();
                self.remove(&name);
            }
            6 if self.nodes.len() > 1 => {
                let position = self.rng.random_range(0..self.nodes.len());
                let name = self.nodes.keys().nth(position).cloned().unwrap_or_default();
                let gone = self.nodes.remove(&name).expect("it was just found");
                self.stragglers.retain(|(_, node)| **node != *name);
                self.watch.push_back((Some(Object::Node(gone)), None));
                let stranded: Vec<_> =
                    self.pods.values().filter(|p| p.node_name() == Some(&name)).map(|p| p.name().to_owned()).collect();
                stranded.iter().for_each(|pod| self.remove(pod));
            }
            7 => {
                let index = self.rng.random_range(0..8);
                if !self.nodes.contains_key(&format!("n{index}")) {
                    self.add_node(index);
                }
            }
            8 if self.rng.random_bool(0.2) => self.kill(),
            9..12 => {
                let count = self.rng.random_range(0..6);
                self.deliver(count);
            }
            12..15 => {
                self.scheduler.schedule_one();
            }
            15..18 if !self.requests.is_empty() => {
                let position = self.rng.random_range(0..self.requests.len());
                let job = self.requests.swap_remove(position);
                self.answer(job);
            }
            18 => self.straggle(),
            _ => {
                self.clock.advance(Duration::from_millis(self.rng.random_range(0..3000)));
                self.scheduler.tick();
            }
        }
        self.collect();
    }

    fn settle(&mut self) {
        self.healed = true;
        // As long as anything still changes, and then until every backoff is over and the forgotten were flushed twice.
        let (mut quiet, mut seen) = (Duration::ZERO, self.progress());
        while quiet < Duration::from_secs(620) {
            self.deliver(usize::MAX);
            while self.scheduler.schedule_one() {
                self.collect();
            }
            self.collect();
            for job in std::mem::take(&mut self.requests) {
                self.answer(job);
            }
            self.collect();
            let patience = self.scheduler.next_deadline().map(|at| at.duration_since(self.scheduler.now()));
            let patience = patience.and_then(|patience| patience.try_into().ok()).unwrap_or(Duration::from_secs(60));
            let pause = patience.clamp(Duration::from_secs(1), Duration::from_secs(60));
            self.clock.advance(pause);
            self.scheduler.tick();
            let now = self.progress();
            quiet = if now == seen { quiet + pause } else { Duration::ZERO };
            seen = now;
        }
    }

    /// Changes when pods are bound, come or go.
    fn progress(&self) -> (usize, usize) {
        (self.pods.len(), self.pods.values().filter(|p| p.node_name().is_some()).count())
    }

    fn check(&self) {
        let mut world = World { nodes: self.nodes.values().cloned().collect(), ..Default::default() };
        for pod in self.pods.values() {
            if let Some(node) = pod.node_name() {
                world.placed.push((pod.clone(), node.to_owned()));
            }
        }
        for node in self.nodes.values() {
            let (room, pods) = World::allocatable(node);
            let taken = world.requested(node);
            assert!(
                taken.milli_cpu <= room.milli_cpu && taken.memory <= room.memory,
                "seed {}: overcommitted",
                self.seed
            );
            assert!(world.on(node).count() as i64 <= pods, "seed {}: too many pods", self.seed);
        }
        for pod in self.pods.values().filter(|p| p.node_name().is_none()) {
            let legal = world.best(pod);
            assert!(legal.is_empty(), "seed {}: pod {} is left over, but {legal:?} would do", self.seed, pod.name());
        }
        self.scheduler.check_invariants().unwrap();
    }
}

fn object(pod: &PodInfo) -> Pod {
    pod.object().map(|object| Pod::clone(object)).expect("it was made from an object")
}

fn start(clock: &Arc<Fake>, seed: u64) -> Scheduler {
    Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock.clone(), seed).unwrap()
}

#[test]
fn every_schedulable_pod_ends_bound_and_no_node_is_overcommitted() {
    for seed in super::seeds(2000) {
        let mut simulation = Simulation::new(seed);
        let mut next_pod = 0;
        for _ in 0..200 {
            simulation.step(&mut next_pod);
        }
        simulation.settle();
        simulation.check();
    }
}
