//! A Job of six completions, three at a time, in half of the runs indexed: never more pods than that, every success counted once, nothing left behind.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Ordeal, name, phase};

const COMPLETIONS: i32 = 6;
const PARALLELISM: usize = 3;

fn job(indexed: bool) -> Value {
    json!({
        "metadata": {"name": "sum"},
        "spec": {
            "completions": COMPLETIONS, "parallelism": PARALLELISM, "backoffLimit": 1000,
            "completionMode": if indexed { "Indexed" } else { "NonIndexed" },
            "selector": {"matchLabels": {"job": "sum"}},
            "template": {
                "metadata": {"labels": {"job": "sum"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]},
            },
        },
    })
}

fn index(pod: &Value) -> String {
    let annotations = &pod["metadata"]["annotations"];
    annotations["batch.kubernetes.io/job-completion-index"].as_str().unwrap_or_default().to_owned()
}

/// Lets a running pod end. The successes, and of what index, are noted.
fn end(ordeal: &Ordeal, pod: &Value, well: bool, succeeded: &mut BTreeMap<String, String>) {
    if phase(pod) != "Running" || !pod["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    ordeal.world.edit::<Pod>("default", name(pod), |pod| {
        pod["status"]["phase"] = json!(if well { "Succeeded" } else { "Failed" });
    });
    if well {
        succeeded.insert(pod["metadata"]["uid"].to_string(), index(pod));
    }
}

pub async fn run(seed: u64) {
    let mut ordeal = Ordeal::new(seed, "job-controller");
    let indexed = seed.is_multiple_of(2);
    let mut succeeded = BTreeMap::new();
    ordeal.world.put::<Job>(job(indexed));
    for step in 0..24 {
        match ordeal.choose(5) {
            0 | 1 => {
                let well = ordeal.choose(3) > 0;
                if let Some(pod) = ordeal.any_pod() {
                    end(&ordeal, &pod, well, &mut succeeded);
                }
            }
            2 if ordeal.choose(3) == 0 => {
                if let Some(pod) = ordeal.any_pod() {
                    ordeal.world.delete::<Pod>("default", name(&pod), "Background");
                }
            }
            _ => ordeal.strike(),
        }
        ordeal.tick().await;
        let live = ordeal.live();
        let active: Vec<&Value> = live.iter().filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed")).collect();
        assert!(active.len() <= PARALLELISM, "seed {seed}, step {step}: {} pods at once", active.len());
        if indexed {
            let indexes: HashSet<String> = active.iter().map(|pod| index(pod)).collect();
            assert_eq!(indexes.len(), active.len(), "seed {seed}, step {step}: an index runs twice");
        }
    }
    ordeal.rest().await;
    // As many rounds as there can be pods one after the other.
    for _ in 0..2 * COMPLETIONS {
        let running = ordeal.live();
        running.iter().for_each(|pod| end(&ordeal, pod, true, &mut succeeded));
        ordeal.world.pass(Duration::from_secs(20)).await;
    }
    let status = ordeal.world.get::<Job>("default", "sum").and_then(|job| job.status).expect("a status");
    let complete = status.conditions.iter().flatten().any(|condition| condition.type_ == "Complete");
    assert!(complete, "seed {seed}: {status:?}");
    assert_eq!(status.active.unwrap_or_default(), 0, "seed {seed}");
    let counted = if indexed { succeeded.values().collect::<HashSet<_>>().len() } else { succeeded.len() };
    assert_eq!(status.succeeded, i32::try_from(counted).ok(), "seed {seed}: every success counts once");
    assert_eq!(status.succeeded, Some(COMPLETIONS), "seed {seed}");
    for pod in ordeal.pods() {
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        assert!(!held, "seed {seed}: {} is still held", name(&pod));
        assert!(matches!(phase(&pod), "Succeeded" | "Failed"), "seed {seed}: {} still runs", name(&pod));
    }
}
