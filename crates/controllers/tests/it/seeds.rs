//! Random kills, dropped watches and conflicts during rollouts. A failure names its seed.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::api::Faults;
use crate::workloads::deployment;
use crate::world::World;

/// How many seeds are tried; `CONTROLLERS_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("CONTROLLERS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60)
}

fn choose(state: &mut u64, among: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % among
}

/// Live pods: those that are not on their way out.
fn live(world: &World) -> usize {
    world.list::<Pod>("default").iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
}

async fn rollout(seed: u64) {
    let faults = Faults { seed, conflicts: 7, drops: 11 };
    let mut world = World::with("deployment-controller,replicaset-controller", faults);
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    world.nodes(3);
    world.put::<Deployment>(deployment("web", 8, "v0"));
    for step in 0..25 {
        match choose(&mut state, 6) {
            0 => world.restart(),
            1 => world.edit::<Deployment>("default", "web", |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("v{step}"));
            }),
            2 => {
                let pods = world.list::<Pod>("default");
                if let Some(pod) = pods.get(choose(&mut state, 8) as usize) {
                    let name = pod.metadata.name.clone().unwrap_or_default();
                    world.delete::<Pod>("default", &name, "Background");
                }
            }
            3 => world.clock.advance(Duration::from_millis(choose(&mut state, 3000))),
            _ => {
                world.run_pods();
            }
        }
        for _ in 0..choose(&mut state, 4) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // 8 wanted, 25% more during a rollout, whatever happens.
        assert!(live(&world) <= 10, "seed {seed}, step {step}: {} pods", live(&world));
    }
    world.api.with(crate::api::Store::calm);
    world.pass(Duration::from_secs(120)).await;
    let done = world.get::<Deployment>("default", "web").expect("the deployment is there");
    let status = done.status.clone().unwrap_or_default();
    assert_eq!(
        (status.replicas, status.updated_replicas, status.available_replicas),
        (Some(8), Some(8), Some(8)),
        "seed {seed}"
    );
    assert_eq!(status.observed_generation, done.metadata.generation, "seed {seed}");
    assert_eq!(world.list::<Pod>("default").len(), 8, "seed {seed}");
    let sizes: i32 = world.list::<ReplicaSet>("default").iter().filter_map(|set| set.spec.replicas).sum();
    assert_eq!(sizes, 8, "seed {seed}");
}

#[test]
fn rollouts_converge_whatever_happens_and_never_exceed_the_surge() {
    for seed in 1..=seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(rollout(seed));
    }
}
