//! Random clusters and pods, and the comparison of both schedulers on them, seed by seed.

use std::sync::Arc;

use informer::clock::Fake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::World;
use crate::config::Configuration;
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::registry::Registry;
use crate::scheduler::{Effect, Scheduler};
use crate::testing::{container, node, pod};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn one<'a>(rng: &mut SmallRng, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

pub(super) fn random_node(rng: &mut SmallRng, index: usize) -> Node {
    let mut builder =
        node(&format!("n{index}")).cpu(one(rng, &["1", "2", "4"])).memory(one(rng, &["1Gi", "2Gi", "8Gi"]));
    builder = builder.pods(rng.random_range(2..8));
    if rng.random_bool(0.85) {
        builder = builder.label(ZONE, one(rng, &["a", "b", "c"]));
    }
    if rng.random_bool(0.3) {
        builder = builder.label("disk", one(rng, &["ssd", "hdd"]));
    }
    if rng.random_bool(0.2) {
        builder = builder.taint(
            "dedicated",
            one(rng, &["x", "y"]),
            one(rng, &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        );
    }
    if rng.random_bool(0.05) {
        builder = builder.unschedulable();
    }
    builder.build()
}

pub(super) fn random_pod(rng: &mut SmallRng, index: usize) -> Pod {
    const APPS: &[&str] = &["web", "db", "cache"];
    let mut c = container("c").cpu(one(rng, &["0", "100m", "300m", "1"])).memory(one(rng, &["0", "128Mi", "700Mi"]));
    if rng.random_bool(0.1) {
        c = c.host_port("", "TCP", rng.random_range(8000..8003));
    }
    let mut builder = pod(&format!("p{index}")).with(c).label("app", one(rng, APPS));
    if rng.random_bool(0.2) {
        builder = builder.namespace("other");
    }
    if rng.random_bool(0.3) {
        builder = builder.tolerates("dedicated", "Exists", "", one(rng, &["", "NoSchedule", "PreferNoSchedule"]));
    }
    if rng.random_bool(0.15) {
        builder = builder.node_selector("disk", one(rng, &["ssd", "hdd"]));
    }
    if rng.random_bool(0.15) {
        builder = builder.node_affinity(ZONE, one(rng, &["In", "NotIn"]), &[one(rng, &["a", "b", "c"])]);
    }
    if rng.random_bool(0.2) {
        builder = builder.prefers_node(rng.random_range(1..100), "disk", "In", &["ssd"]);
    }
    let key = |rng: &mut SmallRng| one(rng, &[ZONE, HOST]);
    if rng.random_bool(0.15) {
        builder = builder.affinity_to("app", one(rng, APPS), key(rng));
    }
    if rng.random_bool(0.15) {
        builder = builder.anti_affinity("app", one(rng, APPS), key(rng));
    }
    if rng.random_bool(0.2) {
        builder = builder.prefers_near(rng.random_range(1..100), "app", one(rng, APPS), key(rng));
    }
    if rng.random_bool(0.2) {
        builder = builder.prefers_away(rng.random_range(1..100), "app", one(rng, APPS), key(rng));
    }
    for _ in 0..rng.random_range(0..3) {
        if rng.random_bool(0.3) {
            let when = one(rng, &["DoNotSchedule", "ScheduleAnyway"]);
            let (min, policy) = (rng.random_range(0..4), one(rng, &["Honor", "Ignore"]));
            builder = builder.spread(rng.random_range(1..3), key(rng), when, "app", one(rng, APPS)).last_spread(|c| {
                c.min_domains = (min > 0 && c.when_unsatisfiable == "DoNotSchedule").then_some(min);
                c.node_taints_policy = Some(policy.into());
            });
        }
    }
    builder.build()
}

fn check(seed: u64) {
    let rng = &mut SmallRng::seed_from_u64(seed);
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let mut scheduler =
        Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, seed).unwrap();
    let mut world = World::default();
    for index in 0..rng.random_range(1..9) {
        let node = Arc::new(random_node(rng, index));
        scheduler.observe(None, Some(Object::Node(node.clone())));
        world.nodes.push(node);
    }
    for index in 0..40 {
        disturb(rng, &mut scheduler, &mut world);
        let incoming = random_pod(rng, index);
        let info = PodInfo::new(Arc::new(incoming.clone()));
        let expected = world.best(&info);
        scheduler.observe(None, Some(Object::Pod(Arc::new(incoming.clone()))));
        while scheduler.schedule_one() {}
        let mut bound = None;
        for effect in scheduler.take_effects() {
            if let Effect::Bind(job) = effect
                && job.pod.uid() == info.uid()
            {
                bound = Some(job.node.to_string());
            }
        }
        let about = || format!("seed {seed}, pod {index}: {incoming:#?}");
        match &bound {
            Some(node) => {
                assert!(expected.contains(node), "placed on {node}, expected one of {expected:?}; {}", about())
            }
            None => assert!(expected.is_empty(), "not placed, but {expected:?} would do; {}", about()),
        }
        match bound {
            Some(node) => {
                scheduler.bound(info.uid());
                let mut confirmed = incoming.clone();
                confirmed.spec.get_or_insert_default().node_name = Some(node.clone());
                scheduler
                    .observe(Some(Object::Pod(Arc::new(incoming))), Some(Object::Pod(Arc::new(confirmed.clone()))));
                world.place(confirmed, &node);
            }
            None => scheduler.observe(Some(Object::Pod(Arc::new(incoming))), None),
        }
        scheduler.take_effects();
        scheduler.check_invariants().unwrap();
    }
}

/// Something else happens in the cluster.
fn disturb(rng: &mut SmallRng, scheduler: &mut Scheduler, world: &mut World) {
    if rng.random_bool(0.1) && !world.placed.is_empty() {
        let (gone, _) = world.placed.swap_remove(rng.random_range(0..world.placed.len()));
        scheduler.observe(Some(Object::Pod(gone.pod.clone())), None);
    }
    if rng.random_bool(0.1) && !world.placed.is_empty() {
        // A pod begins to leave: spreading no longer counts it, but it takes its room.
        let position = rng.random_range(0..world.placed.len());
        let old = world.placed[position].0.pod.clone();
        let mut leaving = (*old).clone();
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        let leaving = Arc::new(leaving);
        scheduler.observe(Some(Object::Pod(old)), Some(Object::Pod(leaving.clone())));
        world.placed[position].0 = Arc::new(PodInfo::new(leaving));
    }
    if rng.random_bool(0.1) {
        let position = rng.random_range(0..world.nodes.len());
        let old = world.nodes[position].clone();
        let index = old.metadata.name.as_deref().and_then(|n| n[1..].parse().ok()).unwrap_or(0);
        let new = Arc::new(random_node(rng, index));
        scheduler.observe(Some(Object::Node(old)), Some(Object::Node(new.clone())));
        world.nodes[position] = new;
    }
}

#[test]
fn placements_are_legal_and_of_the_best_score() {
    for seed in super::seeds(300) {
        check(seed);
    }
}
