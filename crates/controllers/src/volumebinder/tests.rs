//! Which volume a claim gets.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::plan::{self, Claim, Volume};

fn volume(name: &str, size: &str, spec: Value) -> Arc<PersistentVolume> {
    let mut value = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}});
    for (key, field) in spec.as_object().into_iter().flatten() {
        value["spec"][key] = field.clone();
    }
    Arc::new(serde_json::from_value(value).expect("a volume"))
}

fn claim(size: &str, class: Option<&str>) -> PersistentVolumeClaim {
    let value = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": class},
    });
    serde_json::from_value(value).expect("a claim")
}

#[track_caller]
fn check(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>], expected: Option<&str>) {
    let chosen = match plan::claim(claim, None, volumes) {
        Claim::Bind(volume) => volume.metadata.name,
        _ => None,
    };
    assert_eq!(chosen.as_deref(), expected);
}

#[test]
fn the_smallest_volume_that_is_large_enough_is_taken() {
    let volumes =
        [volume("small", "1Gi", json!({})), volume("large", "10Gi", json!({})), volume("right", "5Gi", json!({}))];
    check(&claim("5Gi", None), &volumes, Some("right"));
    check(&claim("6Gi", None), &volumes, Some("large"));
    check(&claim("11Gi", None), &volumes, None);
}

#[test]
fn classes_modes_and_owners_must_fit() {
    check(&claim("1Gi", Some("fast")), &[volume("a", "1Gi", json!({}))], None);
    check(&claim("1Gi", Some("fast")), &[volume("a", "1Gi", json!({"storageClassName": "fast"}))], Some("a"));
    check(&claim("1Gi", None), &[volume("a", "1Gi", json!({"accessModes": ["ReadOnlyMany"]}))], None);
    check(&claim("1Gi", None), &[volume("a", "1Gi", json!({"volumeMode": "Block"}))], None);
    let other = json!({"claimRef": {"namespace": "ns", "name": "other"}});
    check(&claim("1Gi", None), &[volume("a", "1Gi", other)], None);
    let reserved = json!({"claimRef": {"namespace": "ns", "name": "c"}});
    check(&claim("1Gi", None), &[volume("b", "1Gi", json!({})), volume("a", "9Gi", reserved)], Some("a"));
}

#[test]
fn a_volume_is_released_when_its_claim_is_gone_or_another() {
    let bound = volume("a", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "u"}}));
    assert!(matches!(plan::volume(&bound, Some(None)), Volume::Phase("Released")));
    assert!(matches!(plan::volume(&bound, Some(Some(&claim("1Gi", None)))), Volume::Bound(_)));
    let earlier = volume("a", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "before"}}));
    assert!(matches!(plan::volume(&earlier, Some(Some(&claim("1Gi", None)))), Volume::Phase("Released")));
    assert!(matches!(plan::volume(&volume("a", "1Gi", json!({})), None), Volume::Phase("Available")));
}
