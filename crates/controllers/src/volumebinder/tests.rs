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

#[test]
fn a_claim_that_is_bound_gets_size_and_attributes_of_its_volume_once() {
    let bound = volume("a", "2Gi", json!({"volumeAttributesClassName": "gold"}));
    let mut claim = claim("1Gi", None);
    claim.status = Some(serde_json::from_value(json!({"phase": "Pending"})).expect("a status"));
    let size = |claim: &PersistentVolumeClaim| claim.status.clone().unwrap().capacity.unwrap()["storage"].0.clone();
    let class = |claim: &PersistentVolumeClaim| claim.status.clone().unwrap().current_volume_attributes_class_name;
    let settled = plan::with_claim_phase(&claim, Some(&bound), "Bound").expect("a change");
    assert_eq!((size(&settled).as_str(), class(&settled).as_deref()), ("2Gi", Some("gold")));
    let later = volume("a", "3Gi", json!({"volumeAttributesClassName": "silver"}));
    assert_eq!(plan::with_claim_phase(&settled, Some(&later), "Bound"), None, "the rest is the resizer's");
    // A volume that grew before it was bound again, and whose contents did not.
    let mut grown = PersistentVolume::clone(&later);
    grown.metadata.annotations = Some([("volume.alpha.kubernetes.io/pre-resize-capacity".into(), "1Gi".into())].into());
    assert_eq!(size(&plan::with_claim_phase(&claim, Some(&grown), "Bound").expect("a change")), "1Gi");
    let lost = plan::with_claim_phase(&settled, None, "Lost").expect("a change");
    assert_eq!((lost.status.clone().unwrap().capacity, class(&lost)), (None, None));
}

#[test]
fn claims_and_volumes_of_old_names_say_which_driver_has_them() {
    let migrated = "pv.kubernetes.io/migrated-to";
    let class = serde_json::from_value(json!({
        "metadata": {"name": "old"}, "provisioner": "kubernetes.io/gce-pd", "volumeBindingMode": "Immediate",
    }))
    .expect("a class");
    let claim = claim("1Gi", Some("old"));
    let Claim::Provision(driver) = plan::claim(&claim, Some(&class), &[]) else { panic!("no provisioner") };
    assert_eq!(driver, "pd.csi.storage.gke.io");
    let mut old = claim.clone();
    let annotations = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let provisioner = ("volume.kubernetes.io/storage-provisioner", "kubernetes.io/gce-pd");
    old.metadata.annotations = annotations(&[provisioner]);
    let marked = plan::migrated_claim(&old).expect("a change");
    assert_eq!(marked.metadata.annotations, annotations(&[provisioner, (migrated, "pd.csi.storage.gke.io")]));
    assert_eq!(plan::migrated_claim(&marked), None);
    // A provisioner that is a driver by itself has nothing to say.
    old.metadata.annotations = annotations(&[(provisioner.0, "d.example"), (migrated, "pd.csi.storage.gke.io")]);
    let plain = plan::migrated_claim(&old).expect("a change");
    assert_eq!(plain.metadata.annotations, annotations(&[(provisioner.0, "d.example")]));
    let mut made = PersistentVolume::clone(&volume("a", "1Gi", json!({})));
    assert_eq!(plan::migrated_volume(&made), None, "nobody made it");
    made.metadata.annotations = annotations(&[("pv.kubernetes.io/provisioned-by", "kubernetes.io/aws-ebs")]);
    let marked = plan::migrated_volume(&made).expect("a change").metadata.annotations.expect("annotations");
    assert_eq!(marked[migrated], "ebs.csi.aws.com");
}
