//! Names, labels and claims of the pods of a StatefulSet.

use std::collections::BTreeMap;

use client::Kind;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::common::meta::{MetaExt, controller_reference};

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// `web-3` is number 3 of `web`.
pub(super) fn parent_and_ordinal(pod: &str) -> Option<(&str, i32)> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    let canonical = ordinal == "0" || !ordinal.starts_with(['0', '+']);
    Some((parent, ordinal.parse().ok().filter(|ordinal| *ordinal >= 0 && canonical)?))
}

pub(super) fn ordinal(pod: &Pod) -> i32 {
    parent_and_ordinal(pod.metadata.name()).map_or(-1, |(_, ordinal)| ordinal)
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name())
}

/// The labels that are part of a pod's identity.
pub(super) fn labels(_set: &StatefulSet, pod: &str) -> BTreeMap<String, String> {
    let index = parent_and_ordinal(pod).map(|(_, ordinal)| ordinal.to_string()).unwrap_or_default();
    BTreeMap::from([(NAME_LABEL.to_owned(), pod.to_owned()), (INDEX_LABEL.to_owned(), index)])
}

/// Whether name, labels and volumes are as they should be.
pub(super) fn matches(set: &StatefulSet, pod: &Pod) -> bool {
    let labelled = labels(set, pod.metadata.name()).iter().all(|(key, value)| pod.metadata.label(key) == Some(value));
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mounted = volumes_of(set, pod.metadata.name()).iter().all(|wanted| {
        let claim = |volume: &Volume| volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        volumes.iter().any(|volume| volume.name == wanted.name && claim(volume) == claim(wanted))
    });
    labelled && mounted
}

fn claim_name(template: &PersistentVolumeClaim, pod: &str) -> String {
    format!("{}-{pod}", template.metadata.name())
}

/// The claims of a pod, as they are created.
pub(super) fn claims(set: &StatefulSet, pod: &str) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| {
            let mut labels = template.metadata.labels.clone().unwrap_or_default();
            labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
            PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(claim_name(template, pod)),
                    namespace: set.metadata.namespace.clone(),
                    labels: (!labels.is_empty()).then_some(labels),
                    annotations: template.metadata.annotations.clone(),
                    ..ObjectMeta::default()
                },
                spec: template.spec.clone(),
                status: None,
            }
        })
        .collect()
}

/// The volumes that stand for the claims.
pub(super) fn volumes_of(set: &StatefulSet, pod: &str) -> Vec<Volume> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| Volume {
            name: template.metadata.name().to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(template, pod),
                read_only: Some(false),
            }),
            ..Volume::default()
        })
        .collect()
}

/// The owners a claim should have under the retention policy; `None` if it has them.
pub(super) fn claim_owners(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    let start = set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default();
    let number = ordinal(pod);
    let condemned = number < start || number >= start.saturating_add(set.spec.replicas.unwrap_or(1));
    let known = claim.metadata.owner_references.clone().unwrap_or_default();
    let mut owners: Vec<OwnerReference> = known
        .iter()
        .filter(|owner| owner.uid != set.metadata.uid() && !(owner.kind == "Pod" && owner.name == pod.metadata.name()))
        .cloned()
        .collect();
    // A pod that is only updated must not take its claim along; one that is scaled away may.
    if when_scaled && condemned {
        owners.push(plain(pod));
    } else if when_deleted {
        owners.push(controller_reference(set));
    }
    (owners != known).then_some(owners)
}

/// An owner that is no controller.
fn plain<K: Kind>(owner: &K) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..controller_reference(owner) }
}
