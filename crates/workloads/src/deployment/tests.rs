//! Rollouts as tables: sizes before, sizes after.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::plan::{Observed, Plan, plan};
use super::{revisions, sizes, status};
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

fn sizes(resized: &[sizes::Resize]) -> Vec<(String, i32)> {
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
            (sizes::max_surge(&deployment), sizes::max_unavailable(&deployment)),
            expected,
            "{replicas} {surge} {unavailable}"
        );
    }
}

#[test]
fn the_new_set_grows_into_the_surge() {
    let deployment = deployment(10, "25%", "25%");
    for (all, current, expected) in [(10, 0, 3), (13, 3, 3), (11, 3, 5), (0, 0, 10), (12, 10, 10)] {
        assert_eq!(sizes::new_size(&deployment, all, current), expected, "{current} of {all}");
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
        assert_eq!(sizes(&sizes::shrink(&deployment, &new, &old)), expected);
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
    let (resized, annotate) = sizes::resize(&deployment, Some(&new), &old);
    assert!(annotate);
    assert_eq!(sizes(&resized), [("old".to_owned(), 14), ("new".to_owned(), 9)]);
    let (resized, _) = sizes::resize(&deployment, Some(&set("new", 5, 5)), &[set("old", 0, 0)]);
    assert_eq!(sizes(&resized), [("new".to_owned(), 20)], "a single active set takes it all");
}

#[test]
fn sums_of_sizes_end_where_their_fields_end() {
    let huge = i32::MAX - 1;
    let deployment = deployment(huge, "50%", "0");
    let (new, old) = (set("new", huge, huge), [set("old", huge, huge), set("older", huge, huge)]);
    let status = status::basic(&deployment, Some(&new), &old, at(0));
    assert_eq!(
        (status.replicas, status.ready_replicas, status.available_replicas),
        (Some(i32::MAX), Some(i32::MAX), Some(i32::MAX))
    );
    assert_eq!((status.updated_replicas, status.unavailable_replicas), (Some(huge), None));
    let all = sizes::total(old.iter().map(|set| sizes::footprint(set)).chain([huge]));
    assert_eq!(sizes::new_size(&deployment, all, huge), huge);
    assert_eq!(sizes::replicas_annotations(&deployment)[1].1, i32::MAX.to_string());
    let shrunk = sizes::shrink(&deployment, &new, &old);
    assert_eq!(sizes(&shrunk), [("old".to_owned(), 0), ("older".to_owned(), 0)]);
    let (resized, _) = sizes::resize(&deployment, None, &old);
    let total: i64 = resized.iter().map(|(_, size)| i64::from(*size)).sum();
    assert_eq!(total, i64::from(i32::MAX), "as many as the surge allows, and no more: {:?}", sizes(&resized));
}

#[test]
fn revisions_and_their_history() {
    let deployment = deployment(1, "1", "1");
    let mut known = set("a", 0, 0).metadata.clone();
    let first = revisions::annotations(&deployment, &known, 3);
    assert_eq!(first["deployment.kubernetes.io/revision"], "3");
    assert!(!first.contains_key("deployment.kubernetes.io/revision-history"));
    known.annotations = Some(first);
    let again = revisions::annotations(&deployment, &known, 7);
    assert_eq!(again["deployment.kubernetes.io/revision"], "7");
    assert_eq!(again["deployment.kubernetes.io/revision-history"], "3");
    known.annotations = Some(again);
    assert_eq!(
        revisions::annotations(&deployment, &known, 2)["deployment.kubernetes.io/revision"],
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
    assert!(revisions::same_template(&a, &b));
    a.metadata.get_or_insert_default().labels.get_or_insert_default().insert("other".to_owned(), "x".to_owned());
    assert!(!revisions::same_template(&a, &b));
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

/// Ten replicas, three more and two fewer at most.
fn rollout(spec: serde_json::Value) -> Deployment {
    let mut deployment = serde_json::to_value(deployment(10, "3", "2")).expect("a deployment");
    deployment["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    for (key, value) in spec.as_object().expect("fields") {
        deployment["spec"][key] = value.clone();
    }
    serde_json::from_value(deployment).expect("a deployment")
}

/// A ReplicaSet that knows its revision and the size of its Deployment.
fn known(name: &str, size: i32, available: i32, revision: i64) -> Arc<ReplicaSet> {
    let mut set = ReplicaSet::clone(&set(name, size, available));
    let annotations =
        [("revision", revision.to_string()), ("desired-replicas", "10".to_owned()), ("max-replicas", "13".to_owned())];
    let annotations = annotations.map(|(key, value)| (format!("deployment.kubernetes.io/{key}"), value));
    set.metadata.annotations = Some(annotations.into());
    Arc::new(set)
}

fn turn(deployment: &Deployment, sets: &[Arc<ReplicaSet>], running: &[&str]) -> Plan {
    let running = running.iter().map(|uid| (*uid).to_owned()).collect();
    plan(&Observed { deployment: Arc::new(deployment.clone()), sets: sets.to_vec(), running }, at(1000))
}

/// What a turn does and says, in words.
#[track_caller]
fn check(deployment: &Deployment, sets: &[Arc<ReplicaSet>], expected: &[&str]) -> Plan {
    let plan = turn(deployment, sets, &[]);
    let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap_or_default();
    let mut words: Vec<String> = plan.event.iter().map(|(_, reason, _)| (*reason).to_owned()).collect();
    words.extend(plan.create.iter().map(|set| format!("create with {}", sizes::size(set))));
    words.extend(
        plan.update
            .iter()
            .map(|update| format!("{} from {} to {}", name(&update.set), update.before, sizes::size(&update.set))),
    );
    words.extend(plan.delete.iter().map(|set| format!("delete {}", name(set))));
    words.extend(plan.roll_back.iter().map(|back| back.event.1.to_owned()));
    let status = plan.report.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    words.extend(conditions.into_iter().filter_map(|condition| condition.reason));
    assert_eq!(words, expected);
    plan
}

#[test]
fn a_rollout_turn_by_turn() {
    let rolling = rollout(json!({}));
    let first = check(&rolling, &[], &["create with 10", "MinimumReplicasUnavailable", "NewReplicaSetCreated"]);
    assert_eq!(
        first.report.metadata.annotations.as_ref().map(|all| all["deployment.kubernetes.io/revision"].as_str()),
        Some("1")
    );
    let old = known("old", 10, 10, 1);
    check(
        &rolling,
        std::slice::from_ref(&old),
        &["create with 3", "old from 10 to 8", "MinimumReplicasAvailable", "ReplicaSetUpdated"],
    );
    let sets = [known("new", 3, 0, 2), known("old", 8, 8, 1)];
    check(&rolling, &sets, &["new from 3 to 5", "MinimumReplicasAvailable", "ReplicaSetUpdated"]);
    let sets = [known("new", 10, 10, 2), known("old", 0, 0, 1)];
    let last = check(&rolling, &sets, &["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);
    assert_eq!(last.again, None, "there is nothing to wait for");
    let limited = Deployment { status: last.report.status, ..rollout(json!({"revisionHistoryLimit": 0})) };
    check(&limited, &sets, &["delete old", "MinimumReplicasAvailable", "NewReplicaSetAvailable"]);
}

#[test]
fn a_deployment_that_recreates_has_no_old_pods_beside_new_ones() {
    let recreating = rollout(json!({"strategy": {"type": "Recreate"}}));
    let unavailable = "MinimumReplicasUnavailable";
    check(
        &recreating,
        &[known("old", 10, 10, 1)],
        &["old from 10 to 0", "MinimumReplicasAvailable", "ReplicaSetUpdated"],
    );
    let gone = [known("old", 0, 0, 1)];
    assert_eq!(turn(&recreating, &gone, &["old"]).create, None, "its pods still end");
    check(&recreating, &gone, &["create with 10", unavailable, "NewReplicaSetCreated"]);
}

#[test]
fn a_pause_is_noted_and_stops_the_rollout_but_not_a_resize() {
    let paused = rollout(json!({"paused": true}));
    let sets = [known("new", 3, 0, 2), known("old", 8, 8, 1)];
    let noted = check(&paused, &sets, &["old from 8 to 10", "MinimumReplicasAvailable", "DeploymentPaused"]);
    assert_eq!(noted.again, None, "a pause has no deadline");
    let resumed = Deployment { status: noted.report.status, ..rollout(json!({})) };
    check(&resumed, &sets, &["new from 3 to 5", "MinimumReplicasAvailable", "DeploymentResumed"]);
}

#[test]
fn a_new_set_is_brought_up_to_date_with_one_write() {
    let rolling = rollout(json!({"minReadySeconds": 5}));
    let sets = [known("new", 3, 0, 0), known("old", 8, 8, 1)];
    let plan = check(&rolling, &sets, &["new from 3 to 5", "MinimumReplicasAvailable", "ReplicaSetUpdated"]);
    let new = &plan.update[0].set;
    assert_eq!((new.spec.min_ready_seconds, revisions::revision(&new.metadata)), (Some(5), Some(2)));
}

#[test]
fn a_deployment_that_selects_everything_does_nothing() {
    let plan = check(&deployment(1, "1", "1"), &[known("new", 1, 1, 1)], &["SelectingAll"]);
    assert_eq!(plan.report.status.and_then(|status| status.observed_generation), Some(1));
}

#[test]
fn rolling_back_takes_the_template_and_removes_the_request() {
    let asking = |revision: &str| {
        let mut asking = rollout(json!({}));
        asking.metadata.annotations =
            Some([("deprecated.deployment.rollback.to".to_owned(), revision.to_owned())].into());
        asking
    };
    let sets = [known("new", 10, 10, 2), known("old", 0, 0, 1)];
    let image = |revision: &str| {
        let plan = turn(&asking(revision), &sets, &[]);
        assert_eq!(plan.report.status, None, "nothing is said about a template that goes");
        let back = plan.roll_back.expect("an answer");
        assert!(
            !back.deployment.metadata.annotations.unwrap_or_default().contains_key("deprecated.deployment.rollback.to")
        );
        let containers = back.deployment.spec.template.spec.map(|spec| spec.containers).unwrap_or_default();
        (containers[0].image.clone().unwrap_or_default(), back.event.1)
    };
    assert_eq!(image("0"), ("old".to_owned(), "DeploymentRollback"));
    assert_eq!(image("1"), ("old".to_owned(), "DeploymentRollback"));
    assert_eq!(image("2"), ("new".to_owned(), "DeploymentRollbackTemplateUnchanged"));
    assert_eq!(image("7"), ("new".to_owned(), "DeploymentRollbackRevisionNotFound"));
    let first = turn(&asking("1"), &[known("old", 10, 10, 1)], &[]);
    assert!(first.create.is_some() && first.roll_back.is_none(), "the present template gets its ReplicaSet first");
}
