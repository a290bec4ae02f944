//! Storage from end to end: a claim, a volume made by a driver, attached, staged, published, seen by a pod, grown, and gone.

use std::time::Duration;

use client::{Client, DeleteOptions, Kind, Patch};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use serde_json::{Value, json};
use testkit::csi::{Driver, Sidecars, Traits};
use testkit::{object, objects};

use crate::node::{Machine, pod_ready};

const IMAGE: &str = "trireme.local/storage:1";
const DRIVER: &str = "test.csi.trireme.io";
const NODE: &str = "storage-1";

async fn create<K: Kind>(client: &Client, value: Value) {
    client.create(&serde_json::from_value::<K>(value).expect("an object")).await.expect("it can be created");
}

fn writer(name: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": IMAGE,
                "command": ["sh", "-c", format!("{script}; trap 'exit 0' TERM; sleep 86400 & wait")],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    })
}

async fn ready(client: &Client, name: &str) {
    object::<Pod>(client, "default", name, "a ready pod", |pod| pod.is_some_and(pod_ready)).await;
}

async fn delete<K: Kind>(client: &Client, namespace: &str, name: &str) {
    client.delete::<K>(namespace, name, &DeleteOptions::default()).await.expect("it can be deleted");
    object::<K>(client, namespace, name, "it is gone", |object| object.is_none()).await;
}

fn granted(claim: Option<&PersistentVolumeClaim>) -> Option<String> {
    let capacity = claim?.status.as_ref()?.capacity.as_ref()?.get("storage")?;
    Some(capacity.0.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_becomes_a_volume_that_a_pod_writes_to_and_nothing_is_left_in_the_end() {
    let mut machine = Machine::start(NODE, IMAGE).await;
    let client = machine.server.client();
    let data = machine.server.data_dir();
    let driver = Driver::start(&data.join("agent/kubelet"), &data.join("driver"), DRIVER, NODE, Traits::default());
    driver.registered().await.expect("the kubelet takes it");
    let sidecars = Sidecars::start(&client, &driver).await;
    create::<CSIDriver>(&client, json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}})).await;
    create::<StorageClass>(
        &client,
        json!({
            "metadata": {"name": "test"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": true,
        }),
    )
    .await;
    create::<PersistentVolumeClaim>(
        &client,
        json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "test",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }),
    )
    .await;
    create::<Pod>(&client, writer("first", "echo kept > /data/file")).await;
    ready(&client, "first").await;
    let volumes = driver.volumes();
    let [volume] = &volumes[..] else { panic!("one volume: {volumes:?}") };
    let order = ["CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
    let mut names = driver.names(volume);
    // An attacher asks again when its own cache is late.
    names.dedup();
    assert_eq!(names, order);
    let file = driver.contents(volume).join("file");
    testkit::eventually("the file", async {
        while std::fs::read_to_string(&file).unwrap_or_default() != "kept\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    // Killed like by a power cut, the server finds the pod and its volume as they were.
    machine.server.kill().await;
    machine.server.spawn();
    machine.server.ready().await;
    machine.node_ready(NODE).await;
    ready(&client, "first").await;
    let named = format!("kubernetes.io/csi/{DRIVER}^{volume}");
    object::<Node>(&client, "", NODE, "a volume in use", |node| {
        let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
        status.volumes_in_use.as_deref() == Some(std::slice::from_ref(&named))
    })
    .await;
    assert!(!driver.names(volume).contains(&"NodeUnpublishVolume"), "nobody took it away");

    // It grows while nobody has it, and the next pod finds it larger and with what was in it.
    delete::<Pod>(&client, "default", "first").await;
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    client.patch::<PersistentVolumeClaim>("default", "data", &larger).await.expect("it may grow");
    object::<PersistentVolume>(&client, "", volume, "a larger volume", |volume| {
        let capacity = volume.and_then(|volume| volume.spec.as_ref()?.capacity.as_ref()?.get("storage").cloned());
        capacity.is_some_and(|capacity| capacity.0 != "1Gi" && capacity.0 != (1u64 << 30).to_string())
    })
    .await;
    create::<Pod>(&client, writer("second", "test \"$(cat /data/file)\" = kept || exit 1")).await;
    ready(&client, "second").await;
    object::<PersistentVolumeClaim>(&client, "default", "data", "a larger claim", |claim| {
        granted(claim).is_some_and(|size| size == "2Gi" || size == (2u64 << 30).to_string())
    })
    .await;
    assert!(driver.names(volume).contains(&"NodeExpandVolume"));

    delete::<Pod>(&client, "default", "second").await;
    delete::<PersistentVolumeClaim>(&client, "default", "data").await;
    object::<PersistentVolume>(&client, "", volume, "no volume", |volume| volume.is_none()).await;
    objects::<VolumeAttachment>(&client, "", "no attachment", <[_]>::is_empty).await;
    assert_eq!((driver.broken_promises(), driver.in_use(), driver.volumes()), (vec![], vec![], vec![]));
    let staged = std::fs::read_dir(data.join("agent/kubelet/plugins/kubernetes.io/csi").join(DRIVER));
    assert_eq!(staged.map_or(0, Iterator::count), 0, "nothing is left where it was staged");
    drop(sidecars);
    machine.clean().await;
}
