//! Which pods nobody else removes.

use std::time::Duration;

use super::plan::{Absences, Reason, plan};
use crate::testing::{node, pod};

#[test]
fn pods_of_nodes_that_are_gone_and_of_no_node_at_all_go() {
    let nodes =
        [node("a").ready().build(), node("out").taint("node.kubernetes.io/out-of-service", "NoExecute").build()];
    let pods = [
        pod("fine").on("a").ready().build(),
        pod("orphan").on("gone").build(),
        pod("unbound").deleting().build(),
        pod("waiting").build(),
        pod("stranded").on("out").deleting().build(),
        pod("staying").on("out").build(),
    ];
    let found: Vec<(String, Reason)> = plan(&pods, &nodes, &["gone".to_owned()])
        .into_iter()
        .map(|(pod, reason)| (pod.metadata.name.clone().unwrap_or_default(), reason))
        .collect();
    let expected = [("orphan", Reason::Orphaned), ("unbound", Reason::Unscheduled), ("stranded", Reason::OutOfService)];
    assert_eq!(found, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_node_must_be_gone_for_a_while() {
    let mut absences = Absences::default();
    let named = ["n".to_owned()];
    let second = Duration::from_secs(1);
    assert_eq!(absences.gone(&named, &[], second, 40 * second), (vec![], Some(40 * second)));
    assert_eq!(absences.gone(&named, &[node("n").build()], 20 * second, 40 * second), (vec![], None), "it came back");
    assert_eq!(absences.gone(&named, &[], 30 * second, 40 * second), (vec![], Some(40 * second)));
    assert_eq!(absences.gone(&named, &[], 70 * second, 40 * second), (vec!["n".to_owned()], None));
}
