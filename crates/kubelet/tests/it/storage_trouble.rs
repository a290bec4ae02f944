//! Drivers that fail, hang, die and lie, and a kubelet that dies with volumes mounted.

use std::time::Duration;

use client::{DeleteOptions, Patch};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use serde_json::json;
use testkit::csi::{Traits, Trouble};
use tonic::Code;

use crate::rig::{NODE, Rig, condition};
use crate::storage::{DRIVER, LOOP, bound, claim, driver, driver_unregistered, volume, with_volume};

#[tokio::test]
async fn every_call_is_tried_again_after_an_error_and_nothing_is_done_out_of_order() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    let refused = |why: &str| Trouble::Refuse(Code::Internal, why.to_owned());
    // It is not known whether these were done, and they were.
    let unclear = || Trouble::DoneBut(Code::Unavailable, "gone".to_owned());
    driver.trouble("NodeStageVolume", refused("no disk"));
    driver.trouble("NodeStageVolume", unclear());
    driver.trouble("NodePublishVolume", refused("no path"));
    driver.trouble("NodePublishVolume", unclear());
    driver.trouble("NodeUnpublishVolume", refused("busy"));
    driver.trouble("NodeUnpublishVolume", unclear());
    driver.trouble("NodeUnstageVolume", refused("busy"));
    driver.trouble("NodeUnstageVolume", unclear());
    rig.pod("p", with_volume(&format!("echo kept > /data/file; {LOOP}"), claim("v"))).await;
    rig.ready("p").await;
    let events = rig.events("p").await;
    for expect in [
        "FailedMount: MountVolume.MountDevice failed for volume \"v\" : rpc error: code = Internal desc = no disk",
        "FailedMount: MountVolume.MountDevice failed for volume \"v\" : rpc error: code = Unavailable desc = gone",
        "FailedMount: MountVolume.SetUp failed for volume \"v\" : rpc error: code = Internal desc = no path",
    ] {
        assert!(events.iter().any(|event| event == expect), "{expect} in {events:#?}");
    }
    rig.delete("p").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    let tries = |name: &str| driver.names("v").iter().filter(|call| **call == name).count();
    assert_eq!([tries("NodeStageVolume"), tries("NodeUnstageVolume")], [3, 3]);
    assert_eq!(std::fs::read_to_string(driver.contents("v").join("file")).unwrap(), "kept\n");
    rig.stop().await;
}

/// The calls about a volume besides those to stage it, when its pod is deleted whose driver answers these with a code.
async fn calls_after_failed_staging(code: Code) -> Vec<&'static str> {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({})).await;
    // More than there are tries before the pod is deleted.
    (0..100).for_each(|_| driver.trouble("NodeStageVolume", Trouble::Refuse(code, "no disk".to_owned())));
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    driver.until("two tries", |calls| calls.iter().filter(|call| call.name == "NodeStageVolume").count() >= 2).await;
    rig.delete("p").await;
    let calls = driver.names("v");
    rig.stop().await;
    calls.into_iter().filter(|call| *call != "NodeStageVolume").collect()
}

#[tokio::test]
async fn what_a_driver_refused_to_stage_is_not_unstaged() {
    assert_eq!(calls_after_failed_staging(Code::InvalidArgument).await, [] as [&str; 0]);
}

#[tokio::test]
async fn what_a_driver_may_have_staged_is_unstaged() {
    let calls = calls_after_failed_staging(Code::DeadlineExceeded).await;
    assert_eq!(calls, ["NodeUnpublishVolume", "NodeUnstageVolume"]);
}

#[tokio::test]
async fn a_driver_that_comes_late_or_dies_is_waited_for_and_stops_nobody_else() {
    let rig = Rig::start().await;
    let mut driver = driver_unregistered(&rig, Traits::default(), json!({"attachRequired": false})).await;
    driver.registered().await.unwrap();
    driver.unregister();
    let listed =
        |node: Option<&CSINode>| node.is_some_and(|node| node.spec.drivers.iter().any(|one| one.name == DRIVER));
    testkit::object::<CSINode>(&rig.admin, "", NODE, "no driver", |node| node.is_some() && !listed(node)).await;
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("waits", with_volume(LOOP, claim("v"))).await;
    let missing = format!("driver name {DRIVER} not found in the list of registered CSI drivers");
    let event = rig.event("waits", "FailedMount: MountVolume.MountDevice failed for volume \"v\" : ").await;
    assert!(event.ends_with(&missing), "{event}");
    rig.pod("other", json!({"containers": [crate::rig::sh("main", LOOP)]})).await;
    rig.ready("other").await;
    driver.revive();
    testkit::object::<CSINode>(&rig.admin, "", NODE, "the driver", listed).await;
    rig.ready("waits").await;
    // Deleted while its driver is dead: it stays until the driver is back, and loses nothing.
    driver.unregister();
    rig.admin.delete::<Pod>("default", "waits", &DeleteOptions::default()).await.unwrap();
    rig.until("waits", "stopped", |pod| condition(pod, "Ready") != Some("True")).await;
    let staged = rig.dir.path().join("kubelet/plugins/kubernetes.io/csi").join(DRIVER);
    assert_eq!(std::fs::read_dir(&staged).unwrap().count(), 1);
    driver.revive();
    rig.gone("waits").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn what_was_mounted_before_a_crash_is_found_again_and_taken_away() {
    let mut rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    for name in ["a", "b"] {
        volume(&rig, &driver, name, json!({})).await;
        rig.pod(name, with_volume(&format!("echo {name} > /data/file; {LOOP}"), claim(name))).await;
        rig.ready(name).await;
    }
    rig.crash_kubelet().await;
    // One is deleted while nobody looks, the other one goes on.
    let force = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    rig.admin.delete::<Pod>("default", "b", &force).await.unwrap();
    rig.start_kubelet();
    driver
        .until("b unstaged", |calls| calls.iter().any(|call| call.name == "NodeUnstageVolume" && call.volume == "b"))
        .await;
    rig.ready("a").await;
    assert!(!driver.names("a").contains(&"NodeUnpublishVolume"), "it is in use");
    rig.delete("a").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    for name in ["a", "b"] {
        assert_eq!(std::fs::read_to_string(driver.contents(name).join("file")).unwrap(), format!("{name}\n"));
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_its_volume_is_being_mounted_leaves_nothing() {
    let mut rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    bound(&rig, "v", json!({})).await;
    std::fs::create_dir_all(driver.contents("v")).unwrap();
    driver.trouble("NodeStageVolume", Trouble::Late(Duration::from_secs(2)));
    let begun = |calls: &[testkit::csi::Call]| calls.iter().any(|call| call.name == "NodeUnstageVolume");
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    let staged = rig.dir.path().join("kubelet/plugins/kubernetes.io/csi").join(DRIVER);
    rig.eventually("the record of staging", || std::fs::read_dir(&staged).is_ok_and(|dir| dir.count() == 1)).await;
    rig.delete("p").await;
    driver.until("unstaged", begun).await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    // Killed between staging and publishing, likewise.
    driver.trouble("NodePublishVolume", Trouble::Hang);
    rig.pod("q", with_volume(LOOP, claim("v"))).await;
    driver
        .until("a publish that hangs", |calls| calls.iter().any(|call| call.name == "NodePublishVolume" && !call.ok))
        .await;
    rig.crash_kubelet().await;
    rig.start_kubelet();
    rig.ready("q").await;
    rig.delete("q").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_for_one_pod_waits_until_the_other_one_is_gone() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "v", json!({"accessModes": ["ReadWriteOncePod"]})).await;
    rig.pod("first", with_volume(LOOP, claim("v"))).await;
    rig.ready("first").await;
    rig.pod("second", with_volume(LOOP, claim("v"))).await;
    let why = "FailedMount: MountVolume.SetUp failed for volume \"v\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    rig.event("second", why).await;
    rig.delete("first").await;
    rig.ready("second").await;
    rig.delete("second").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_pod_goes_whose_node_takes_no_more_volumes() {
    let rig = Rig::start().await;
    let spec = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 3600});
    let driver = driver(&rig, Traits { max_volumes: 7, ..Traits::default() }, spec).await;
    volume(&rig, &driver, "v", json!({})).await;
    driver.take(1);
    let name = csi::names::attachment("v", DRIVER, NODE);
    let attachment = json!({"metadata": {"name": name}, "spec": {
        "attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": "v"},
    }});
    rig.admin.create(&serde_json::from_value::<VolumeAttachment>(attachment).unwrap()).await.unwrap();
    let full = json!({"time": "2026-01-01T00:00:00Z", "message": "no room", "errorCode": 8});
    let full = Patch::Merge(json!({"status": {"attached": false, "attachError": full}}));
    rig.admin.patch_status::<VolumeAttachment>("", &name, &full).await.unwrap();
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    let failed = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
    let status = rig.until("p", "refused", failed).await.status.unwrap();
    let message = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context deadline exceeded";
    assert_eq!(status.reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
    assert_eq!(status.message.unwrap(), format!("Pod was rejected: {message}"));
    rig.event("p", &format!("VolumeAttachmentLimitExceeded: {message}")).await;
    let takes_one = |node: Option<&CSINode>| {
        let first = node.and_then(|node| node.spec.drivers.first()?.allocatable.clone());
        first.is_some_and(|all| all.count == Some(1))
    };
    testkit::object::<CSINode>(&rig.admin, "", NODE, "one volume", takes_one).await;
    assert_eq!(driver.names("v"), [] as [&str; 0]);
    rig.delete("p").await;
    rig.stop().await;
}
