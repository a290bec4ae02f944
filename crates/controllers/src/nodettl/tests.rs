//! Steps, and what nodes hear of them.

use super::plan::{ANNOTATION, Plan, plan};
use crate::testing::node;

#[test]
fn steps_overlap() {
    for (at, nodes, expected) in
        [(0, 100, 0), (0, 101, 1), (1, 95, 1), (1, 89, 0), (0, 5000, 4), (4, 1, 0), (1, 500, 1)]
    {
        assert_eq!(plan(at, nodes, None).step, expected, "{nodes} nodes, from {at}");
    }
}

#[test]
fn a_node_is_annotated_once_and_all_are_looked_at_when_the_cluster_grows() {
    let mut one = k8s_openapi::api::core::v1::Node::clone(&node("n").build());
    assert_eq!(plan(0, 101, Some(&one)), Plan { step: 1, all: true, annotate: Some(15) });
    one.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), "15".to_owned());
    assert_eq!(plan(1, 101, Some(&one)), Plan { step: 1, all: false, annotate: None });
}
