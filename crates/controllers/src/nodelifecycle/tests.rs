//! Taints by conditions, and how fast zones are evicted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{Eviction, Observed};
use super::zones::{State, Zones, all_disrupted, state, zone_of};
use super::{plan, status};
use crate::testing::{at, node, pod};

#[track_caller]
fn check(node: &Node, evict: Option<&str>, expected: &[&str]) {
    let taints = plan::taints(node, evict, false, Time(at(0)));
    let mut found: Vec<String> = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn taints_follow_conditions_and_others_are_left_alone() {
    check(&node("a").ready().build(), None, &[]);
    check(&node("a").ready().cordoned().build(), None, &["node.kubernetes.io/unschedulable:NoSchedule"]);
    check(&node("a").condition("Ready", "False").build(), None, &["node.kubernetes.io/not-ready:NoSchedule"]);
    check(
        &node("a").condition("Ready", "Unknown").build(),
        Some("node.kubernetes.io/unreachable"),
        &["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"],
    );
    check(
        &node("a").ready().condition("DiskPressure", "True").taint("mine", "NoSchedule").build(),
        None,
        &["mine:NoSchedule", "node.kubernetes.io/disk-pressure:NoSchedule"],
    );
    check(&node("a").ready().taint("node.kubernetes.io/unreachable", "NoExecute").build(), None, &[]);
}

#[test]
fn a_silent_node_is_unknown_and_says_so_once() {
    let silent = node("a").ready().build();
    let lost = status::lost(&silent, at(9)).expect("a change");
    let conditions = lost.conditions.clone().unwrap_or_default();
    assert_eq!(conditions[0].reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(conditions[1].reason.as_deref(), Some("NodeStatusNeverUpdated"));
    let known = Node { status: Some(lost), ..Node::clone(&silent) };
    assert!(status::lost(&known, at(10)).is_none());
}

#[test]
fn zones_in_trouble_are_evicted_slowly_or_not_at_all() {
    let zone = |ready: usize, lost: usize| -> Vec<Arc<Node>> {
        let well = (0..ready).map(|number| node(&format!("r{number}")).ready().build());
        well.chain((0..lost).map(|number| node(&format!("l{number}")).condition("Ready", "Unknown").build())).collect()
    };
    let of = |nodes: &[Arc<Node>]| state(&nodes.iter().collect::<Vec<_>>());
    assert_eq!(of(&zone(3, 2)), State::Normal);
    assert_eq!(of(&zone(2, 3)), State::Partial);
    assert_eq!(of(&zone(0, 2)), State::Full);
    assert!(all_disrupted(&zone(0, 2)) && !all_disrupted(&zone(1, 2)));

    let (zones, nodes) = (Zones::default(), zone(9, 2));
    let name = zone_of(&nodes[0]);
    let second = Duration::from_secs(1);
    assert_eq!(zones.turn(&name, &nodes, second), None);
    assert_eq!(zones.turn(&name, &nodes, 3 * second), Some(8 * second), "ten seconds apart");
    assert_eq!(zones.turn(&name, &nodes, 11 * second), None);
    assert!(zones.turn(&name, &zone(2, 3), 60 * second).is_some(), "a small zone in trouble stops");
}

fn observed(node: Arc<Node>, silent: u64, eviction: Eviction) -> Observed {
    let (silent, grace) = (Duration::from_secs(silent), Duration::from_secs(50));
    let lost = (silent >= grace).then(|| status::lost(&node, at(100))).flatten();
    Observed { node, lost, silent, grace, pods: vec![pod("a").ready().build(), pod("b").build()], eviction }
}

#[test]
fn a_node_that_falls_silent_is_lost_with_its_pods() {
    let ready = || node("a").ready().condition("MemoryPressure", "False").build();
    let plan = plan::plan(&Observed { pods: Vec::new(), ..observed(ready(), 20, Eviction::No) }, at(100));
    assert_eq!(
        (plan.status, plan.announce, plan.taints, plan.again),
        (None, false, None, Some(Duration::from_secs(30)))
    );
    let silent = plan::plan(&observed(ready(), 60, Eviction::Yes("node.kubernetes.io/unreachable")), at(100));
    assert!(silent.status.is_some() && silent.announce && silent.evicts);
    assert_eq!(
        silent.pods.iter().map(|pod| pod.metadata.name.as_deref()).collect::<Vec<_>>(),
        [Some("a")],
        "only those that were ready"
    );
    assert_eq!(silent.taints.map(|taints| taints.len()), Some(2));
    assert_eq!(silent.again, None, "the next sign of life brings the next turn");
}

#[test]
fn an_eviction_waits_for_its_turn() {
    let lost = node("a").condition("Ready", "Unknown").build();
    let waiting = plan::plan(&observed(lost, 60, Eviction::In(Duration::from_secs(7))), at(100));
    assert_eq!((waiting.evicts, waiting.announce, waiting.again), (false, false, Some(Duration::from_secs(7))));
    let taints: Vec<String> = waiting.taints.unwrap_or_default().into_iter().map(|taint| taint.effect).collect();
    assert_eq!(taints, ["NoSchedule"], "nothing new comes to it meanwhile");
}
