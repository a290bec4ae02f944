//! Volumes of drivers that grow, and how full they are.

use client::Patch;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus};
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::{Value, json};
use testkit::csi::{Traits, Trouble};
use tonic::Code;

use crate::rig::{NODE, Rig};
use crate::storage::{LOOP, claim, driver, volume, with_volume};

/// What a driver's resizer does before it is the node's turn.
async fn grow(rig: &Rig, size: &str) {
    let larger = Patch::Merge(json!({"spec": {"capacity": {"storage": size}}}));
    rig.admin.patch::<PersistentVolume>("", "v", &larger).await.unwrap();
    let pending = Patch::Merge(json!({"status": {
        "allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }}));
    rig.admin.patch_status::<PersistentVolumeClaim>("default", "v", &pending).await.unwrap();
}

async fn until(
    rig: &Rig,
    what: &str,
    wanted: impl Fn(&PersistentVolumeClaimStatus) -> bool,
) -> PersistentVolumeClaimStatus {
    let claim = testkit::object::<PersistentVolumeClaim>(&rig.admin, "default", "v", what, |claim| {
        claim.and_then(|claim| claim.status.as_ref()).is_some_and(&wanted)
    });
    claim.await.and_then(|claim| claim.status.clone()).expect("it is there")
}

fn turn(status: &PersistentVolumeClaimStatus) -> Option<&str> {
    status.allocated_resource_statuses.as_ref()?.get("storage").map(String::as_str)
}

fn has(status: &PersistentVolumeClaimStatus, size: &str) -> bool {
    status.capacity.as_ref().is_some_and(|all| all["storage"].0 == size)
}

#[tokio::test]
async fn growth_that_fails_is_told_and_a_smaller_one_recovers_it() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    driver.trouble("NodeExpandVolume", Trouble::Refuse(Code::Internal, "busy".to_owned()));
    driver.trouble("NodeExpandVolume", Trouble::Refuse(Code::OutOfRange, "too large".to_owned()));
    grow(&rig, "8Gi").await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    // What cannot be done keeps the pod only until that is known.
    rig.ready("p").await;
    let events = rig.events("p").await;
    for expect in [
        "FailedMount: MountVolume.Setup failed while expanding volume for volume \"v\" : Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = busy",
        "FailedMount: MountVolume.Setup failed while expanding volume for volume \"v\" : Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too large",
    ] {
        assert!(events.iter().any(|event| event == expect), "{expect} in {events:#?}");
    }
    let claim_now = until(&rig, "infeasible", |status| turn(status) == Some("NodeResizeInfeasible")).await;
    let conditions = claim_now.conditions.unwrap();
    let error = conditions.iter().find(|one| one.type_ == "NodeResizeError").unwrap();
    let first = "failed to expand pvc with Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = busy";
    assert_eq!(error.message.as_deref(), Some(first), "a condition that holds keeps its words");
    assert_eq!(driver.names("v").iter().filter(|name| **name == "NodeExpandVolume").count(), 2);
    // The user asks for less, and the next pod gets it.
    rig.delete("p").await;
    grow(&rig, "2Gi").await;
    rig.pod("q", with_volume(LOOP, claim("v"))).await;
    rig.ready("q").await;
    let done = |status: &PersistentVolumeClaimStatus| {
        has(status, "2Gi") && turn(status).is_none() && status.conditions.iter().flatten().next().is_none()
    };
    until(&rig, "a larger claim", done).await;
    rig.event("q", "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"v\" node-1").await;
    rig.delete("q").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn growth_under_a_pod_is_heard_of() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    rig.ready("p").await;
    grow(&rig, "2Gi").await;
    until(&rig, "a larger claim", |status| has(status, "2Gi") && turn(status).is_none()).await;
    assert_eq!(driver.names("v"), ["NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"]);
    rig.delete("p").await;
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_that_cannot_grow_in_use_keeps_no_pod_from_it() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    driver.trouble("NodeExpandVolume", Trouble::Refuse(Code::FailedPrecondition, "in use".to_owned()));
    grow(&rig, "2Gi").await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    rig.ready("p").await;
    let claim_now = until(&rig, "in progress", |status| turn(status) == Some("NodeResizeInProgress")).await;
    assert!(has(&claim_now, "1Gi"));
    rig.delete("p").await;
    rig.stop().await;
}

#[tokio::test]
async fn how_full_volumes_are_is_asked_of_their_driver() {
    // Every question is passed on.
    let rig = Rig::start_with(|config| config.volume_stats_period = std::time::Duration::ZERO).await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    rig.ready("p").await;
    let used = async || {
        let summary: Value = serde_json::from_str(&rig.get("stats/summary").await).unwrap();
        let volumes = summary["pods"][0]["volume"].as_array().unwrap().clone();
        let data = volumes.iter().find(|volume| volume["name"] == "data").unwrap().clone();
        assert_eq!(data["pvcRef"], json!({"name": "v", "namespace": "default"}));
        let numbers = ["availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes", "inodesUsed"];
        numbers.map(|name| data[name].as_u64().unwrap())
    };
    assert_eq!(used().await, [600, 1000, 400, 60, 100, 40]);
    let text = rig.get("metrics").await;
    let line = "kubelet_volume_stats_used_bytes{namespace=\"default\",persistentvolumeclaim=\"v\"} 400\n";
    assert!(text.contains(line), "{line} in {text}");
    let calls = driver.calls();
    let asked = calls.iter().find(|call| call.name == "NodeGetVolumeStats").unwrap();
    assert!(asked.volume == "v" && asked.target.ends_with("/volumes/kubernetes.io~csi/v/mount"), "{asked:?}");
    // A driver that hangs keeps nobody who asks: they get what it said before.
    driver.trouble("NodeGetVolumeStats", Trouble::Hang);
    assert_eq!(used().await, [600, 1000, 400, 60, 100, 40]);
    rig.delete("p").await;
    rig.stop().await;
}

#[tokio::test]
async fn how_many_volumes_a_node_takes_is_asked_again_as_often_as_the_driver_wants() {
    let rig = Rig::start().await;
    let spec = json!({"attachRequired": false, "nodeAllocatableUpdatePeriodSeconds": 10});
    let driver = driver(&rig, Traits { max_volumes: 7, ..Traits::default() }, spec).await;
    let takes = |count: i32| {
        move |node: Option<&CSINode>| {
            let first = node.and_then(|node| node.spec.drivers.first()?.allocatable.clone());
            first.is_some_and(|all| all.count == Some(count))
        }
    };
    testkit::object::<CSINode>(&rig.admin, "", NODE, "seven", takes(7)).await;
    driver.take(5);
    testkit::object::<CSINode>(&rig.admin, "", NODE, "five", takes(5)).await;
    rig.stop().await;
}
