//! A StatefulSet that is updated and resized again and again: never do two pods of one identity run, and in the end there is one of each.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Ordeal, name};

fn stateful(policy: &str) -> Value {
    json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 4, "serviceName": "db", "podManagementPolicy": policy, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "v0"}]},
            },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
    })
}

pub async fn run(seed: u64) {
    let mut ordeal = Ordeal::new(seed, "statefulset-controller");
    let policy = if seed.is_multiple_of(2) { "Parallel" } else { "OrderedReady" };
    ordeal.world.put::<StatefulSet>(stateful(policy));
    let (mut replicas, mut image) = (4, "v0".to_owned());
    for step in 0..24 {
        match ordeal.choose(6) {
            0 => {
                image = format!("v{step}");
                ordeal.world.edit::<StatefulSet>("default", "db", |set| {
                    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                });
            }
            1 => {
                replicas = ordeal.choose(5) + 1;
                ordeal.world.edit::<StatefulSet>("default", "db", |set| set["spec"]["replicas"] = json!(replicas));
            }
            2 => {
                if let Some(pod) = ordeal.any_pod() {
                    ordeal.world.delete::<Pod>("default", name(&pod), "Background");
                }
            }
            _ => ordeal.strike(),
        }
        ordeal.tick().await;
        if let Some(twice) = ordeal.world.running_twice() {
            panic!("seed {seed}, step {step}: two of {twice} run");
        }
        let names: Vec<String> = ordeal.live().iter().map(|pod| name(pod).to_owned()).collect();
        let known = |name: &String| (0..5).any(|number| *name == format!("db-{number}"));
        assert!(names.iter().all(known), "seed {seed}, step {step}: {names:?}");
    }
    ordeal.rest().await;
    let pods = ordeal.pods();
    let names: Vec<&str> = pods.iter().map(name).collect();
    let wanted: Vec<String> = (0..replicas).map(|number| format!("db-{number}")).collect();
    assert_eq!(names, wanted, "seed {seed}");
    for pod in &pods {
        assert_eq!(pod["spec"]["containers"][0]["image"], image.as_str(), "seed {seed}: {}", name(pod));
    }
    let set = ordeal.world.get::<StatefulSet>("default", "db").expect("the set is there");
    let status = set.status.clone().unwrap_or_default();
    let count = i32::try_from(replicas).expect("a small number");
    assert_eq!((status.replicas, status.ready_replicas), (count, Some(count)), "seed {seed}");
    assert_eq!(status.current_revision, status.update_revision, "seed {seed}");
    assert_eq!(status.observed_generation, set.metadata.generation, "seed {seed}");
}
