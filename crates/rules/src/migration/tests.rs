//! Volumes under the names of old.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::{PLUGINS, driver_of, plugin_of, volume};

fn old(spec: Value, metadata: Value) -> PersistentVolume {
    let mut object = json!({"metadata": metadata, "spec": spec});
    object["metadata"]["name"] = json!("pv");
    serde_json::from_value(object).unwrap()
}

/// The translated specification.
#[track_caller]
fn new(spec: Value, metadata: Value) -> Value {
    serde_json::to_value(volume(&old(spec, metadata)).unwrap().spec.clone().unwrap()).unwrap()
}

#[test]
fn names_lead_to_drivers() {
    assert_eq!(driver_of("kubernetes.io/gce-pd"), "pd.csi.storage.gke.io");
    assert_eq!(driver_of("example.com/mine"), "example.com/mine");
    assert!(PLUGINS.is_sorted_by_key(|plugin| plugin.name));
    let local = old(json!({"local": {"path": "/x"}}), json!({}));
    assert!(plugin_of(&local).is_none());
    assert_eq!(volume(&local).unwrap().as_ref(), &local);
}

#[test]
fn a_disk_of_aws_has_its_bare_id_and_the_zone_of_its_label() {
    let spec = new(
        json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "fsType": "ext4", "partition": 1}}),
        json!({"labels": {"topology.kubernetes.io/zone": "us-east-1a"}}),
    );
    assert_eq!(
        spec,
        json!({
            "csi": {
                "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4",
                "volumeAttributes": {"partition": "1"},
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["us-east-1a"]},
            ]}]}},
        })
    );
    let bad = old(json!({"awsElasticBlockStore": {"volumeID": "aws:///disk"}}), json!({}));
    assert_eq!(
        volume(&bad).unwrap_err(),
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws:///disk)"
    );
}

#[test]
fn a_disk_of_google_is_found_by_zone_or_region_and_written_by_one() {
    let disk = |labels: Value, modes: Value| {
        new(json!({"gcePersistentDisk": {"pdName": "d"}, "accessModes": modes}), json!({"labels": labels}))
    };
    let spec = disk(json!({}), json!(["ReadWriteMany"]));
    assert_eq!(spec["csi"]["volumeHandle"], "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    assert_eq!(
        (&spec["accessModes"], &spec["csi"]["volumeAttributes"]),
        (&json!(["ReadWriteOnce"]), &json!({"partition": ""}))
    );
    let beta = "failure-domain.beta.kubernetes.io/zone";
    let spec = disk(json!({beta: "us-a1-x"}), json!(["ReadOnlyMany"]));
    assert_eq!(spec["csi"]["volumeHandle"], "projects/UNSPECIFIED/zones/us-a1-x/disks/d");
    assert_eq!(spec["accessModes"], json!(["ReadOnlyMany"]));
    let spec = disk(json!({beta: "us-a1-y__us-a1-x"}), json!(["ReadWriteOnce"]));
    assert_eq!(spec["csi"]["volumeHandle"], "projects/UNSPECIFIED/regions/us-a1/disks/d");
    let term = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(*term, json!({"key": "topology.gke.io/zone", "operator": "In", "values": ["us-a1-x", "us-a1-y"]}));
    let bad = old(json!({"gcePersistentDisk": {"pdName": "d"}}), json!({"labels": {beta: "us-a1-y__eu-b1-x"}}));
    assert!(volume(&bad).unwrap_err().ends_with("got: map[eu-b1:{} us-a1:{}]"));
}

#[test]
fn affinity_comes_before_labels_and_regions_of_old_are_renamed() {
    let required = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let affinity = |expressions: Value| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}});
    let spec = new(
        json!({"cinder": {"volumeID": "c"}, "nodeAffinity": affinity(json!([
            required("failure-domain.beta.kubernetes.io/zone", "z"), required("failure-domain.beta.kubernetes.io/region", "r"),
        ]))}),
        json!({"labels": {"topology.kubernetes.io/zone": "other"}}),
    );
    assert_eq!(
        spec["nodeAffinity"],
        affinity(json!([
            required("topology.cinder.csi.openstack.org/zone", "z"),
            required("topology.kubernetes.io/region", "r")
        ]))
    );
    let spec = new(
        json!({"vsphereVolume": {"volumePath": "[ds] x.vmdk", "storagePolicyName": "gold"}}),
        json!({"labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}}),
    );
    assert_eq!(spec["csi"]["volumeAttributes"], json!({"storagepolicyname": "gold"}));
    assert_eq!(
        spec["nodeAffinity"],
        affinity(json!([
            required("topology.csi.vmware.com/zone", "z"),
            required("topology.csi.vmware.com/region", "r")
        ]))
    );
}

#[test]
fn shares_and_disks_of_azure_and_portworx_carry_their_secrets() {
    let share =
        json!({"azureFile": {"secretName": "azure-storage-account-acc-secret", "shareName": "s", "readOnly": true}});
    let mut spec = share.clone();
    spec["claimRef"] = json!({"namespace": "ns", "name": "c"});
    let group = json!({"annotations": {"kubernetes.io/azure-file-resource-group": "g"}});
    let csi = new(spec, group)["csi"].clone();
    assert_eq!(csi["volumeHandle"], "g#acc#s#pv#ns");
    assert_eq!(csi["nodeStageSecretRef"], json!({"name": "azure-storage-account-acc-secret", "namespace": "ns"}));
    assert_eq!((&csi["readOnly"], &csi["volumeAttributes"]), (&json!(true), &json!({"sharename": "s"})));
    assert!(volume(&old(share, json!({}))).unwrap_err().starts_with("could not find a secret namespace"));
    let disk = json!({"azureDisk": {"diskName": "d", "diskURI": "/u/d", "fsType": "xfs", "kind": "Managed"}});
    let csi = new(disk, json!({}))["csi"].clone();
    assert_eq!(csi["volumeAttributes"], json!({"kind": "Managed", "fstype": "xfs"}));
    let shared = old(json!({"azureDisk": {"diskName": "d", "diskURI": "/u/d", "kind": "Shared"}}), json!({}));
    assert_eq!(volume(&shared).unwrap_err(), "kind(Shared) is not supported in csi migration");
    let auth =
        json!({"annotations": {"openstorage.io/auth-secret-name": "n", "openstorage.io/auth-secret-namespace": "ns"}});
    let csi = new(json!({"portworxVolume": {"volumeID": "p"}}), auth)["csi"].clone();
    assert_eq!(csi["nodeExpandSecretRef"], json!({"name": "n", "namespace": "ns"}));
}
