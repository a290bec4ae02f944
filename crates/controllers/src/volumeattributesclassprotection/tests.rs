//! Which classes are named, and when they no longer are.

use std::sync::Arc;

use informer::{Change, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::plan::{left, of_claim, of_volume};

fn claim(value: Value) -> PersistentVolumeClaim {
    serde_json::from_value(value).expect("a claim")
}

#[test]
fn a_claim_names_what_it_wants_has_and_is_moved_to() {
    for (value, expected) in [
        (json!({}), &[][..]),
        (json!({"spec": {"volumeAttributesClassName": ""}}), &[]),
        (json!({"spec": {"volumeAttributesClassName": "gold"}}), &["gold"]),
        (
            json!({"spec": {"volumeAttributesClassName": "gold"}, "status": {"currentVolumeAttributesClassName": "silver"}}),
            &["gold", "silver"],
        ),
        (
            json!({"spec": {"volumeAttributesClassName": "gold"}, "status": {
                "currentVolumeAttributesClassName": "gold",
                "modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": "bronze"}}}),
            &["bronze", "gold"],
        ),
    ] {
        assert_eq!(of_claim(&claim(value.clone())), expected, "{value}");
    }
    let volume: PersistentVolume =
        serde_json::from_value(json!({"spec": {"volumeAttributesClassName": "gold"}})).expect("a volume");
    assert_eq!(of_volume(&volume), ["gold"]);
    assert!(of_volume(&PersistentVolume::default()).is_empty());
}

#[test]
fn a_class_is_looked_at_when_somebody_leaves_it() {
    let named = |name: &str| Arc::new(claim(json!({"spec": {"volumeAttributesClassName": name}})));
    let gold = [Key::cluster("gold")];
    assert_eq!(left(&Change::Added(named("gold")), of_claim), []);
    assert_eq!(left(&Change::Modified { old: named("gold"), new: named("silver") }, of_claim), gold);
    assert_eq!(left(&Change::Modified { old: named("gold"), new: named("gold") }, of_claim), []);
    assert_eq!(left(&Change::Deleted(named("gold")), of_claim), gold);
}
