//! Which nodes get a daemon.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::plan::{Observed, fits, plan, pod_for, target};
use super::status::status;
use crate::testing::{at, node, pod};

fn set(surge: i32, unavailable: i32) -> DaemonSet {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "uid": "d"},
        "spec": {"selector": {}, "template": {"spec": {"containers": []}},
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}},
    }))
    .expect("a set")
}

fn daemon(name: &str, on: &str, hash: &str) -> Arc<Pod> {
    pod(name).on(on).ready().label("controller-revision-hash", hash).build()
}

#[track_caller]
fn check(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], create: &[&str], delete: &[&str]) {
    let mut revision = ControllerRevision::default();
    revision.metadata.labels = Some([("controller-revision-hash".to_owned(), "new".to_owned())].into());
    let observed = Observed {
        set: Arc::new(set.clone()),
        nodes: nodes.to_vec(),
        pods: pods.to_vec(),
        revisions: Vec::new(),
        revision: Some(Arc::new(revision)),
    };
    let plan = plan(&observed, at(100));
    let deleted: Vec<&str> =
        plan.delete.iter().chain(&plan.ended).filter_map(|pod| pod.metadata.name.as_deref()).collect();
    assert_eq!(
        (plan.create.iter().map(String::as_str).collect::<Vec<_>>(), deleted),
        (create.to_vec(), delete.to_vec())
    );
}

#[test]
fn taints_decide_who_starts_and_who_stays() {
    for (node, expected) in [
        (node("a").build(), (true, true)),
        (node("a").taint("x", "NoSchedule").build(), (false, true)),
        (node("a").taint("x", "NoExecute").build(), (false, false)),
        (node("a").taint("node.kubernetes.io/not-ready", "NoExecute").build(), (true, true)),
        (node("a").taint("node.kubernetes.io/unschedulable", "NoSchedule").build(), (true, true)),
    ] {
        assert_eq!(fits(&set(0, 1), &node), expected, "{:?}", node.spec);
    }
}

#[test]
fn every_node_gets_one_and_keeps_one() {
    let nodes = [node("a").build(), node("b").build()];
    check(&set(0, 1), &nodes, &[], &["a", "b"], &[]);
    check(&set(0, 1), &nodes, &[daemon("x", "a", "new")], &["b"], &[]);
    check(
        &set(0, 1),
        &nodes,
        &[daemon("x", "a", "new"), daemon("y", "a", "new"), daemon("z", "b", "new")],
        &[],
        &["y"],
    );
    let failed = pod("x").on("a").phase("Failed").label("controller-revision-hash", "new").build();
    check(&set(0, 1), &nodes[..1], &[failed], &[], &["x"]);
    let tainted = [node("a").taint("x", "NoExecute").build()];
    check(&set(0, 1), &tainted, &[daemon("x", "a", "new")], &[], &["x"]);
}

#[test]
fn updates_stay_within_their_limits() {
    let nodes = [node("a").build(), node("b").build(), node("c").build()];
    let old = [daemon("x", "a", "old"), daemon("y", "b", "old"), daemon("z", "c", "old")];
    check(&set(0, 1), &nodes, &old, &[], &["x"]);
    check(&set(0, 2), &nodes, &old, &[], &["x", "y"]);
    check(&set(1, 0), &nodes, &old, &["a"], &[]);
    let under_way =
        [pod("x2").on("a").label("controller-revision-hash", "new").build(), old[1].clone(), old[2].clone()];
    check(&set(0, 1), &nodes, &under_way, &[], &[]);
    let surged = [old[0].clone(), daemon("x2", "a", "new"), old[1].clone(), old[2].clone()];
    check(&set(1, 0), &nodes, &surged, &["b"], &["x"]);
}

#[test]
fn a_daemon_is_bound_by_affinity() {
    let pod = pod_for(&set(0, 1), "a", "h");
    assert_eq!(target(&pod), Some("a"));
    assert_eq!(pod.spec.and_then(|spec| spec.tolerations).map(|tolerations| tolerations.len()), Some(6));
}

#[test]
fn the_status_counts_nodes() {
    let nodes = [node("a").build(), node("b").build(), node("c").taint("x", "NoSchedule").build()];
    let pods = [daemon("x", "a", "new"), daemon("y", "c", "old")];
    let status = status(&set(0, 1), &nodes, &pods, "new", at(100));
    assert_eq!(
        (status.desired_number_scheduled, status.current_number_scheduled, status.number_misscheduled),
        (2, 1, 1)
    );
    assert_eq!(
        (status.number_ready, status.number_unavailable, status.updated_number_scheduled),
        (1, Some(1), Some(1))
    );
}

#[test]
fn a_collision_changes_nothing_but_the_count() {
    let (set, revisions) = (Arc::new(set(0, 1)), Vec::new());
    let observed = Observed { set, nodes: vec![node("a").build()], pods: Vec::new(), revisions, revision: None };
    let plan = plan(&observed, at(100));
    assert_eq!((plan.create.len(), plan.status.collision_count), (0, Some(1)));
}
