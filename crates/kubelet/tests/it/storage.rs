//! Volumes of storage drivers, from the driver's point of view and from the pod's.

use std::time::Duration;

use client::{DeleteOptions, Patch};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use serde_json::{Value, json};
use testkit::csi::{Driver, Traits};

use crate::rig::{NODE, Rig, sh};

pub const DRIVER: &str = "test.csi.trireme.io";
pub const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A driver on the rig's node that is registered, with what an administrator says of it.
pub async fn driver(rig: &Rig, traits: Traits, spec: Value) -> Driver {
    let driver = driver_unregistered(rig, traits, spec).await;
    driver.registered().await.unwrap();
    driver
}

pub async fn driver_unregistered(rig: &Rig, traits: Traits, spec: Value) -> Driver {
    let object = json!({"metadata": {"name": DRIVER}, "spec": spec});
    rig.admin.create(&serde_json::from_value::<CSIDriver>(object).unwrap()).await.unwrap();
    rig.eventually_node().await;
    let dir = rig.dir.path();
    Driver::start(&dir.join("kubelet"), &dir.join("driver"), DRIVER, NODE, traits)
}

/// A volume of the driver, and a claim that is bound to it under the same name.
pub async fn volume(rig: &Rig, driver: &Driver, name: &str, extra: Value) {
    std::fs::create_dir_all(driver.contents(name)).unwrap();
    bound(rig, name, extra).await;
}

/// The volumes that a node says it uses.
pub fn in_use(node: Option<&Node>) -> Vec<String> {
    let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
    status.volumes_in_use.unwrap_or_default()
}

pub async fn bound(rig: &Rig, name: &str, extra: Value) {
    let mode = &extra["volumeMode"];
    let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name, "volumeMode": mode,
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim = rig.admin.create(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()).await.unwrap();
    let mut spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "claimRef": {"namespace": "default", "name": name, "uid": claim.metadata.uid},
        "csi": {"driver": DRIVER, "volumeHandle": name, "fsType": "ext4", "volumeAttributes": {"kind": "test"}},
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"metadata": {"name": name}, "spec": spec});
    rig.admin.create(&serde_json::from_value::<PersistentVolume>(object).unwrap()).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}));
    rig.admin.patch_status::<PersistentVolumeClaim>("default", name, &status).await.unwrap();
}

/// A pod's specification with one volume at `/data`.
pub fn with_volume(script: &str, volume: Value) -> Value {
    let mut container = sh("main", script);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut volume = volume;
    volume["name"] = json!("data");
    json!({"containers": [container], "volumes": [volume]})
}

pub fn claim(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

#[tokio::test]
async fn a_volume_is_staged_once_published_to_each_pod_and_goes_in_the_reverse_order() {
    let rig = Rig::start().await;
    let topology = [("topology.trireme.io/rack".to_owned(), "r1".to_owned())].into();
    let traits = Traits { max_volumes: 7, topology, ..Traits::default() };
    let driver = driver(&rig, traits, json!({"attachRequired": false, "podInfoOnMount": true})).await;
    let known = rig.admin.get::<CSINode>("", NODE).await.unwrap();
    let entry = &known.spec.drivers[0];
    assert_eq!((entry.name.as_str(), entry.node_id.as_str()), (DRIVER, NODE));
    assert_eq!(entry.allocatable.as_ref().unwrap().count, Some(7));
    let node = rig.admin.get::<Node>("", NODE).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["topology.trireme.io/rack"], "r1");
    assert_eq!(
        node.metadata.annotations.unwrap()["csi.volume.kubernetes.io/nodeid"],
        format!("{{\"{DRIVER}\":\"{NODE}\"}}")
    );

    volume(&rig, &driver, "v", json!({"mountOptions": ["noatime"]})).await;
    let mut writes = with_volume(&format!("echo hello > /data/file; {LOOP}"), claim("v"));
    writes["securityContext"] = json!({"fsGroup": 1234});
    rig.pod("writes", writes).await;
    rig.ready("writes").await;
    rig.eventually("the file", || {
        std::fs::read_to_string(driver.contents("v").join("file")).is_ok_and(|text| text == "hello\n")
    })
    .await;
    let group = std::os::unix::fs::MetadataExt::gid(&driver.contents("v").metadata().unwrap());
    assert_eq!(group, 1234);
    rig.pod("reads", with_volume(&format!("cat /data/file; {LOOP}"), claim("v"))).await;
    let reads = rig.ready("reads").await;
    rig.eventually("contents", || rig.log(&reads, "main", 0) == "hello\n").await;
    assert_eq!(driver.names("v"), ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]);
    let root = rig.dir.path().join("kubelet");
    let calls = driver.calls();
    let published = calls.iter().rfind(|call| call.name == "NodePublishVolume").unwrap();
    let place = root.join("pods").join(reads.metadata.uid.as_ref().unwrap()).join("volumes/kubernetes.io~csi/v/mount");
    assert_eq!(published.target, place.to_string_lossy());
    assert_eq!(published.context["csi.storage.k8s.io/pod.name"], "reads");
    assert_eq!(published.context["kind"], "test");

    rig.delete("writes").await;
    assert_eq!(driver.names("v").last(), Some(&"NodeUnpublishVolume"), "the other pod still has it");
    rig.delete("reads").await;
    let names = driver.names("v");
    assert_eq!(names[3..], ["NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]);
    assert_eq!(driver.broken_promises(), [] as [String; 0]);
    assert_eq!(driver.in_use(), [] as [String; 0]);
    let staged = std::fs::read_dir(root.join("plugins/kubernetes.io/csi").join(DRIVER)).unwrap().count();
    assert_eq!(staged, 0, "nothing is left where it was staged");
    assert_eq!(std::fs::read_to_string(driver.contents("v").join("file")).unwrap(), "hello\n");
    rig.stop().await;
}

/// A pod that waits for its volume to be attached, which the node says it uses by this name.
async fn waiting() -> (Rig, Driver, String) {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": true})).await;
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("waits", with_volume(LOOP, claim("v"))).await;
    let unique = format!("kubernetes.io/csi/{DRIVER}^v");
    testkit::object::<Node>(&rig.admin, "", NODE, "a volume in use", |node| in_use(node) == [unique.clone()]).await;
    (rig, driver, unique)
}

#[tokio::test]
async fn a_volume_that_has_to_be_attached_is_waited_for_and_reported_in_use() {
    let (rig, driver, unique) = waiting().await;
    assert_eq!(driver.names("v"), [] as [&str; 0]);
    // What the attach-detach controller and the driver's attacher do.
    let name = csi::names::attachment("v", DRIVER, NODE);
    let attachment = json!({"metadata": {"name": name}, "spec": {
        "attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": "v"},
    }});
    rig.admin.create(&serde_json::from_value::<VolumeAttachment>(attachment).unwrap()).await.unwrap();
    let attached = Patch::Merge(json!({"status": {"attached": true, "attachmentMetadata": {"disk": "sdb"}}}));
    rig.admin.patch_status::<VolumeAttachment>("", &name, &attached).await.unwrap();
    let listed = Patch::Merge(json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}}));
    rig.admin.patch_status::<Node>("", NODE, &listed).await.unwrap();
    rig.ready("waits").await;
    let calls = driver.calls();
    let staged = calls.iter().find(|call| call.name == "NodeStageVolume").unwrap();
    assert_eq!(staged.context["disk"], "sdb");
    rig.delete("waits").await;
    testkit::object::<Node>(&rig.admin, "", NODE, "no volume in use", |node| in_use(node).is_empty()).await;
    assert_eq!(driver.in_use(), [] as [String; 0]);
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_whose_driver_needs_no_attaching_any_more_is_not_waited_for_and_may_be_detached() {
    let (rig, _driver, _) = waiting().await;
    // The field cannot be changed: administrators make the object anew.
    rig.admin.delete::<CSIDriver>("", DRIVER, &DeleteOptions::default()).await.unwrap();
    let without = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    rig.admin.create(&serde_json::from_value::<CSIDriver>(without).unwrap()).await.unwrap();
    rig.ready("waits").await;
    testkit::object::<Node>(&rig.admin, "", NODE, "no volume in use", |node| in_use(node).is_empty()).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_pods_own_volume_has_its_tokens_and_secrets() {
    let rig = Rig::start().await;
    let spec = json!({
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"],
        "tokenRequests": [{"audience": "vault"}], "serviceAccountTokenInSecrets": false,
    });
    let driver = driver(&rig, Traits::default(), spec).await;
    let secret = json!({"metadata": {"name": "key", "namespace": "default"}, "stringData": {"password": "hush"}});
    rig.admin.create(&serde_json::from_value::<Secret>(secret).unwrap()).await.unwrap();
    let inline = json!({"csi": {
        "driver": DRIVER, "volumeAttributes": {"size": "1"}, "nodePublishSecretRef": {"name": "key"},
    }});
    rig.pod("inline", with_volume(&format!("touch /data/here; {LOOP}"), inline)).await;
    let pod = rig.ready("inline").await;
    let handle = csi::names::ephemeral_handle(pod.metadata.uid.as_ref().unwrap(), "data");
    assert_eq!(driver.names(&handle), ["NodePublishVolume"]);
    let calls = driver.calls();
    let published = calls.iter().find(|call| call.name == "NodePublishVolume").unwrap();
    assert_eq!(published.context["csi.storage.k8s.io/ephemeral"], "true");
    assert_eq!((published.context["size"].as_str(), published.context["password"].as_str()), ("1", "hush"));
    let tokens: Value = serde_json::from_str(&published.context["csi.storage.k8s.io/serviceAccount.tokens"]).unwrap();
    assert!(tokens["vault"]["token"].as_str().is_some_and(|token| token.split('.').count() == 3), "{tokens}");
    assert!(tokens["vault"]["expirationTimestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{tokens}");
    rig.delete("inline").await;
    assert_eq!(driver.names(&handle), ["NodePublishVolume", "NodeUnpublishVolume"]);
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_device_is_shown_as_a_device_and_keeps_what_is_written() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    std::fs::File::create(driver.contents("disk")).unwrap().set_len(4 << 20).unwrap();
    bound(&rig, "disk", json!({"volumeMode": "Block"})).await;
    let mut container = sh("main", &format!("test -b /dev/xvda && printf marked | dd of=/dev/xvda conv=fsync; {LOOP}"));
    container["volumeDevices"] = json!([{"name": "disk", "devicePath": "/dev/xvda"}]);
    let mut volume = claim("disk");
    volume["name"] = json!("disk");
    rig.pod("block", json!({"containers": [container], "volumes": [volume]})).await;
    rig.ready("block").await;
    rig.eventually("the mark", || std::fs::read(driver.contents("disk")).unwrap().starts_with(b"marked")).await;
    assert_eq!(driver.names("disk"), ["NodeStageVolume", "NodePublishVolume"]);
    rig.delete("block").await;
    assert_eq!(driver.names("disk")[2..], ["NodeUnpublishVolume", "NodeUnstageVolume"]);
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    let devices = rig.dir.path().join("kubelet/plugins/kubernetes.io/csi/volumeDevices");
    assert!(
        !devices.join("disk").exists()
            && !devices.join("staging/disk").exists()
            && !devices.join("publish/disk").exists()
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_no_container_uses_is_not_asked_for_and_keeps_nobody() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    volume(&rig, &driver, "used", json!({})).await;
    volume(&rig, &driver, "unused", json!({})).await;
    let mut pod = with_volume(LOOP, claim("used"));
    let others = [claim("unused"), claim("nowhere"), json!({"configMap": {"name": "nowhere"}})];
    for (index, mut volume) in others.into_iter().enumerate() {
        volume["name"] = json!(format!("other-{index}"));
        pod["volumes"].as_array_mut().unwrap().push(volume);
    }
    rig.pod("p", pod).await;
    rig.ready("p").await;
    assert_eq!(driver.names("unused"), [] as [&str; 0]);
    assert_eq!(driver.names("used"), ["NodeStageVolume", "NodePublishVolume"]);
    rig.delete("p").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_is_taken_for_what_it_is_and_from_its_own_claim() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    bound(&rig, "disk", json!({"volumeMode": "Block"})).await;
    rig.pod("files", with_volume(LOOP, claim("disk"))).await;
    let begin = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: ";
    let why = "volume data has volumeMode Block, but is specified in volumeMounts";
    rig.event("files", &format!("{begin}{why}")).await;
    // A volume that says that it is another claim's.
    bound(&rig, "v", json!({"claimRef": {"namespace": "default", "name": "v", "uid": "old"}})).await;
    rig.pod("early", with_volume(LOOP, claim("v"))).await;
    let event =
        rig.event("early", &format!("{begin}error processing PVC default/v: found PV object v but its pv")).await;
    assert!(event.contains("pv.Spec.ClaimRef.UID old does not point to claim.UID "), "{event}");
    assert_eq!((driver.names("disk"), driver.names("v")), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_claim_made_for_a_pod_is_mounted_if_it_is_the_pods_own() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    let template = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}},
    }});
    volume(&rig, &driver, "own-data", json!({})).await;
    let ephemeral = json!({"ephemeral": {"volumeClaimTemplate": template}});
    let pod = rig.pod("own", with_volume(&format!("touch /data/here; {LOOP}"), ephemeral)).await;
    let why = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: PVC default/own-data was not created for pod default/own (pod is not owner)";
    rig.event("own", why).await;
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "own", "uid": pod.metadata.uid, "controller": true,
    }]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
    rig.admin.patch::<PersistentVolumeClaim>("default", "own-data", &patch).await.unwrap();
    rig.ready("own").await;
    rig.eventually("the file", || driver.contents("own-data").join("here").exists()).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_grows_and_is_published_again_under_a_running_pod() {
    let rig = Rig::start().await;
    let spec = json!({"attachRequired": false, "requiresRepublish": true, "tokenRequests": [{"audience": "vault"}]});
    let driver = driver(&rig, Traits::default(), spec).await;
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("p", with_volume(&format!("echo kept > /data/file; {LOOP}"), claim("v"))).await;
    rig.ready("p").await;
    // What the driver's resizer does.
    let larger = Patch::Merge(json!({"spec": {"capacity": {"storage": "2Gi"}}}));
    rig.admin.patch::<PersistentVolume>("", "v", &larger).await.unwrap();
    let pending = json!([{"type": "FileSystemResizePending", "status": "True"}]);
    let pending = Patch::Merge(json!({"status": {"conditions": pending}}));
    rig.admin.patch_status::<PersistentVolumeClaim>("default", "v", &pending).await.unwrap();
    testkit::object::<PersistentVolumeClaim>(&rig.admin, "default", "v", "a larger claim", |claim| {
        let status = claim.and_then(|claim| claim.status.clone()).unwrap_or_default();
        let has = status.capacity.unwrap_or_default().get("storage").is_some_and(|size| size.0 == "2Gi");
        has && status.conditions.unwrap_or_default().is_empty()
    })
    .await;
    rig.event("p", "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"v\" node-1").await;
    let publishes = || driver.names("v").iter().filter(|name| **name == "NodePublishVolume").count();
    let again = async {
        while publishes() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    testkit::eventually("the volume is published again", again).await;
    // It is published again and again, before the growth and after it.
    let mut calls = driver.names("v");
    assert_eq!(calls[..2], ["NodeStageVolume", "NodePublishVolume"], "{calls:?}");
    calls.retain(|name| *name != "NodePublishVolume");
    assert_eq!(calls, ["NodeStageVolume", "NodeExpandVolume"]);
    assert_eq!(rig.ready("p").await.status.unwrap().container_statuses.unwrap()[0].restart_count, 0);
    rig.delete("p").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}
