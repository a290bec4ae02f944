//! Preemption through a whole scheduler: who is evicted, where, and what users are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer::clock::Fake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::config::Configuration;
use crate::config::registry::Registry;
use crate::model::objects::Object;
use crate::scheduling::{Effect, Scheduler};
use crate::testing::{node, pod, selector};

/// The evicted pods in order and their node, or the message when there is no one to evict.
fn preempt(
    nodes: impl IntoIterator<Item = Node>,
    placed: impl IntoIterator<Item = Pod>,
    others: Vec<Object>,
    incoming: Pod,
) -> Result<(String, Vec<String>), String> {
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let mut scheduler = Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, 7).unwrap();
    for object in nodes.into_iter().map(|n| Object::Node(Arc::new(n))).chain(others) {
        scheduler.observe(None, Some(object));
    }
    for pod in placed.into_iter().chain([incoming]) {
        scheduler.observe(None, Some(Object::Pod(Arc::new(crate::model::pod::PodInfo::new(Arc::new(pod))))));
    }
    while scheduler.schedule_one() {}
    let mut message = String::new();
    for effect in scheduler.take_effects() {
        match effect {
            Effect::Preempt(job) => return Ok((job.node, job.victims.iter().map(|v| v.name().to_owned()).collect())),
            Effect::Record(event) => message = event.note,
            _ => {}
        }
    }
    Err(message)
}

fn one_cpu(name: &str) -> Node {
    node(name).cpu("1").build()
}

fn victims(result: Result<(String, Vec<String>), String>) -> (String, Vec<String>) {
    let (node, mut names) = result.unwrap();
    names.sort();
    (node, names)
}

#[test]
fn the_least_important_pods_go() {
    let placed = [
        pod("low").priority(1).cpu("400m").on("n").build(),
        pod("lower").priority(0).cpu("400m").on("n").build(),
        pod("high").priority(100).cpu("200m").on("n").build(),
    ];
    let incoming = pod("p").priority(50).cpu("400m").build();
    assert_eq!(victims(preempt([one_cpu("n")], placed, vec![], incoming)), ("n".into(), vec!["lower".into()]));
}

#[test]
fn nobody_goes_when_it_does_not_help() {
    let placed = || [pod("same").priority(50).cpu("900m").on("n").build()];
    let incoming = || pod("p").priority(50).cpu("400m");
    assert_eq!(
        preempt([one_cpu("n")], placed(), vec![], incoming().build()).unwrap_err(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
    assert_eq!(
        preempt([one_cpu("n")], placed(), vec![], incoming().priority(99).never_preempts().build()).unwrap_err(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
    // More than the node has: no eviction can make that fit.
    assert_eq!(
        preempt([one_cpu("n")], placed(), vec![], pod("p").priority(99).cpu("2").build()).unwrap_err(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
}

#[test]
fn the_node_where_it_hurts_least_is_chosen() {
    let nodes = || [one_cpu("n1"), one_cpu("n2")];
    let incoming = || pod("p").priority(100).cpu("1").build();
    let full = |name: &str, on: &str, priority| pod(name).priority(priority).cpu("1").started(10).on(on);
    // Lower highest priority.
    let placed = [full("a", "n1", 5).build(), full("b", "n2", 4).build()];
    assert_eq!(victims(preempt(nodes(), placed, vec![], incoming())).0, "n2");
    // Same highest priority: the smaller sum, which fewer victims have.
    let half = |name: &str, on: &str| pod(name).priority(5).cpu("500m").started(10).on(on).build();
    let placed = [half("a1", "n1"), half("a2", "n1"), full("b", "n2", 5).build()];
    assert_eq!(victims(preempt(nodes(), placed, vec![], incoming())).0, "n2");
    // All the same: the node whose most important pod started last.
    let placed = [full("a", "n1", 5).started(20).build(), full("b", "n2", 5).build()];
    assert_eq!(victims(preempt(nodes(), placed, vec![], incoming())).0, "n1");
}

fn budget(name: &str, label: &str, allowed: i32) -> Object {
    Object::PodDisruptionBudget(Arc::new(PodDisruptionBudget {
        metadata: ObjectMeta { name: Some(name.into()), namespace: Some("default".into()), ..Default::default() },
        spec: Some(PodDisruptionBudgetSpec { selector: Some(selector("app", label)), ..Default::default() }),
        status: Some(PodDisruptionBudgetStatus {
            disruptions_allowed: Some(allowed),
            disrupted_pods: Some(BTreeMap::new()),
            ..Default::default()
        }),
    }))
}

#[test]
fn budgets_are_respected_where_possible() {
    let nodes = || [one_cpu("n1"), one_cpu("n2")];
    let full = |name: &str, on: &str, priority| pod(name).label("app", name).priority(priority).cpu("1").on(on).build();
    let incoming = || pod("p").priority(100).cpu("1").build();
    // n1's pod is less important, but its budget is used up.
    let placed = || [full("a", "n1", 1), full("b", "n2", 5)];
    assert_eq!(victims(preempt(nodes(), placed(), vec![budget("pdb", "a", 0)], incoming())).0, "n2");
    assert_eq!(victims(preempt(nodes(), placed(), vec![budget("pdb", "a", 1)], incoming())).0, "n1");
    // Within a node, pods without a budget go first even if more important.
    let placed = [
        pod("guarded").label("app", "g").priority(1).cpu("500m").on("n").build(),
        pod("free").label("app", "f").priority(5).cpu("500m").on("n").build(),
    ];
    let incoming = pod("p").priority(100).cpu("500m").build();
    assert_eq!(victims(preempt([one_cpu("n")], placed, vec![budget("pdb", "g", 0)], incoming)).1, ["free"]);
    // When there is no other way, budgets are broken.
    let result = preempt(
        [one_cpu("n1")],
        [full("a", "n1", 1)],
        vec![budget("pdb", "a", 0)],
        pod("p").priority(100).cpu("1").build(),
    );
    assert_eq!(victims(result).1, ["a"]);
}

#[test]
fn anti_affinity_is_resolved_by_evicting_the_cause() {
    let placed =
        [pod("cause").label("app", "x").priority(1).on("n").build(), pod("bystander").priority(1).on("n").build()];
    let incoming = pod("p").priority(10).anti_affinity("app", "x", "kubernetes.io/hostname").build();
    assert_eq!(victims(preempt([one_cpu("n")], placed, vec![], incoming)).1, ["cause"]);
}

#[test]
fn a_pod_whose_victims_are_leaving_waits() {
    let leaving = pod("v")
        .priority(1)
        .cpu("1")
        .terminating()
        .condition("DisruptionTarget", "True", "PreemptionByScheduler")
        .on("n")
        .build();
    let incoming = pod("p").priority(10).cpu("1").nominated("n").build();
    assert_eq!(
        preempt([one_cpu("n")], [leaving], vec![], incoming).unwrap_err(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
    );
}
