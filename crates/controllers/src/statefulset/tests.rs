//! One thing at a time, in order.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::identity::{self, parent_and_ordinal};
use super::plan::{Step, Templates, plan};
use crate::testing::{at, pod};

fn set(replicas: i32, policy: &str, partition: i32) -> StatefulSet {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "ns", "uid": "db"},
        "spec": {"replicas": replicas, "podManagementPolicy": policy, "serviceName": "db", "selector": {}, "template": {"spec": {"containers": []}},
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}},
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]},
    }))
    .expect("a set")
}

fn templates(set: &StatefulSet, current: &str, update: &str) -> Templates {
    let revision = |name: &str| {
        let mut revision = ControllerRevision::default();
        revision.metadata.name = Some(name.to_owned());
        revision
    };
    Templates::new(set, &revision(current), &revision(update))
}

fn member(number: i32, revision: &str) -> crate::testing::PodBuilder {
    let name = format!("db-{number}");
    let volumes = identity::volumes_of(&set(1, "OrderedReady", 0), &name);
    pod(&name)
        .on("n")
        .label("controller-revision-hash", revision)
        .label("statefulset.kubernetes.io/pod-name", &name)
        .label("apps.kubernetes.io/pod-index", &number.to_string())
        .with(|pod| pod.spec.get_or_insert_default().volumes = Some(volumes))
}

#[track_caller]
fn check(set: &StatefulSet, update: &str, pods: &[Arc<Pod>], expected: &[&str]) {
    let steps = plan(set, pods, &templates(set, "r1", update), at(100));
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let steps: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Create(number) => format!("create {number}"),
            Step::Delete(pod) => format!("delete {}", name(pod)),
            Step::Repair(pod) => format!("repair {}", name(pod)),
            Step::KeepClaims(pod) => format!("claims {}", name(pod)),
        })
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn an_ordered_set_waits_for_each_pod() {
    let ordered = set(3, "OrderedReady", 0);
    check(&ordered, "r1", &[], &["create 0"]);
    check(&ordered, "r1", &[member(0, "r1").build()], &[]);
    check(&ordered, "r1", &[member(0, "r1").ready().build()], &["create 1"]);
    check(&ordered, "r1", &[member(0, "r1").phase("Failed").build()], &["delete db-0"]);
    check(&ordered, "r1", &[member(0, "r1").ready().deleting().build()], &[]);
    check(&set(3, "Parallel", 0), "r1", &[], &["create 0", "create 1", "create 2"]);
}

#[test]
fn scaling_down_takes_the_highest_first() {
    let ready = |number| member(number, "r1").ready().build();
    check(&set(1, "OrderedReady", 0), "r1", &[ready(0), ready(1), ready(2)], &["delete db-2"]);
    check(&set(1, "OrderedReady", 0), "r1", &[ready(0), ready(1), member(2, "r1").ready().deleting().build()], &[]);
    check(&set(1, "Parallel", 0), "r1", &[ready(0), ready(1), ready(2)], &["delete db-2", "delete db-1"]);
}

#[test]
fn ordinals_end_with_their_type() {
    let mut last = set(2, "Parallel", i32::MAX);
    last.spec.ordinals.get_or_insert_default().start = Some(i32::MAX - 1);
    check(&last, "r1", &[], &["create 2147483646"]);
    check(&last, "r1", &[member(0, "r1").build()], &["create 2147483646"]);
    let created = member(i32::MAX - 1, "r1").ready().build();
    check(&last, "r1", &[member(0, "r1").build(), created], &["delete db-0"]);
}

#[test]
fn updates_go_from_the_end_to_the_partition() {
    let ready = |number, revision| member(number, revision).ready().build();
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r1")], &["delete db-2"]);
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r2")], &["delete db-1"]);
    check(&set(3, "OrderedReady", 2), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r2")], &[]);
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), member(2, "r2").build()], &[]);
}

#[test]
fn new_pods_are_old_only_below_the_partition() {
    let revision = |set: &StatefulSet, number| {
        let labels = templates(set, "r1", "r2").pod(set, number).metadata.labels.unwrap_or_default();
        labels["controller-revision-hash"].clone()
    };
    let mut updating = set(3, "Parallel", 0);
    updating.status.get_or_insert_default().current_replicas = Some(3);
    assert_eq!(revision(&updating, 0), "r2", "an old one would be replaced at once, again and again");
    let partitioned = set(3, "Parallel", 2);
    assert_eq!((revision(&partitioned, 1), revision(&partitioned, 2)), ("r1".to_owned(), "r2".to_owned()));
    updating.spec.update_strategy.get_or_insert_default().rolling_update = None;
    assert_eq!(revision(&updating, 2), "r1");
}

#[test]
fn identities_are_repaired() {
    check(
        &set(1, "OrderedReady", 0),
        "r1",
        &[pod("db-0").on("n").ready().label("controller-revision-hash", "r1").build()],
        &["repair db-0"],
    );
    for (name, expected) in
        [("db-0", Some(("db", 0))), ("a-b-12", Some(("a-b", 12))), ("db-01", None), ("db", None), ("db-x", None)]
    {
        assert_eq!(parent_and_ordinal(name), expected, "{name}");
    }
}
