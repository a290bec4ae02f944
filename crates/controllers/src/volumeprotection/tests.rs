//! Who uses what.

use informer::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::plan::{keeps, refers, unused};
use crate::common::storage::claims_of;
use crate::testing::{at, pod};

#[test]
fn a_pod_uses_the_claims_it_names_and_those_made_for_it() {
    let user = pod("a").with(|pod| {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "plain", "emptyDir": {}},
        ]);
        pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).expect("volumes");
    });
    assert_eq!(claims_of(&user.build()), [Key::new("ns", "mine"), Key::new("ns", "a-scratch")]);
}

fn claim(owner: Option<&str>, status: serde_json::Value) -> PersistentVolumeClaim {
    let owners =
        owner.map(|uid| json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": true}]));
    let name = if owner.is_some() { "a-scratch" } else { "mine" };
    let claim = json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": owners}, "status": status});
    serde_json::from_value(claim).expect("a claim")
}

fn user() -> crate::testing::PodBuilder {
    pod("a").with(|pod| {
        pod.metadata.uid = Some("uid-a".to_owned());
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}, {"name": "scratch", "ephemeral": {}},
        ]);
        pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).expect("volumes");
    })
}

#[test]
fn pods_with_a_node_keep_their_claims_whether_they_have_ended_or_not() {
    let (named, own, foreign) = (claim(None, json!({})), claim(Some("uid-a"), json!({})), claim(Some("x"), json!({})));
    let shut_down = user().on("n").deleting().with(|pod| pod.metadata.deletion_grace_period_seconds = Some(0)).build();
    for (pod, expected) in [
        (user().build(), [false, false, false]),
        (user().on("n").build(), [true, true, false]),
        (user().on("n").ready().deleting().build(), [true, true, false]),
        (user().on("n").phase("Succeeded").build(), [true, true, false]),
        (shut_down, [true, false, false]),
    ] {
        assert_eq!([&named, &own, &foreign].map(|claim| keeps(&pod, claim)), expected, "{pod:?}");
    }
}

#[test]
fn a_claim_says_since_when_no_pod_refers_to_it() {
    let bound = claim(None, json!({"phase": "Bound"}));
    assert!(refers(&user().build(), &bound), "a pod without a node refers to it");
    assert!(!refers(&user().on("n").phase("Succeeded").build(), &bound));
    assert!(!refers(&pod("b").build(), &bound));
    let fresh = unused(&bound, false, at(0)).expect("a condition");
    assert_eq!(
        json!(fresh),
        json!([{
            "type": "Unused", "status": "True", "lastTransitionTime": at(0).to_string(), "reason": "NoPodsUsingPVC",
            "message": "No pods are currently referencing this PVC",
        }])
    );
    let known = claim(None, json!({"phase": "Bound", "conditions": fresh}));
    assert_eq!(unused(&known, false, at(5)), None, "since the first time");
    let used = unused(&known, true, at(5)).expect("news");
    assert_eq!((used.len(), used[0].status.as_str(), used[0].reason.as_deref()), (1, "False", Some("PodUsingPVC")));
    assert_eq!(unused(&claim(None, json!({"phase": "Pending"})), false, at(0)), None, "the binder writes it");
    let mut going = bound;
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert_eq!(unused(&going, false, at(0)), None);
}
