//! The graph, and what it decides.

use std::sync::Arc;

use client::{Gvr, Propagation};
use informer::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use super::graph::{FOREGROUND, Graph, ORPHAN, Place};
use super::plan::{Standing, Step, step, step_for_deleting};
use crate::testing::at;

fn place(name: &str) -> Place {
    Place { gvr: Arc::new(Gvr::new("", "v1", "configmaps")), kind: "ConfigMap".into(), key: Key::new("ns", name) }
}

fn owner(uid: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        uid: uid.into(),
        name: uid.into(),
        block_owner_deletion: Some(blocks),
        ..OwnerReference::default()
    }
}

fn meta(uid: &str, owners: &[OwnerReference]) -> ObjectMeta {
    ObjectMeta { uid: Some(uid.into()), owner_references: Some(owners.to_vec()), ..ObjectMeta::default() }
}

fn going(mut meta: ObjectMeta, finalizer: &str) -> ObjectMeta {
    meta.deletion_timestamp = Some(Time(at(0)));
    meta.finalizers = Some(vec![finalizer.to_owned()]);
    meta
}

fn names(uids: &[Arc<str>]) -> Vec<&str> {
    let mut names: Vec<&str> = uids.iter().map(|uid| &**uid).collect();
    names.sort_unstable();
    names
}

#[test]
fn dependents_are_looked_at_when_their_owner_goes() {
    let mut graph = Graph::default();
    graph.put(place("a"), &meta("a", &[]));
    assert!(
        graph.put(place("b"), &meta("b", &[owner("a", true)])).contains(&"b".into()),
        "a new object is checked once"
    );
    assert_eq!(names(&graph.remove("a")), ["b"]);
    assert_eq!(names(&graph.remove("b")), Vec::<&str>::new());
    assert!(graph.get("a").is_none(), "nobody names it any more");
}

#[test]
fn an_owner_that_waits_is_looked_at_when_its_dependents_go() {
    let mut graph = Graph::default();
    graph.put(place("a"), &meta("a", &[]));
    graph.put(place("b"), &meta("b", &[owner("a", true)]));
    assert_eq!(names(&graph.put(place("a"), &going(meta("a", &[]), FOREGROUND))), ["a", "b"]);
    let node = graph.get("a").expect("known").clone();
    assert_eq!(step_for_deleting(&graph, "a", &node), Step::LookAt(vec!["b".into()]));
    assert_eq!(names(&graph.remove("b")), ["a"]);
    let node = graph.get("a").expect("known").clone();
    assert_eq!(step_for_deleting(&graph, "a", &node), Step::RemoveFinalizer(FOREGROUND));
}

#[test]
fn replicas_hold_their_references_once() {
    let mut graph = Graph::default();
    let owners = |graph: &Graph, uid: &str| graph.get(uid).expect("known").owners.clone();
    for replica in ["b", "c"] {
        graph.put(place(replica), &meta(replica, &[owner("a", true)]));
    }
    assert!(Arc::ptr_eq(&owners(&graph, "b"), &owners(&graph, "c")));
    graph.put(place("c"), &meta("c", &[owner("a", false)]));
    assert_eq!(owners(&graph, "c")[..], [owner("a", false)], "it has become another's reference");
    assert_eq!(owners(&graph, "b")[..], [owner("a", true)]);
}

#[test]
fn an_owner_that_orphans_lets_go_first() {
    let mut graph = Graph::default();
    graph.put(place("b"), &meta("b", &[owner("a", true)]));
    assert_eq!(names(&graph.put(place("a"), &going(meta("a", &[]), ORPHAN))), ["a"]);
    let node = graph.get("a").expect("known").clone();
    assert_eq!(step_for_deleting(&graph, "a", &node), Step::Orphan(vec!["b".into()]));
}

#[test]
fn what_living_owners_hold_stays() {
    let mut graph = Graph::default();
    graph.put(place("x"), &meta("x", &[owner("a", true), owner("b", true)]));
    let node = graph.get("x").expect("known").clone();
    let decide = |a: Standing, b: Standing| step(&graph, "x", &node, |owner| if owner.uid == "a" { a } else { b });
    assert_eq!(decide(Standing::Solid, Standing::Solid), Step::Nothing);
    assert_eq!(decide(Standing::Solid, Standing::Absent), Step::KeepOwners(vec![owner("a", true)]));
    let gone = Step::Delete { policy: Propagation::Background, unblock: Vec::new() };
    assert_eq!(decide(Standing::Absent, Standing::Absent), gone);
    assert_eq!(decide(Standing::Waiting, Standing::Absent), gone, "nothing depends on it, so it just goes");
}

#[test]
fn foreground_goes_down_the_tree_and_circles_are_broken() {
    let mut graph = Graph::default();
    graph.put(place("x"), &meta("x", &[owner("a", true)]));
    graph.put(place("y"), &meta("y", &[owner("x", true)]));
    let node = graph.get("x").expect("known").clone();
    let waiting = |_: &OwnerReference| Standing::Waiting;
    assert_eq!(
        step(&graph, "x", &node, waiting),
        Step::Delete { policy: Propagation::Foreground, unblock: Vec::new() }
    );
    graph.put(place("y"), &going(meta("y", &[owner("x", true)]), FOREGROUND));
    let unblock = vec!["y".into()];
    assert_eq!(step(&graph, "x", &node, waiting), Step::Delete { policy: Propagation::Foreground, unblock });
}
