//! Volumes of a driver: made for a claim, attached to the one node that may have them, and gone with the claim.

use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use serde_json::{Value, json};
use testkit::csi::{Driver, Sidecars, Traits};

use super::{Rig, pod};

const DRIVER: &str = "test.csi.trireme.io";

async fn node(rig: &Rig, name: &str) {
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    rig.create::<Node>(json!({"metadata": {"name": name, "annotations": managed}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    rig.client.patch_status::<Node>("", name, &client::Patch::Strategic(ready)).await.expect("a node that is ready");
}

/// What a kubelet says of the volumes that it has.
async fn uses(rig: &Rig, node: &str, volumes: Value) {
    rig.patch_status::<Node>("", node, json!({"status": {"volumesInUse": volumes}})).await;
}

fn attached(node: &Node) -> Vec<String> {
    let volumes = node.status.clone().unwrap_or_default().volumes_attached.unwrap_or_default();
    volumes.into_iter().map(|volume| volume.name).collect()
}

fn user(name: &str, node: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(name, json!({}), json!({"nodeName": node, "volumes": volumes}))
}

async fn told(rig: &Rig, pod: &str, reason: &str, message: &str) {
    let is_told = |event: &Event| {
        event.involved_object.name.as_deref() == Some(pod)
            && event.reason.as_deref() == Some(reason)
            && event.message.as_deref() == Some(message)
    };
    testkit::objects::<Event>(&rig.client, "default", message, |events| events.iter().any(|event| is_told(event)))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_moves_from_node_to_node_only_when_the_first_has_let_go() {
    let rig = Rig::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let driver = Driver::start(dir.path(), &dir.path().join("driver"), DRIVER, "nobody", Traits::default());
    let _sidecars = Sidecars::start(&rig.client, &driver).await;
    node(&rig, "n1").await;
    node(&rig, "n2").await;
    let _running = rig.run("persistentvolume-binder-controller,persistentvolume-attach-detach-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller");
    rig.create::<StorageClass>(json!({"metadata": {"name": "fast"}, "provisioner": DRIVER})).await;
    rig.create::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .await;
    let bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    let claim = rig.until::<PersistentVolumeClaim>("default", "data", "a bound claim", bound).await;
    let volume = claim.spec.clone().and_then(|spec| spec.volume_name).expect("it is bound");
    let unique = csi::names::unique(DRIVER, &volume);

    rig.create::<Pod>(user("a", "n1")).await;
    rig.until::<Node>("", "n1", "an attached volume", |node| attached(node) == [unique.clone()]).await;
    told(&rig, "a", "SuccessfulAttachVolume", &format!("AttachVolume.Attach succeeded for volume \"{volume}\" ")).await;
    uses(&rig, "n1", json!([unique])).await;
    rig.create::<Pod>(user("b", "n2")).await;
    let waits = format!("Waiting for detach for volume \"{volume}\" Volume is already used by pod(s) a");
    told(&rig, "b", "FailedAttachVolume", &waits).await;

    let now = client::DeleteOptions { grace_period_seconds: Some(0), ..client::DeleteOptions::default() };
    rig.client.delete::<Pod>("default", "a", &now).await.expect("it can be deleted");
    // The node still has it mounted. A change about the volume is looked at before the next one, and nothing comes of it.
    rig.patch::<PersistentVolume>("", &volume, json!({"metadata": {"labels": {"looked": "at"}}})).await;
    let first = rig.client.get::<Node>("", "n1").await.expect("a node");
    assert_eq!(attached(&first), std::slice::from_ref(&unique));
    uses(&rig, "n1", json!(null)).await;
    rig.until::<Node>("", "n2", "an attached volume", |node| attached(node) == [unique.clone()]).await;
    rig.until::<Node>("", "n1", "no volume", |node| attached(node).is_empty()).await;
    let mut names: Vec<_> = driver.calls().into_iter().map(|call| (call.name, call.target)).collect();
    // An attacher asks again when its own cache is late.
    names.dedup();
    let expected = [
        ("CreateVolume", ""),
        ("ControllerPublishVolume", "n1"),
        ("ControllerUnpublishVolume", "n1"),
        ("ControllerPublishVolume", "n2"),
    ];
    assert_eq!(names, expected.map(|(name, target)| (name, target.to_owned())));

    rig.client.delete::<Pod>("default", "b", &now).await.expect("it can be deleted");
    rig.delete::<PersistentVolumeClaim>("default", "data").await;
    rig.gone::<PersistentVolume>("", &volume).await;
    testkit::objects::<VolumeAttachment>(&rig.client, "", "no attachment", <[_]>::is_empty).await;
    assert_eq!((driver.broken_promises(), driver.in_use(), driver.volumes()), (vec![], vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_a_storage_network_is_given_to_one_node_at_a_time() {
    let rig = Rig::start().await;
    node(&rig, "n1").await;
    node(&rig, "n2").await;
    let _running =
        rig.run("persistentvolume-binder-controller,persistentvolume-attach-detach-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller");
    rig.create::<PersistentVolume>(json!({"metadata": {"name": "disk"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
        "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2003-01.io.k8s:e2e", "lun": 0},
    }}))
    .await;
    rig.create::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .await;
    let unique = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2003-01.io.k8s:e2e:0";
    rig.create::<Pod>(user("a", "n1")).await;
    rig.until::<Node>("", "n1", "a disk", |node| attached(node) == [unique]).await;
    told(&rig, "a", "SuccessfulAttachVolume", "AttachVolume.Attach succeeded for volume \"disk\" ").await;
    uses(&rig, "n1", json!([unique])).await;
    rig.create::<Pod>(user("b", "n2")).await;
    told(&rig, "b", "FailedAttachVolume", "Waiting for detach for volume \"disk\" Volume is already used by pod(s) a")
        .await;
    let now = client::DeleteOptions { grace_period_seconds: Some(0), ..client::DeleteOptions::default() };
    rig.client.delete::<Pod>("default", "a", &now).await.expect("it can be deleted");
    // The node still has it mounted. A change about the volume is looked at before the next one, and nothing comes of it.
    rig.patch::<PersistentVolume>("", "disk", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    let [first, second] = ["n1", "n2"].map(|name| rig.client.get::<Node>("", name));
    assert_eq!(attached(&first.await.expect("a node")), [unique]);
    assert!(attached(&second.await.expect("a node")).is_empty());
    uses(&rig, "n1", json!(null)).await;
    rig.until::<Node>("", "n2", "a disk", |node| attached(node) == [unique]).await;
    rig.until::<Node>("", "n1", "no disk", |node| attached(node).is_empty()).await;
    testkit::objects::<VolumeAttachment>(&rig.client, "", "no attachment", <[_]>::is_empty).await;

    // Nothing but what nodes were told is left of a volume that is deleted while a node has it.
    uses(&rig, "n2", json!([unique])).await;
    rig.client.delete::<Pod>("default", "b", &now).await.expect("it can be deleted");
    rig.delete::<PersistentVolumeClaim>("default", "data").await;
    rig.delete::<PersistentVolume>("", "disk").await;
    rig.gone::<PersistentVolume>("", "disk").await;
    uses(&rig, "n2", json!(null)).await;
    rig.until::<Node>("", "n2", "no disk", |node| attached(node).is_empty()).await;
}
