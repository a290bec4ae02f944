//! Classes of volume attributes stay as long as somebody names them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::json;

use super::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_volume_attributes_goes_when_no_claim_names_it() {
    let rig = Rig::start().await;
    for name in ["unused", "used"] {
        let class = rig
            .create::<VolumeAttributesClass>(
                json!({"metadata": {"name": name}, "driverName": "d.example.com", "parameters": {"iops": "1"}}),
            )
            .await;
        assert_eq!(class.metadata.finalizers.unwrap_or_default(), ["kubernetes.io/vac-protection"]);
    }
    rig.create::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "used", "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .await;
    let controllers = "volumeattributesclass-protection-controller,persistentvolumeclaim-protection-controller";
    let _running = rig.run(controllers);
    rig.delete::<VolumeAttributesClass>("", "used").await;
    rig.delete::<VolumeAttributesClass>("", "unused").await;
    // One worker takes both, in the order in which they were deleted: when the second is gone, the first was judged.
    rig.gone::<VolumeAttributesClass>("", "unused").await;
    let used = rig.client.get::<VolumeAttributesClass>("", "used").await.expect("it is still used");
    assert!(used.metadata.deletion_timestamp.is_some());
    rig.delete::<PersistentVolumeClaim>("default", "data").await;
    rig.gone::<VolumeAttributesClass>("", "used").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_lost_its_finalizer_gets_it_back() {
    let rig = Rig::start().await;
    rig.create::<VolumeAttributesClass>(
        json!({"metadata": {"name": "gold"}, "driverName": "d.example.com", "parameters": {"iops": "1"}}),
    )
    .await;
    rig.patch::<VolumeAttributesClass>("", "gold", json!({"metadata": {"finalizers": null}})).await;
    let _running = rig.run("volumeattributesclass-protection-controller");
    rig.until::<VolumeAttributesClass>("", "gold", "a finalizer", |class| {
        class.metadata.finalizers.as_deref() == Some(&["kubernetes.io/vac-protection".to_owned()])
    })
    .await;
}
