//! Taints by conditions, and how fast zones are evicted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::zones::{State, Zones, all_disrupted, state, zone_of};
use super::{plan, status};
use crate::testing::{at, node};

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
