//! Generated claims, and what becomes of claims when their users go.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use serde_json::{Value, json};

use super::plan::{self, FINALIZER, Need, Plan, Reservation};
use crate::common::resource_claims::{Named, named, names};
use crate::testing::pod;

fn of_template(name: &str) -> PodResourceClaim {
    PodResourceClaim { name: name.into(), resource_claim_template_name: Some("t".into()), resource_claim_name: None }
}

fn claim(value: Value) -> ResourceClaim {
    let mut claim: ResourceClaim = serde_json::from_value(value).expect("a claim");
    claim.metadata.namespace = Some("ns".to_owned());
    claim
}

#[test]
fn a_claim_is_called_what_the_pod_or_its_status_says() {
    let with_status = |statuses: Value| {
        let statuses = serde_json::from_value(statuses).expect("statuses");
        pod("p").with(|pod| pod.status.get_or_insert_default().resource_claim_statuses = Some(statuses)).build()
    };
    let given = PodResourceClaim { resource_claim_name: Some("mine".into()), ..PodResourceClaim::default() };
    let empty = with_status(json!([]));
    assert_eq!(named(&empty, &given), Named::Given("mine"));
    assert_eq!(named(&empty, &PodResourceClaim::default()), Named::Unsupported);
    assert_eq!(named(&empty, &of_template("gpu")), Named::NotMade);
    let made = with_status(json!([{"name": "gpu", "resourceClaimName": "p-gpu-x"}, {"name": "none"}]));
    assert_eq!(named(&made, &of_template("gpu")), Named::Made("p-gpu-x"));
    assert_eq!(named(&made, &of_template("none")), Named::NotNeeded);
    let mut all = Pod::clone(&made);
    let claims = vec![of_template("gpu"), of_template("none"), of_template("late"), given];
    all.spec.get_or_insert_default().resource_claims = Some(claims);
    assert_eq!(names(&all), ["mine", "p-gpu-x"]);
}

#[test]
fn a_generated_claim_is_its_template_and_belongs_to_its_pod() {
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "t"},
        "spec": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    }))
    .expect("a template");
    let made = serde_json::to_value(plan::generated(&pod("p").build(), &of_template("gpu"), &template)).expect("JSON");
    assert_eq!(
        made["metadata"],
        json!({
            "generateName": "p-gpu-",
            "namespace": "ns",
            "labels": {"a": "b"},
            "annotations": {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}],
        })
    );
    assert_eq!(made["spec"], json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}));
}

#[test]
fn long_names_are_cut_on_both_sides() {
    let template = ResourceClaimTemplate::default();
    let prefix = |name: &str, claim: &str| {
        plan::generated(&pod(name).build(), &of_template(claim), &template).metadata.generate_name.unwrap_or_default()
    };
    assert_eq!(prefix("p", "c"), "p-c-");
    let longest = "x".repeat(63);
    let cut = prefix(&longest, &longest);
    assert_eq!(cut, format!("{}-{}", "x".repeat(28), "x".repeat(28)));
    assert_eq!(prefix(&"p".repeat(253), "c"), format!("{}-", "p".repeat(56)));
}

fn consumer(name: &str, uid: &str) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference { api_group: None, resource: "pods".into(), name: name.into(), uid: uid.into() }
}

#[test]
fn a_pod_needs_its_claim_until_it_is_done() {
    let own = consumer("p", "uid-p");
    let need = |pod: Option<&Pod>| plan::need(&own, pod);
    assert_eq!(need(None), Need::Unknown);
    assert_eq!(need(Some(&pod("p").build())), Need::Keeps);
    assert_eq!(need(Some(&pod("p").on("n").deleting().build())), Need::Keeps, "its containers may still run");
    assert_eq!(need(Some(&pod("p").deleting().build())), Need::Gone, "it will never run");
    assert_eq!(need(Some(&pod("p").on("n").phase("Succeeded").build())), Need::Gone);
    assert_eq!(plan::need(&consumer("p", "another"), Some(&pod("p").build())), Need::Gone, "it was replaced");
    let group = ResourceClaimConsumerReference {
        api_group: Some("scheduling.k8s.io".into()),
        resource: "podgroups".into(),
        ..consumer("g", "u")
    };
    assert_eq!(plan::need(&group, None), Need::Keeps, "nothing is known of its like");
}

#[test]
fn what_nobody_uses_is_given_back() {
    let users = json!([{"resource": "pods", "name": "a", "uid": "1"}, {"resource": "pods", "name": "b", "uid": "2"}]);
    let allocation = json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}});
    let held = json!({
        "metadata": {"finalizers": ["other", FINALIZER]},
        "status": {"allocation": allocation, "reservedFor": users},
    });
    let used = claim(held.clone());
    let both = vec![consumer("a", "1"), consumer("b", "2")];
    assert_eq!(plan::plan(&used, both, None), Plan::default());
    let kept = used.status.as_ref().and_then(|status| status.allocation.clone());
    assert!(kept.is_some());
    let one = vec![consumer("b", "2")];
    let status = Some(Reservation { reserved_for: one.clone(), allocation: kept });
    assert_eq!(plan::plan(&used, one, None), Plan { status, ..Plan::default() });
    let freed = || Some(Reservation { reserved_for: Vec::new(), allocation: None });
    let given_back = Plan { status: freed(), release: true, delete: false };
    assert_eq!(plan::plan(&used, Vec::new(), None), given_back);

    // Allocated in advance and never used: it stays until it is deleted.
    let mut unused = held;
    unused["status"]["reservedFor"] = json!([]);
    assert_eq!(plan::plan(&claim(unused.clone()), Vec::new(), None), Plan::default());
    unused["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(plan::plan(&claim(unused.clone()), Vec::new(), None), given_back);
    unused["status"]["allocation"] = json!(null);
    let released = Plan { release: true, ..Plan::default() };
    assert_eq!(plan::plan(&claim(unused), Vec::new(), None), released);
}

#[test]
fn a_claim_made_for_a_pod_goes_when_the_pod_is_done() {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}]);
    let own = claim(json!({"metadata": {"ownerReferences": owner}}));
    assert_eq!(plan::owning_pod(&own), Some("p"));
    let deletes = |pod: Option<&Pod>| plan::plan(&own, Vec::new(), pod).delete;
    assert!(!deletes(None), "the garbage collector knows whether the pod is gone");
    assert!(!deletes(Some(&pod("p").on("n").build())));
    assert!(deletes(Some(&pod("p").on("n").phase("Failed").build())));
    let another = pod("p").with(|pod| pod.metadata.uid = Some("another".into())).build();
    assert!(deletes(Some(&another)));
}

#[test]
fn the_names_in_a_pods_status_are_added_to_and_replaced() {
    let pod = pod("p").with(|pod| {
        pod.status.get_or_insert_default().resource_claim_statuses = serde_json::from_value(json!([
            {"name": "a", "resourceClaimName": "p-a-1"}, {"name": "b", "resourceClaimName": "p-b-1"}, {"name": "none"}
        ]))
        .expect("statuses");
    });
    let new = [("b".to_owned(), "p-b-2".to_owned()), ("c".to_owned(), "p-c-1".to_owned())];
    let all: Vec<(String, String)> = plan::statuses(&pod.build(), new.into()).into_iter().collect();
    let expected = [("a", "p-a-1"), ("b", "p-b-2"), ("c", "p-c-1")];
    assert_eq!(all, expected.map(|(name, claim)| (name.to_owned(), claim.to_owned())));
}
