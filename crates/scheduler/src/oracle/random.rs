//! Random clusters and pods, and the comparison of both schedulers on them, seed by seed.

use std::sync::Arc;

use informer::clock::Fake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod,
    Service, ServiceSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::eviction::Budget;
use super::{Claim, World};
use crate::config::Configuration;
use crate::config::registry::Registry;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::scheduling::{Effect, PreemptJob, Scheduler};
use crate::testing::{container, node, pod, selector};
use rules::selectors::Labels;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const APPS: &[&str] = &["web", "db", "cache"];

pub(super) fn one<'a>(rng: &mut SmallRng, of: &[&'a str]) -> &'a str {
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
    for (image, megabytes) in [("web:v1", 400), ("db:v1", 900), ("cache:latest", 60)] {
        if rng.random_bool(0.3) {
            builder = builder.image(image, megabytes << 20);
        }
    }
    builder.build()
}

pub(super) fn random_pod(rng: &mut SmallRng, index: usize) -> Pod {
    let mut c = container("c").cpu(one(rng, &["0", "100m", "300m", "1"])).memory(one(rng, &["0", "128Mi", "700Mi"]));
    c = c.image(one(rng, &["web:v1", "db:v1", "cache", "unknown:v1"]));
    if rng.random_bool(0.1) {
        c = c.host_port("", "TCP", rng.random_range(8000..8003));
    }
    let mut builder = pod(&format!("p{index}")).with(c).label("app", one(rng, APPS));
    if rng.random_bool(0.5) {
        builder = builder.label("version", one(rng, &["1", "2"]));
    }
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
        let teams = rng.random_bool(0.4).then(|| one(rng, &["red", "blue", "green"]));
        builder = builder.last_affinity(|term| term.namespace_selector = teams.map(|team| selector("team", team)));
    }
    if rng.random_bool(0.15) {
        builder = builder.anti_affinity("app", one(rng, APPS), key(rng));
        let teams = rng.random_bool(0.4).then(|| one(rng, &["red", "blue"]));
        builder = builder.last_anti_affinity(|term| term.namespace_selector = teams.map(|team| selector("team", team)));
    }
    if rng.random_bool(0.2) {
        builder = builder.prefers_near(rng.random_range(1..100), "app", one(rng, APPS), key(rng));
    }
    if rng.random_bool(0.2) {
        builder = builder.prefers_away(rng.random_range(1..100), "app", one(rng, APPS), key(rng));
    }
    if rng.random_bool(0.3) {
        builder = builder.priority(one(rng, &["10", "100"]).parse().unwrap_or_default());
    }
    for _ in 0..rng.random_range(0..3) {
        if rng.random_bool(0.3) {
            let when = one(rng, &["DoNotSchedule", "ScheduleAnyway"]);
            let by_version = rng.random_bool(0.4);
            let (min, policy) = (rng.random_range(0..4), one(rng, &["Honor", "Ignore"]));
            builder = builder.spread(rng.random_range(1..3), key(rng), when, "app", one(rng, APPS)).last_spread(|c| {
                c.min_domains = (min > 0 && c.when_unsatisfiable == "DoNotSchedule").then_some(min);
                c.node_taints_policy = Some(policy.into());
                c.match_label_keys = by_version.then(|| vec!["version".to_owned()]);
            });
        }
    }
    builder.build()
}

/// Claims of namespace `default`: of each zone, one of no zone, one that waits for its pod, one for one pod at all.
fn volumes(scheduler: &mut Scheduler, world: &mut World) {
    let mut claim = |name: &str, claim: Claim| {
        let mode = if claim.exclusive { "ReadWriteOncePod" } else { "ReadWriteMany" };
        let class = Some(if claim.waits { "waits" } else { "" }.to_owned());
        let annotations =
            (!claim.waits).then(|| [("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned())].into());
        let metadata = |namespace: Option<&str>| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            resource_version: Some("1".to_owned()),
            annotations: if namespace.is_some() { annotations.clone() } else { None },
            ..Default::default()
        };
        let spec = PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.to_owned()]),
            storage_class_name: class.clone(),
            volume_name: (!claim.waits).then(|| name.to_owned()),
            ..Default::default()
        };
        let held =
            PersistentVolumeClaim { metadata: metadata(Some("default")), spec: Some(spec), ..Default::default() };
        scheduler.observe(None, Some(Object::PersistentVolumeClaim(Arc::new(held))));
        if !claim.waits {
            let affinity = claim.zone.map(|zone| VolumeNodeAffinity {
                required: pod("x")
                    .node_affinity(ZONE, "In", &[zone])
                    .build()
                    .spec
                    .and_then(|s| s.affinity?.node_affinity?.required_during_scheduling_ignored_during_execution),
            });
            let spec = PersistentVolumeSpec { node_affinity: affinity, ..Default::default() };
            let volume = PersistentVolume { metadata: metadata(None), spec: Some(spec), ..Default::default() };
            scheduler.observe(None, Some(Object::PersistentVolume(Arc::new(volume))));
        }
        world.claims.insert(name.to_owned(), claim);
    };
    for zone in ["a", "b", "c"] {
        claim(&format!("in-{zone}"), Claim { zone: Some(zone), ..Default::default() });
    }
    claim("anywhere", Claim::default());
    claim("waits", Claim { waits: true, ..Default::default() });
    claim("exclusive", Claim { exclusive: true, ..Default::default() });
    let class = StorageClass {
        metadata: ObjectMeta { name: Some("waits".to_owned()), ..Default::default() },
        provisioner: "example.com/disks".to_owned(),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..Default::default()
    };
    scheduler.observe(None, Some(Object::StorageClass(Arc::new(class))));
}

fn with_volume(rng: &mut SmallRng, mut pod: Pod) -> Pod {
    if rng.random_bool(0.25) && pod.metadata.namespace.as_deref() == Some("default") {
        let name = one(rng, &["in-a", "in-b", "in-c", "anywhere", "waits", "exclusive"]);
        let claimed = crate::testing::pod("x").claim(name).build();
        pod.spec.get_or_insert_default().volumes = claimed.spec.and_then(|s| s.volumes);
    }
    pod
}

/// Whether exactly those are evicted whom the slow way would evict, from one of the nodes where that hurts least.
pub(super) fn check_eviction(world: &World, info: &PodInfo, job: Option<&PreemptJob>, about: &dyn Fn() -> String) {
    let expected = world.evictions(info);
    let names = |pods: &mut dyn Iterator<Item = &Arc<PodInfo>>| -> Vec<String> {
        let mut names: Vec<_> = pods.map(|p| p.name().to_owned()).collect();
        names.sort();
        names
    };
    let Some(job) = job else {
        // Nobody need be evicted where all of them are leaving anyway.
        let nobody = expected.is_empty() || expected.iter().any(|e| e.evicted().next().is_none());
        assert!(nobody, "nobody was evicted, expected {expected:#?}; {}", about());
        return;
    };
    let evicted = names(&mut job.victims.iter());
    let is_expected = expected.iter().any(|e| e.node == job.node && names(&mut e.evicted()) == evicted);
    assert!(is_expected, "{evicted:?} evicted from {}, expected {expected:#?}; {}", job.node, about());
}

/// Namespaces with labels, services and budgets.
pub(super) fn surroundings(rng: &mut SmallRng, scheduler: &mut Scheduler, world: &mut World) {
    for (name, team) in [("default", "red"), ("other", "blue")] {
        let labels: Labels = [("team".to_owned(), team.to_owned())].into();
        world.namespaces.insert(name.to_owned(), labels.clone());
        let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..Default::default() };
        scheduler.observe(None, Some(Object::Namespace(Arc::new(Namespace { metadata, ..Default::default() }))));
    }
    for number in 0..rng.random_range(0..3) {
        let namespace = one(rng, &["default", "other"]);
        let selector: Labels = [("app".to_owned(), one(rng, APPS).to_owned())].into();
        world.services.push((namespace.to_owned(), selector.clone()));
        let service = Service {
            metadata: ObjectMeta {
                name: Some(format!("s{number}")),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            spec: Some(ServiceSpec { selector: Some(selector), ..Default::default() }),
            ..Default::default()
        };
        scheduler.observe(None, Some(Object::Service(Arc::new(service))));
    }
    for number in 0..rng.random_range(0..3) {
        let budget = Budget {
            namespace: one(rng, &["default", "other"]).to_owned(),
            app: one(rng, APPS).to_owned(),
            allowed: rng.random_range(0..3),
        };
        scheduler.observe(None, Some(budget.object(&format!("b{number}"))));
        world.budgets.push(budget);
    }
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
    volumes(&mut scheduler, &mut world);
    surroundings(rng, &mut scheduler, &mut world);
    for index in 0..40 {
        disturb(rng, &mut scheduler, &mut world);
        let incoming = random_pod(rng, index);
        let incoming = with_volume(rng, incoming);
        let info = PodInfo::new(Arc::new(incoming.clone()));
        let expected = world.best(&info);
        let observed = Arc::new(PodInfo::new(Arc::new(incoming.clone())));
        scheduler.observe(None, Some(Object::Pod(observed.clone())));
        while scheduler.schedule_one() {}
        let (mut bound, mut preempting) = (None, None);
        for effect in scheduler.take_effects() {
            match effect {
                Effect::Bind(job) if job.pod.uid() == info.uid() => bound = Some(job.node.to_string()),
                Effect::Preempt(job) => preempting = Some(job),
                _ => {}
            }
        }
        let about = || format!("seed {seed}, pod {index}: {incoming:#?}");
        match &bound {
            Some(node) => {
                assert!(expected.contains(node), "placed on {node}, expected one of {expected:?}; {}", about())
            }
            None => {
                assert!(expected.is_empty(), "not placed, but {expected:?} would do; {}", about());
                check_eviction(&world, &info, preempting.as_ref(), &about);
            }
        }
        match bound {
            Some(node) => {
                scheduler.bound(info.uid());
                for claim in info.named_claims() {
                    // From now on the claim is provisioned for this node.
                    if let Some(claim) = world.claims.get_mut(claim).filter(|c| c.waits) {
                        claim.selected = Some(node.clone());
                    }
                }
                let mut confirmed = incoming;
                // Nobody starts at the same time as another, so that it is clear who is more important.
                let began = Timestamp::from_second(index as i64).expect("a small number");
                confirmed.status.get_or_insert_default().start_time = Some(Time(began));
                confirmed.spec.get_or_insert_default().node_name = Some(node.clone());
                let confirmed = Arc::new(PodInfo::new(Arc::new(confirmed)));
                scheduler.observe(Some(Object::Pod(observed)), Some(Object::Pod(confirmed.clone())));
                world.placed.push((confirmed, node));
            }
            None => scheduler.observe(Some(Object::Pod(observed)), None),
        }
        scheduler.take_effects();
        scheduler.check_invariants().unwrap();
    }
}

/// Something else happens in the cluster.
fn disturb(rng: &mut SmallRng, scheduler: &mut Scheduler, world: &mut World) {
    if rng.random_bool(0.1) && !world.placed.is_empty() {
        let (gone, _) = world.placed.swap_remove(rng.random_range(0..world.placed.len()));
        scheduler.observe(Some(Object::Pod(gone)), None);
    }
    if rng.random_bool(0.1) && !world.placed.is_empty() {
        // A pod begins to leave: spreading no longer counts it, but it takes its room.
        let position = rng.random_range(0..world.placed.len());
        let old = world.placed[position].0.clone();
        let mut leaving = old.object().map(|pod| Pod::clone(pod)).expect("it was made from an object");
        leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let leaving = Arc::new(PodInfo::new(Arc::new(leaving)));
        scheduler.observe(Some(Object::Pod(old)), Some(Object::Pod(leaving.clone())));
        world.placed[position].0 = leaving;
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
    for seed in super::seeds(2000) {
        check(seed);
    }
}
