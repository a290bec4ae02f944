//! Rollouts as tables: sizes before, sizes after.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{plan, status};
use crate::testing::at;

fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
    let number = |text: &str| text.parse::<i32>().map_or_else(|_| json!(text), |number| json!(number));
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {}, "progressDeadlineSeconds": 60,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": number(surge), "maxUnavailable": number(unavailable)}},
            "template": {"spec": {"containers": [{"name": "c", "image": "new"}]}},
        },
    }))
    .expect("a deployment")
}

/// A ReplicaSet of a size, with so many available.
fn set(name: &str, size: i32, available: i32) -> Arc<ReplicaSet> {
    let mut set: ReplicaSet = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {"replicas": size, "selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": name}]}}},
        "status": {"replicas": size, "readyReplicas": available, "availableReplicas": available, "observedGeneration": 1},
    }))
    .expect("a set");
    set.metadata.creation_timestamp = Some(Time(at(i64::from(name.len() as u32))));
    Arc::new(set)
}

fn sizes(resized: &[plan::Resize]) -> Vec<(String, i32)> {
    resized.iter().map(|(set, size)| (set.metadata.name.clone().unwrap_or_default(), *size)).collect()
}

#[test]
fn fence_posts_are_never_both_zero() {
    for (replicas, surge, unavailable, expected) in [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (2, "0%", "1%", (0, 1)),
        (4, "0", "0", (0, 1)),
        (3, "5", "5", (5, 3)),
    ] {
        let deployment = deployment(replicas, surge, unavailable);
        assert_eq!(
            (plan::max_surge(&deployment), plan::max_unavailable(&deployment)),
            expected,
            "{replicas} {surge} {unavailable}"
        );
    }
}

#[test]
fn the_new_set_grows_into_the_surge() {
    let deployment = deployment(10, "25%", "25%");
    for (all, current, expected) in [(10, 0, 3), (13, 3, 3), (11, 3, 5), (0, 0, 10), (12, 10, 10)] {
        assert_eq!(plan::new_size(&deployment, all, current), expected, "{current} of {all}");
    }
}

#[test]
fn old_sets_shrink_as_far_as_availability_allows() {
    let deployment = deployment(10, "3", "2");
    for (new, old, expected) in [
        // Nothing of the new one serves yet: only what may be missing goes.
        (set("new", 3, 0), vec![set("old", 10, 10)], vec![("old", 8)]),
        // As new pods serve, old ones go.
        (set("new", 5, 3), vec![set("old", 8, 8)], vec![("old", 5)]),
        (set("new", 5, 0), vec![set("old", 8, 8)], vec![]),
        // Pods that do not serve go first, from whichever set.
        (set("new", 3, 0), vec![set("old", 5, 5), set("older", 5, 2)], vec![("older", 3)]),
        (set("new", 10, 10), vec![set("old", 2, 2)], vec![("old", 0)]),
        // A status that still counts two pods which are on their way out allows nothing.
        (set("new", 3, 0), vec![set("old", 8, 10), set("older", 2, 0)], vec![("older", 0)]),
    ] {
        let expected: Vec<(String, i32)> = expected.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        assert_eq!(sizes(&plan::shrink(&deployment, &new, &old)), expected);
    }
}

#[test]
fn a_resize_during_a_rollout_keeps_its_proportions() {
    let with_maximum = |name: &str, size: i32, maximum: i32| {
        let mut set = ReplicaSet::clone(&set(name, size, size));
        set.metadata
            .annotations
            .get_or_insert_default()
            .insert("deployment.kubernetes.io/max-replicas".to_owned(), maximum.to_string());
        Arc::new(set)
    };
    let deployment = deployment(20, "3", "2");
    let new = with_maximum("new", 5, 13);
    let old = [with_maximum("old", 8, 13)];
    let (resized, annotate) = plan::resize(&deployment, Some(&new), &old);
    assert!(annotate);
    assert_eq!(sizes(&resized), [("old".to_owned(), 14), ("new".to_owned(), 9)]);
    let (resized, _) = plan::resize(&deployment, Some(&set("new", 5, 5)), &[set("old", 0, 0)]);
    assert_eq!(sizes(&resized), [("new".to_owned(), 20)], "a single active set takes it all");
}

#[test]
fn revisions_and_their_history() {
    let deployment = deployment(1, "1", "1");
    let mut known = set("a", 0, 0).metadata.clone();
    let first = plan::annotations(&deployment, &known, 3);
    assert_eq!(first["deployment.kubernetes.io/revision"], "3");
    assert!(!first.contains_key("deployment.kubernetes.io/revision-history"));
    known.annotations = Some(first);
    let again = plan::annotations(&deployment, &known, 7);
    assert_eq!(again["deployment.kubernetes.io/revision"], "7");
    assert_eq!(again["deployment.kubernetes.io/revision-history"], "3");
    known.annotations = Some(again);
    assert_eq!(
        plan::annotations(&deployment, &known, 2)["deployment.kubernetes.io/revision"],
        "7",
        "it never goes back"
    );
}

#[test]
fn templates_are_the_same_but_for_the_hash() {
    let mut a = set("a", 1, 1).spec.template.clone().expect("a template");
    let b = a.clone();
    a.metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default()
        .insert("pod-template-hash".to_owned(), "x".to_owned());
    assert!(plan::same_template(&a, &b));
    a.metadata.get_or_insert_default().labels.get_or_insert_default().insert("other".to_owned(), "x".to_owned());
    assert!(!plan::same_template(&a, &b));
}

#[test]
fn progress_is_told_until_it_is_complete_or_too_slow() {
    let mut deployment = deployment(2, "1", "0");
    let reason = |status: &k8s_openapi::api::apps::v1::DeploymentStatus| {
        status::find(status, "Progressing").and_then(|condition| condition.reason.clone()).unwrap_or_default()
    };
    let new = set("new", 2, 0);
    let first = status::rollout(&deployment, Some(&new), &[], at(0));
    assert_eq!(reason(&first), "ReplicaSetUpdated");
    deployment.status = Some(first);
    let stuck = status::rollout(&deployment, Some(&new), &[], at(61));
    assert_eq!(reason(&stuck), "ProgressDeadlineExceeded");
    let done = status::rollout(&deployment, Some(&set("new", 2, 2)), &[], at(30));
    assert_eq!(reason(&done), "NewReplicaSetAvailable");
    assert!(status::is_complete(&deployment, &done));
    assert_eq!(status::next_check(&deployment, &done, at(30)), None);
}
