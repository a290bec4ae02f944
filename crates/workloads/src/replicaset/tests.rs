//! Which pods come and go, and what is reported.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;

use super::kinds::Replicated;
use super::plan::plan;
use super::status::{Observed, next_check};
use crate::testing::{at, pod};

#[track_caller]
fn check(replicas: i32, active: &[Arc<Pod>], create: usize, delete: &[&str]) {
    let plan = plan(replicas, active, || active.to_vec(), at(1_000_000));
    let deleted: Vec<&str> = plan.delete.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    assert_eq!((plan.create, deleted.as_slice()), (create, delete));
}

#[test]
fn missing_pods_are_created_up_to_a_burst() {
    check(3, &[], 3, &[]);
    check(3, &[pod("a").build()], 2, &[]);
    check(1000, &[], 500, &[]);
    check(-1, &[], 0, &[]);
}

#[test]
fn the_least_useful_pods_go_first() {
    let bound = || pod("bound").on("n1").ready().build();
    check(1, &[bound(), pod("unbound").build()], 0, &["unbound"]);
    check(1, &[bound(), pod("pending").on("n1").build()], 0, &["pending"]);
    check(1, &[bound(), pod("unready").on("n1").phase("Running").build()], 0, &["unready"]);
    let cost = |name: &str, cost: &str| {
        pod(name).on("n1").ready().annotation("controller.kubernetes.io/pod-deletion-cost", cost).build()
    };
    check(1, &[cost("dear", "10"), cost("cheap", "-5")], 0, &["cheap"]);
    let on = |name: &str, node: &str| pod(name).on(node).ready().build();
    check(2, &[on("a", "n1"), on("b", "n2"), on("c", "n2")], 0, &["b"]);
    let since = |name: &str, second: i64| pod(name).on("n1").ready_since(second).build();
    check(1, &[since("old", 0), since("young", 999_999)], 0, &["young"]);
    let restarted = |name: &str, count: i32| {
        let status = k8s_openapi::api::core::v1::ContainerStatus { restart_count: count, ..Default::default() };
        pod(name)
            .on("n1")
            .ready()
            .with(|pod| pod.status.get_or_insert_default().container_statuses = Some(vec![status]))
            .build()
    };
    check(1, &[restarted("steady", 0), restarted("shaky", 7)], 0, &["shaky"]);
}

#[test]
fn all_go_without_an_order() {
    let plan = plan(0, &[pod("a").build(), pod("b").build()], || unreachable!("nobody asks who shares a node"), at(0));
    assert_eq!(plan.delete.len(), 2);
}

#[test]
fn the_status_counts_and_a_failure_is_a_condition_until_it_is_over() {
    let active = [pod("a").ready_since(0).build(), pod("b").ready_since(95).build(), pod("c").build()];
    let mut set = ReplicaSet::default();
    set.spec.replicas = Some(4);
    set.spec.min_ready_seconds = Some(10);
    let error = client::Error::Api(machinery::ApiError::bad_request("quota"));
    let observed = |failure| Observed { active: &active, terminating: 1, failure, now: at(100) };
    let failed = set.with_status(&observed(Some(&error))).expect("a change");
    let status = failed.status.clone().expect("a status");
    assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(2), Some(1)));
    assert_eq!(status.terminating_replicas, Some(1));
    assert_eq!(status.conditions.expect("a condition")[0].reason.as_deref(), Some("FailedCreate"));
    let well = failed.with_status(&observed(None)).expect("a change");
    assert_eq!(well.status.as_ref().and_then(|status| status.conditions.clone()), None);
    assert!(well.with_status(&observed(None)).is_none(), "nothing changed, nothing is written");
    assert_eq!(next_check(10, &active, at(100)).map(|left| left.as_secs()), Some(5));
}
