use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector as ApiNodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, PersistentVolumeStatus, Pod, VolumeNodeAffinity,
    VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::find::{BIND_CONFLICT, NODE_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING};
use super::*;
use crate::plugins::testing::{cluster, filter, with};
use crate::plugins::volumes::NO_PROVISIONER;
use crate::testing::{node, pod, selector};

const WAIT: &str = "wait";
const NOW: &str = "now";

fn class(name: &str, mode: &str, provisioner: &str) -> Object {
    Object::StorageClass(Arc::new(StorageClass {
        metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
        provisioner: provisioner.into(),
        volume_binding_mode: Some(mode.into()),
        ..Default::default()
    }))
}

fn claim(name: &str, class: &str, volume: &str) -> PersistentVolumeClaim {
    let mut annotations = BTreeMap::new();
    if !volume.is_empty() {
        annotations.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
    }
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(format!("uid-{name}")),
            resource_version: Some("1".into()),
            annotations: Some(annotations),
            ..Default::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            storage_class_name: Some(class.into()),
            volume_name: (!volume.is_empty()).then(|| volume.into()),
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity("5Gi".into()))])),
                ..Default::default()
            }),
            ..Default::default()
        }),
        status: Some(PersistentVolumeClaimStatus::default()),
    }
}

fn volume(name: &str, class: &str, size: &str, on: &str) -> Object {
    let required = ApiNodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![NodeSelectorRequirement {
                key: "kubernetes.io/hostname".into(),
                operator: "In".into(),
                values: Some(vec![on.into()]),
            }]),
            match_fields: None,
        }],
    };
    Object::PersistentVolume(Arc::new(PersistentVolume {
        metadata: ObjectMeta { name: Some(name.into()), resource_version: Some("1".into()), ..Default::default() },
        spec: Some(PersistentVolumeSpec {
            storage_class_name: Some(class.into()),
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(size.into()))])),
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            node_affinity: Some(VolumeNodeAffinity { required: Some(required) }),
            ..Default::default()
        }),
        status: Some(PersistentVolumeStatus { phase: Some("Available".into()), ..Default::default() }),
    }))
}

fn nodes() -> Vec<Node> {
    vec![node("n1").build(), node("n2").build()]
}

fn why(objects: Vec<Object>, pod: Pod) -> Vec<String> {
    filter(VolumeBinding::default(), with(cluster(nodes(), []), objects), pod).into_iter().map(|(_, why)| why).collect()
}

fn of(claim: PersistentVolumeClaim) -> Object {
    Object::PersistentVolumeClaim(Arc::new(claim))
}

#[test]
fn pods_without_claims_and_with_unusable_ones() {
    assert_eq!(why(vec![], pod("p").build()), ["", ""]);
    let missing = "persistentvolumeclaim \"c\" not found";
    assert_eq!(why(vec![], pod("p").claim("c").build()), [missing, missing]);
    let mut lost = claim("c", NOW, "v");
    lost.status = Some(PersistentVolumeClaimStatus { phase: Some("Lost".into()), ..Default::default() });
    let text = "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"";
    assert_eq!(why(vec![of(lost)], pod("p").claim("c").build())[0], text);
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    let objects = vec![class(NOW, "Immediate", "x"), of(claim("c", NOW, ""))];
    assert_eq!(why(objects, pod("p").claim("c").build()), [unbound, unbound]);
}

#[test]
fn a_volume_of_an_old_name_is_where_its_driver_says_on_nodes_that_leave_it_to_the_driver() {
    let mut volume = PersistentVolume {
        metadata: ObjectMeta { name: Some("v".into()), ..Default::default() },
        spec: serde_json::from_value(serde_json::json!({"cinder": {"volumeID": "c"}})).unwrap(),
        ..Default::default()
    };
    volume.metadata.labels = Some([("topology.kubernetes.io/zone".to_owned(), "z".to_owned())].into());
    let leaves = |name: &str| {
        let annotations = [(MIGRATED_PLUGINS.to_owned(), "kubernetes.io/aws-ebs,kubernetes.io/cinder".to_owned())];
        let metadata =
            ObjectMeta { name: Some(name.into()), annotations: Some(annotations.into()), ..Default::default() };
        Object::CsiNode(Arc::new(CSINode { metadata, ..Default::default() }))
    };
    let objects =
        vec![of(claim("c", NOW, "v")), Object::PersistentVolume(Arc::new(volume)), leaves("n1"), leaves("n2")];
    let zone = "topology.cinder.csi.openstack.org/zone";
    let nodes = vec![node("n1").build(), node("n2").label(zone, "z").build(), node("n3").build()];
    let judged = filter(VolumeBinding::default(), with(cluster(nodes, []), objects), pod("p").claim("c").build());
    let whys: Vec<String> = judged.into_iter().map(|(_, why)| why).collect();
    assert_eq!(whys, [NODE_CONFLICT, "", ""], "the third mounts such volumes itself");
}

#[test]
fn bound_claims_bind_the_pod_to_where_their_volume_is() {
    let objects = vec![of(claim("c", NOW, "v")), volume("v", NOW, "5Gi", "n2")];
    assert_eq!(why(objects, pod("p").claim("c").build()), [NODE_CONFLICT, ""]);
    assert_eq!(why(vec![of(claim("c", NOW, "gone"))], pod("p").claim("c").build()), [VOLUME_MISSING, VOLUME_MISSING]);
}

#[test]
fn waiting_claims_find_a_volume_or_are_provisioned() {
    let wait = || class(WAIT, "WaitForFirstConsumer", NO_PROVISIONER);
    let pod = || pod("p").claim("c").build();
    let small = vec![wait(), of(claim("c", WAIT, "")), volume("v", WAIT, "1Gi", "n1")];
    assert_eq!(why(small, pod()), [BIND_CONFLICT, BIND_CONFLICT]);
    let local = vec![wait(), of(claim("c", WAIT, "")), volume("v", WAIT, "10Gi", "n1")];
    assert_eq!(why(local, pod()), ["", BIND_CONFLICT]);
    let dynamic = || vec![class(WAIT, "WaitForFirstConsumer", "csi.example.com"), of(claim("c", WAIT, ""))];
    assert_eq!(why(dynamic(), pod()), ["", ""]);
    // Provisioning has begun elsewhere.
    let mut selected = claim("c", WAIT, "");
    selected.metadata.annotations.get_or_insert_default().insert(SELECTED_NODE.into(), "n2".into());
    assert_eq!(
        why(vec![class(WAIT, "WaitForFirstConsumer", "csi.example.com"), of(selected)], pod()),
        [BIND_CONFLICT, ""]
    );
}

#[test]
fn capacity_is_checked_where_the_driver_reports_it() {
    let driver = Object::CsiDriver(Arc::new(k8s_openapi::api::storage::v1::CSIDriver {
        metadata: ObjectMeta { name: Some("csi.example.com".into()), ..Default::default() },
        spec: k8s_openapi::api::storage::v1::CSIDriverSpec { storage_capacity: Some(true), ..Default::default() },
    }));
    let capacity = |size: &str, on: &str| {
        Object::CsiStorageCapacity(Arc::new(CSIStorageCapacity {
            metadata: ObjectMeta { name: Some(on.into()), namespace: Some("default".into()), ..Default::default() },
            storage_class_name: WAIT.into(),
            capacity: Some(Quantity(size.into())),
            node_topology: Some(selector("kubernetes.io/hostname", on)),
            ..Default::default()
        }))
    };
    let objects = vec![
        class(WAIT, "WaitForFirstConsumer", "csi.example.com"),
        driver,
        of(claim("c", WAIT, "")),
        capacity("1Gi", "n1"),
        capacity("10Gi", "n2"),
    ];
    assert_eq!(why(objects, pod("p").claim("c").build()), [NOT_ENOUGH_SPACE, ""]);
}

#[test]
fn a_promised_volume_is_not_promised_twice_until_given_back() {
    let plugin = Arc::new(VolumeBinding::default());
    let mut world = with(
        cluster(nodes(), []),
        vec![
            class(WAIT, "WaitForFirstConsumer", NO_PROVISIONER),
            of(claim("a", WAIT, "")),
            of(claim("b", WAIT, "")),
            volume("v", WAIT, "10Gi", "n1"),
        ],
    );
    let info = |name: &str, claim: &str| Arc::new(PodInfo::new(Arc::new(pod(name).claim(claim).build())));
    let (first, second) = (info("first", "a"), info("second", "b"));
    world.prepare(&first);
    let mut state = CycleState::default();
    let n1 = world.node_named("n1").unwrap();
    plugin.pre_filter(&mut state, &first, &world).unwrap();
    plugin.reserve(&mut state, &first, n1, &world).unwrap();
    assert!(plugin.pre_bind(&state, &first, n1, &world).is_some());
    plugin.pre_filter(&mut state, &second, &world).unwrap();
    assert!(!plugin.filter(&state, &second, n1, &world).is_pass());
    plugin.unreserve(&first);
    plugin.pre_filter(&mut state, &second, &world).unwrap();
    assert!(plugin.filter(&state, &second, n1, &world).is_pass());
}
