//! Claims of devices: made for pods, reserved by them, given back, and taken away when a device is tainted.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde_json::{Value, json};
use testkit::objects;

use super::{Rig, finalizers, pod};

const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

fn requests() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

fn allocation() -> Value {
    json!({"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}})
}

/// A claim that somebody allocated and reserved, as the scheduler does.
async fn allocated(rig: &Rig, name: &str, users: &[(&str, &str)]) {
    let metadata = json!({"name": name, "namespace": "default", "finalizers": [PROTECTION]});
    rig.create::<ResourceClaim>(json!({"metadata": metadata, "spec": requests()})).await;
    let users: Vec<Value> =
        users.iter().map(|(name, uid)| json!({"resource": "pods", "name": name, "uid": uid})).collect();
    let status = json!({"allocation": allocation(), "reservedFor": users});
    rig.patch_status::<ResourceClaim>("default", name, json!({"status": status})).await;
}

fn users(claim: &ResourceClaim) -> usize {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_ref()).map_or(0, Vec::len)
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_claim_of_its_template_and_leaves_it_when_it_is_done() {
    let rig = Rig::start().await;
    let _running = rig.run("resourceclaim-controller");
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let with_claims = json!({"resourceClaims": claims, "restartPolicy": "Never"});
    let made = rig.create::<Pod>(pod("worker", json!({}), with_claims)).await;
    objects::<Event>(&rig.client, "default", "a word about the missing template", |events| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedResourceClaimCreation")
                && event.message.as_deref()
                    == Some("PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found")
                && event.type_.as_deref() == Some("Warning")
        })
    })
    .await;
    rig.create::<ResourceClaimTemplate>(
        json!({"metadata": {"name": "t", "namespace": "default"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": requests()}}),
    )
    .await;
    let told = rig
        .until::<Pod>("default", "worker", "the claim's name in its status", |pod| {
            pod.status.as_ref().is_some_and(|status| status.resource_claim_statuses.is_some())
        })
        .await;
    let statuses = told.status.as_ref().and_then(|status| status.resource_claim_statuses.clone()).unwrap_or_default();
    assert_eq!(statuses.len(), 1);
    let name = statuses[0].resource_claim_name.clone().unwrap_or_default();
    assert!(statuses[0].name == "gpu" && name.starts_with("worker-gpu-"), "{statuses:?}");
    let claim = rig.client.get::<ResourceClaim>("default", &name).await.expect("the claim");
    let owner = &claim.metadata.owner_references.as_ref().expect("an owner")[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Pod", made.metadata.uid.as_ref()));
    assert_eq!(claim.metadata.labels.unwrap_or_default()["a"], "b");

    // One that somebody deletes under the pod is made again.
    rig.delete::<ResourceClaim>("default", &name).await;
    let again = rig
        .until::<Pod>("default", "worker", "another claim", |pod| {
            let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
            statuses.into_iter().any(|status| status.resource_claim_name.as_deref() != Some(&name))
        })
        .await;
    assert_eq!(again.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref()).map(Vec::len), Some(1));

    rig.patch_status::<Pod>("default", "worker", json!({"status": {"phase": "Succeeded"}})).await;
    objects::<ResourceClaim>(&rig.client, "default", "no claim", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_pods_that_are_gone_reserved_is_given_back() {
    let rig = Rig::start().await;
    let claims = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    let spec = json!({"nodeName": "n", "restartPolicy": "Never", "resourceClaims": claims});
    let user = rig.create::<Pod>(pod("user", json!({}), spec)).await;
    let uid = user.metadata.uid.unwrap_or_default();
    allocated(&rig, "shared", &[("user", &uid), ("gone", "1-2-3")]).await;
    allocated(&rig, "replaced", &[("user", "another-uid")]).await;
    let _running = rig.run("resourceclaim-controller");
    let shared = rig.until::<ResourceClaim>("default", "shared", "one user", |claim| users(claim) == 1).await;
    assert!(is_allocated(&shared), "somebody still uses it");
    let unused = |claim: &ResourceClaim| {
        let free = claim.metadata.finalizers.as_deref().unwrap_or_default().is_empty();
        users(claim) == 0 && !is_allocated(claim) && free
    };
    rig.until::<ResourceClaim>("default", "replaced", "nothing allocated", unused).await;
    rig.patch_status::<Pod>("default", "user", json!({"status": {"phase": "Failed"}})).await;
    rig.until::<ResourceClaim>("default", "shared", "nothing allocated", unused).await;

    // Allocated in advance: it stays so until somebody deletes it.
    allocated(&rig, "advance", &[]).await;
    rig.delete::<ResourceClaim>("default", "advance").await;
    rig.gone::<ResourceClaim>("default", "advance").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_pod_gets_the_reservation_that_it_lacks() {
    let rig = Rig::start().await;
    let _running = rig.run("resourceclaim-controller");
    allocated(&rig, "given", &[]).await;
    let claims = json!([{"name": "gpu", "resourceClaimName": "given"}]);
    rig.create::<Pod>(pod("bound", json!({}), json!({"nodeName": "n", "resourceClaims": claims}))).await;
    rig.until::<ResourceClaim>("default", "given", "a user", |claim| users(claim) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tainted_device_evicts_its_user_and_the_rule_tells() {
    let rig = Rig::start().await;
    let claims = json!([{"name": "gpu", "resourceClaimName": "given"}]);
    let spec = json!({"nodeName": "n", "resourceClaims": claims});
    let user = rig.create::<Pod>(pod("user", json!({"finalizers": ["example.com/look"]}), spec)).await;
    allocated(&rig, "given", &[("user", user.metadata.uid.as_deref().unwrap_or_default())]).await;
    rig.create::<ResourceSlice>(json!({
        "metadata": {"name": "s"},
        "spec": {"driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "x"}]},
    }))
    .await;
    let _running = rig.run("device-taint-eviction-controller");
    let says = |rule: &DeviceTaintRule, reason: &str| {
        let conditions = rule.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let found = conditions.iter().find(|condition| condition.type_ == "EvictionInProgress");
        found.filter(|condition| condition.reason == reason).map(|condition| condition.message.clone())
    };
    let rule = |name: &str, effect: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "broken", "effect": effect}}})
    };
    rig.create::<DeviceTaintRule>(rule("trial", "None")).await;
    let trial =
        rig.until::<DeviceTaintRule>("", "trial", "what would be", |rule| says(rule, "NoEffect").is_some()).await;
    assert_eq!(
        says(&trial, "NoEffect").unwrap_or_default(),
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    );
    let pod = rig.client.get::<Pod>("default", "user").await.expect("the pod");
    assert!(pod.metadata.deletion_timestamp.is_none() && finalizers(&pod).len() == 1);

    rig.create::<DeviceTaintRule>(rule("broken", "NoExecute")).await;
    let evicted = rig.until::<Pod>("default", "user", "its end", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let conditions = evicted.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").expect("a reason");
    assert_eq!(
        (target.status.as_str(), target.reason.as_deref(), target.message.as_deref()),
        ("True", Some("DeletionByDeviceTaintManager"), Some("Device Taint manager: deleting due to NoExecute taint"))
    );
    objects::<Event>(&rig.client, "default", "an event", |events| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("DeviceTaintManagerEviction")
                && event.message.as_deref() == Some("Marking for deletion")
        })
    })
    .await;
    let done =
        rig.until::<DeviceTaintRule>("", "broken", "its work done", |rule| says(rule, "Completed").is_some()).await;
    assert_eq!(says(&done, "Completed").unwrap_or_default(), "1 pod evicted since starting the controller.");
}
