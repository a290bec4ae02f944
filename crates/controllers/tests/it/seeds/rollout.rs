//! A Deployment of eight, updated again and again: never more than ten pods, no pod without an owner, and in the end eight of the last version.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{Ordeal, name};
use crate::workloads::deployment;
use crate::world::resource;

pub async fn run(seed: u64) {
    let mut ordeal = Ordeal::new(seed, "deployment-controller,replicaset-controller");
    // Half of the runs are with people who delete pods.
    let kills = seed.is_multiple_of(2);
    ordeal.world.put::<Deployment>(deployment("web", 8, "v0"));
    for step in 0..20 {
        match ordeal.choose(4) {
            0 => ordeal.world.edit::<Deployment>("default", "web", |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("v{step}"));
            }),
            1 if kills => {
                if let Some(pod) = ordeal.any_pod() {
                    ordeal.world.delete::<Pod>("default", name(&pod), "Background");
                }
            }
            _ => ordeal.strike(),
        }
        ordeal.tick().await;
        let live = ordeal.live();
        assert!(live.len() <= 10, "seed {seed}, step {step}: {} pods", live.len());
        let sets = ordeal.world.api.with(|store| store.list(resource::<ReplicaSet>(), "default"));
        for pod in &live {
            let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
            let owned = sets.iter().any(|set| set["metadata"]["uid"] == *owner);
            assert!(owned, "seed {seed}, step {step}: {} is nobody's", name(pod));
        }
    }
    ordeal.rest().await;
    let done = ordeal.world.get::<Deployment>("default", "web").expect("the deployment is there");
    let status = done.status.clone().unwrap_or_default();
    let counts = (status.replicas, status.updated_replicas, status.available_replicas);
    assert_eq!(counts, (Some(8), Some(8), Some(8)), "seed {seed}");
    assert_eq!(status.observed_generation, done.metadata.generation, "seed {seed}");
    assert_eq!(ordeal.pods().len(), 8, "seed {seed}");
    let sizes: i32 = ordeal.world.list::<ReplicaSet>("default").iter().filter_map(|set| set.spec.replicas).sum();
    assert_eq!(sizes, 8, "seed {seed}");
}
