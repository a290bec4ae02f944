//! Where a volume goes, and in which order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;

use super::plan::{MAX_WAIT, Observed, Plan, Step, plan};
use crate::testing::{at, pod};

const UNIQUE: &str = "kubernetes.io/csi/d^h";

fn volume(modes: &[&str]) -> Arc<PersistentVolume> {
    let value = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h"}}});
    Arc::new(serde_json::from_value(value).expect("a volume"))
}

/// A node that is ready or not, with what it says of the volume.
fn node(name: &str, ready: bool, in_use: bool, attached: bool) -> Arc<Node> {
    let value = json!({
        "metadata": {"name": name, "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "status": {
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}],
            "volumesInUse": if in_use { vec![UNIQUE] } else { vec![] },
            "volumesAttached": if attached { json!([{"name": UNIQUE, "devicePath": ""}]) } else { json!([]) },
        },
    });
    Arc::new(serde_json::from_value(value).expect("a node"))
}

fn attachment(node: &str, status: serde_json::Value) -> Arc<VolumeAttachment> {
    let value = json!({
        "metadata": {"name": csi::names::attachment("h", "d", node), "uid": format!("uid-{node}")},
        "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
        "status": status,
    });
    Arc::new(serde_json::from_value(value).expect("an attachment"))
}

fn attached(node: &str) -> Arc<VolumeAttachment> {
    attachment(node, json!({"attached": true}))
}

fn user(name: &str, node: &str) -> Arc<Pod> {
    pod(name).on(node).build()
}

fn observed(pods: &[Arc<Pod>], attachments: &[Arc<VolumeAttachment>], nodes: &[Arc<Node>]) -> Observed {
    let nodes: BTreeMap<String, Arc<Node>> =
        nodes.iter().map(|node| (node.metadata.name.clone().expect("a name"), node.clone())).collect();
    Observed {
        volume: volume(&["ReadWriteOnce"]),
        pods: pods.to_vec(),
        attachments: attachments.to_vec(),
        nodes,
        ..Observed::default()
    }
}

/// What is done, in short words.
fn steps(plan: &Plan) -> Vec<String> {
    let short = |step: &Step| match step {
        Step::Attach(one) => format!("attach {}", one.spec.node_name),
        Step::Report { node, users } => {
            let names: Vec<&str> = users.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
            format!("report {node} to {}", names.join(", "))
        }
        Step::Detach { node, forced, .. } => format!("detach {node} {}", forced.unwrap_or_default()).trim().to_owned(),
        Step::Take { node, forced } => format!("take {node} {}", forced.unwrap_or_default()).trim().to_owned(),
        Step::Ask { uid, .. } => format!("ask {uid}"),
        Step::Tell { pod, reason, message, .. } => {
            format!("{} {reason}: {message}", pod.metadata.name.as_deref().unwrap_or_default())
        }
    };
    plan.steps.iter().map(short).collect()
}

#[track_caller]
fn check(observed: &Observed, expected: &[&str]) -> Plan {
    let plan = plan(observed, at(0));
    assert_eq!(steps(&plan), expected);
    plan
}

#[test]
fn a_volume_is_attached_where_a_pod_wants_it_and_the_node_is_told_when_it_is() {
    let (pods, nodes) = ([user("a", "n1")], [node("n1", true, false, false)]);
    check(&observed(&pods, &[], &nodes), &["attach n1"]);
    check(&observed(&pods, &[attachment("n1", json!({"attached": false}))], &nodes), &[]);
    check(&observed(&pods, &[attached("n1")], &nodes), &["report n1 to a"]);
    check(&observed(&pods, &[attached("n1")], &[node("n1", true, true, true)]), &[]);
    let failed = attachment("n1", json!({"attached": false, "attachError": {"message": "no room"}}));
    let told = "a FailedAttachVolume: AttachVolume.Attach failed for volume \"pv\" : no room";
    check(&observed(&pods, &[failed], &nodes), &[told]);
}

#[test]
fn pods_without_a_node_that_ended_or_on_unmanaged_nodes_want_nothing() {
    let ended = pod("a").on("n1").phase("Succeeded").build();
    check(&observed(&[ended, pod("b").build()], &[], &[node("n1", true, false, false)]), &[]);
    let mut own = Node::clone(&node("n1", true, false, false));
    own.metadata.annotations = None;
    check(&observed(&[user("a", "n1")], &[], &[Arc::new(own)]), &[]);
    check(&observed(&[user("a", "gone")], &[], &[]), &[]);
}

#[test]
fn a_driver_that_needs_no_attaching_is_left_alone() {
    let mut observed = observed(&[user("a", "n1")], &[], &[node("n1", true, false, false)]);
    let driver = json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false}});
    observed.driver = Some(Arc::new(serde_json::from_value(driver).expect("a driver")));
    check(&observed, &[]);
    // What was attached before it said so is detached, though pods want it, as soon as the node does not rely on it.
    observed.attachments = vec![attached("n1")];
    observed.nodes = BTreeMap::from([("n1".to_owned(), node("n1", true, true, true))]);
    assert_eq!(check(&observed, &[]).again, None, "the node is heard of");
    observed.nodes = BTreeMap::from([("n1".to_owned(), node("n1", true, false, true))]);
    check(&observed, &["detach n1"]);
}

#[test]
fn pods_are_told_when_nobody_answers_for_an_attachment() {
    let mut silent = VolumeAttachment::clone(&attachment("n1", json!({"attached": false})));
    silent.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let mut observed = observed(&[user("a", "n1")], &[Arc::new(silent)], &[node("n1", true, false, false)]);
    let told = "a FailedAttachVolume: AttachVolume.Attach failed for volume \"pv\" : timed out waiting for external-attacher of d CSI driver to attach volume h";
    for (second, expected, again) in
        [(0, None, 120), (119, None, 1), (120, Some(told), 120), (180, None, 60), (240, Some(told), 120)]
    {
        let plan = plan(&observed, at(second));
        assert_eq!(steps(&plan), expected.into_iter().collect::<Vec<_>>(), "after {second} s");
        assert_eq!(plan.again, Some(Duration::from_secs(again)), "after {second} s");
        observed.remembered = plan.remembered;
    }
}

#[test]
fn a_volume_for_one_node_never_goes_to_two() {
    let nodes = [node("n1", true, false, false), node("n2", true, false, false)];
    let pods = [user("a", "n1"), user("b", "n2")];
    let waits = "b FailedAttachVolume: Waiting for detach for volume \"pv\" ";
    check(
        &observed(&pods, &[], &nodes),
        &[
            "attach n1",
            &format!(
                "{waits}Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
            ),
        ],
    );
    let both = observed(&pods, &[attachment("n1", json!({"attached": false}))], &nodes);
    let told = check(&both, &[&format!("{waits}Volume is already used by pod(s) a")]);
    // They are told once.
    check(&Observed { remembered: told.remembered, ..both }, &[]);
    let alone = observed(&pods[1..], &[attached("n1")], &nodes);
    check(
        &alone,
        &[
            "detach n1",
            &format!(
                "{waits}Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
            ),
        ],
    );
    let mut going = VolumeAttachment::clone(&attached("n1"));
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let going = observed(&pods[1..], &[Arc::new(going)], &nodes);
    assert!(!steps(&plan(&going, at(0))).contains(&"attach n2".to_owned()), "the first one is not gone yet");
    let shared = Observed { volume: volume(&["ReadWriteMany"]), ..observed(&pods, &[], &nodes) };
    check(&shared, &["attach n1", "attach n2"]);
}

#[test]
fn a_volume_in_use_is_not_detached_until_the_node_lets_go_or_is_given_up() {
    let unused = observed(&[], &[attached("n1")], &[node("n1", true, false, true)]);
    check(&unused, &["detach n1"]);
    let used = observed(&[], &[attached("n1")], &[node("n1", true, true, true)]);
    let waiting = check(&used, &[]);
    assert_eq!(waiting.remembered.unwanted["n1"], at(0));
    assert_eq!(waiting.again, None, "a node that answers is heard of");
    let late = at(0) + MAX_WAIT;
    let remembered = waiting.remembered;
    let healthy = Observed { remembered: remembered.clone(), ..used };
    assert_eq!(steps(&plan(&healthy, late)), [] as [&str; 0], "a healthy node is never forced");
    let silent =
        |remembered| Observed { remembered, ..observed(&[], &[attached("n1")], &[node("n1", false, true, true)]) };
    let soon = plan(&silent(remembered.clone()), at(60));
    assert_eq!((steps(&soon), soon.again), (vec![], Some(MAX_WAIT - Duration::from_secs(60))));
    assert_eq!(steps(&plan(&silent(remembered), late)), ["detach n1 timeout"]);
    let mut out = Node::clone(&node("n1", false, true, true));
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    out.spec.get_or_insert_default().taints = Some(vec![serde_json::from_value(taint).expect("a taint")]);
    check(&observed(&[], &[attached("n1")], &[Arc::new(out)]), &["detach n1 out-of-service"]);
    check(&observed(&[], &[attached("gone")], &[]), &["detach gone"]);
}

#[test]
fn what_was_deleted_is_not_reported_as_attached_by_a_cache_that_is_late() {
    let mut back = observed(&[user("a", "n1")], &[attached("n1")], &[node("n1", true, true, false)]);
    back.remembered.deleted.insert("uid-n1".to_owned());
    let plan = check(&back, &["ask uid-n1"]);
    assert!(plan.remembered.deleted.contains("uid-n1"));
    // It is forgotten with the attachment.
    back.attachments.clear();
    let plan = check(&back, &["attach n1"]);
    assert!(plan.remembered.deleted.is_empty());
}

#[test]
fn attachments_that_others_made_are_left_alone() {
    let mut other = VolumeAttachment::clone(&attached("n1"));
    other.metadata.name = Some("by-hand".to_owned());
    check(&observed(&[], &[Arc::new(other)], &[node("n1", true, false, false)]), &[]);
}

#[test]
fn a_volume_of_an_old_name_is_attached_by_its_driver() {
    let old = json!({"metadata": {"name": "pv"}, "spec": {"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}});
    let old: Arc<PersistentVolume> = Arc::new(serde_json::from_value(old).expect("a volume"));
    assert_eq!(super::plan::driver(&old), Some("ebs.csi.aws.com"));
    let known = super::plan::as_attached(&old).expect("a translation");
    assert!(super::plan::source(&known).is_some(), "it is a driver's");
    let name = super::plan::name_on_nodes(&known);
    assert_eq!(name.as_deref(), Some("kubernetes.io/csi/ebs.csi.aws.com^vol-1"));
}

const DISK: &str = "kubernetes.io/iscsi/10.0.0.1:iqn.a:b:2";

fn disk(modes: &[&str]) -> Arc<PersistentVolume> {
    let value = json!({"metadata": {"name": "pv"}, "spec": {
        "accessModes": modes, "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.a:b", "lun": 2},
    }});
    Arc::new(serde_json::from_value(value).expect("a volume"))
}

/// A node with what it says of the disk.
fn with_disk(name: &str, ready: bool, in_use: bool, given: bool) -> Arc<Node> {
    let text = serde_json::to_string(&*node(name, ready, in_use, given)).expect("a node");
    Arc::new(serde_json::from_str(&text.replace(UNIQUE, DISK)).expect("a node"))
}

fn observed_disk(modes: &[&str], pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Observed {
    Observed { volume: disk(modes), ..observed(pods, &[], nodes) }
}

#[test]
fn a_disk_for_one_node_is_given_to_the_second_when_the_first_gave_it_back() {
    let once = ["ReadWriteOnce"];
    let pods = [user("a", "n1"), user("b", "n2")];
    let free = [with_disk("n1", true, false, false), with_disk("n2", true, false, false)];
    let waits = "b FailedAttachVolume: Waiting for detach for volume \"pv\" Volume is already used by pod(s) a";
    let first = check(&observed_disk(&once, &pods, &free), &["report n1 to a", waits]);
    // The cache does not show yet what was said.
    let again = Observed { remembered: first.remembered, ..observed_disk(&once, &pods[1..], &free) };
    let taken = check(&again, &["take n1"]);
    assert!(taken.remembered.given.is_some_and(|(_, nodes)| nodes.contains("n1")), "until it is given back");
    let uses = [with_disk("n1", true, true, true), with_disk("n2", true, false, false)];
    let waits = waits.replace("Volume is already used by pod(s) a", "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node");
    check(&observed_disk(&once, &pods[1..], &uses), &[&waits]);
    let lost = [with_disk("n1", false, true, true), with_disk("n2", true, false, false)];
    let mut waited = observed_disk(&once, &pods[1..], &lost);
    waited.remembered.unwanted.insert("n1".to_owned(), at(-i64::try_from(MAX_WAIT.as_secs()).expect("a time")));
    check(&waited, &["take n1 timeout", &waits]);
    check(&observed_disk(&["ReadWriteMany"], &pods, &free), &["report n1 to a", "report n2 to b"]);
    check(&observed_disk(&once, &pods[..1], &[with_disk("n1", true, true, true)]), &[]);
    check(&observed_disk(&once, &pods[..1], &[]), &[]);
}
