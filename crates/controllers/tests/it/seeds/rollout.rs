//! A Deployment of eight, updated again and again: never more than ten pods, never a step that takes known available ones below six, no pod without an owner, and in
//! the end eight of the last version.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Ordeal, name};
use crate::api::Happened;
use crate::workloads::deployment;
use crate::world::resource;

/// Eight less the quarter that may be missing.
const LEAST: i64 = 6;

/// What ReplicaSets say about themselves, as far as their story was followed. A controller can keep no promise about pods that nobody has told it of, so
/// this is what it is measured by: the sizes, and how many pods were reported to be available.
#[derive(Default)]
struct Story {
    seen: u64,
    /// Sizes and available pods, by name.
    sets: BTreeMap<String, (i64, i64)>,
}

impl Story {
    /// Pods that are known to be available and that their ReplicaSets may keep.
    fn available(&self) -> i64 {
        self.sets.values().map(|(size, available)| size.min(available)).sum()
    }

    /// The chapters since the last call: what a step that shrank something left, where that was fewer than before.
    fn shrunk(&mut self, ordeal: &Ordeal) -> Vec<i64> {
        let (revision, chapters) = ordeal
            .world
            .api
            .with(|store| (store.revision(), store.history(resource::<ReplicaSet>(), "default", self.seen)));
        self.seen = revision;
        let mut left = Vec::new();
        for (happened, set) in chapters {
            let before = (self.available(), self.sets.get(name(&set)).map(|(size, _)| *size));
            if happened == Happened::Deleted {
                self.sets.remove(name(&set));
                continue;
            }
            let count = |path: &str| machinery::value::int(&set, path).unwrap_or_default();
            let size = count("spec.replicas");
            self.sets.insert(name(&set).to_owned(), (size, count("status.availableReplicas")));
            let shrank = before.1.is_some_and(|before| size < before);
            if shrank && self.available() < before.0 {
                left.push(self.available());
            }
        }
        left
    }
}

fn is_available(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["conditions"][0]["status"] == "True"
}

pub async fn run(seed: u64) {
    let mut ordeal = Ordeal::new(seed, "deployment-controller,replicaset-controller");
    // Half of the runs are with people who delete pods.
    let kills = seed.is_multiple_of(2);
    // What people took away is not owed: a decision may be older than a deletion by hand.
    let (mut story, mut taken) = (Story::default(), 0);
    ordeal.world.put::<Deployment>(deployment("web", 8, "v0"));
    for step in 0..20 {
        match ordeal.choose(4) {
            0 => ordeal.world.edit::<Deployment>("default", "web", |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("v{step}"));
            }),
            1 if kills => {
                if let Some(pod) = ordeal.any_pod() {
                    taken += i64::from(is_available(&pod));
                    ordeal.world.delete::<Pod>("default", name(&pod), "Background");
                }
            }
            _ => ordeal.strike(),
        }
        ordeal.tick().await;
        let live = ordeal.live();
        assert!(live.len() <= 10, "seed {seed}, step {step}: {} pods", live.len());
        for left in story.shrunk(&ordeal) {
            assert!(left >= LEAST - taken, "seed {seed}, step {step}: a step left {left} of {LEAST} available");
        }
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
