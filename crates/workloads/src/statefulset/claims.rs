//! The PersistentVolumeClaims of a StatefulSet: their names, their contents, and who owns them.
//!
//! The retention policy is kept by owner references, so that the garbage collector deletes a claim with the set or with the pod that was scaled away.
//! Claims that somebody else controls, or that an earlier set or pod of the same name owns, are not touched.

use client::Kind;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::identity::{ordinal, parent_and_ordinal};
use super::plan::is_wanted;
use crate::common::meta::{MetaExt, controller_reference};

fn claim_name(template: &PersistentVolumeClaim, pod: &str) -> String {
    format!("{}-{pod}", template.metadata.name())
}

/// The claims of a pod, as they are created.
pub(super) fn claims(set: &StatefulSet, pod: &str) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let owner = deletes(set).when_deleted.then(|| vec![controller_reference(set)]);
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
                    owner_references: owner.clone(),
                    ..ObjectMeta::default()
                },
                spec: template.spec.clone(),
                status: None,
            }
        })
        .collect()
}

/// Whether a claim has the name of one that some pod of the set has, had or will have.
pub(super) fn may_be_of(set: &StatefulSet, claim: &str) -> bool {
    let pod = |template: &PersistentVolumeClaim| claim.strip_prefix(template.metadata.name())?.strip_prefix('-');
    let mut pods = set.spec.volume_claim_templates.iter().flatten().filter_map(pod);
    pods.any(|pod| parent_and_ordinal(pod).is_some_and(|(parent, _)| parent == set.metadata.name()))
}

/// The names of the claims of a pod.
pub(super) fn claim_names(set: &StatefulSet, pod: &str) -> Vec<String> {
    set.spec.volume_claim_templates.iter().flatten().map(|template| claim_name(template, pod)).collect()
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

/// When the retention policy wants claims to be deleted.
struct Deletes {
    when_deleted: bool,
    when_scaled: bool,
}

fn deletes(set: &StatefulSet) -> Deletes {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
    Deletes {
        when_deleted: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
        when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
    }
}

fn names<K: Kind>(reference: &OwnerReference, object: &K) -> bool {
    reference.api_version == K::API_VERSION && reference.kind == K::KIND && reference.name == object.metadata().name()
}

/// Whether the first reference by this name is to an earlier object of it.
fn is_stale<K: Kind>(owners: &[OwnerReference], object: &K) -> bool {
    owners.iter().find(|owner| names(owner, object)).is_some_and(|owner| owner.uid != object.metadata().uid())
}

/// Whether a claim goes away with an earlier pod of this name. The next pod has to wait for that, or it would lose its claim.
pub(super) fn goes_with_earlier_pod(set: &StatefulSet, pod: &str, claim: &PersistentVolumeClaim) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    deletes(set).when_scaled
        && owners.any(|owner| {
            owner.api_version == <Pod as k8s_openapi::Resource>::API_VERSION
                && owner.kind == <Pod as k8s_openapi::Resource>::KIND
                && owner.name == pod
        })
}

/// Whether somebody else controls a claim that the retention policy should rule.
pub(super) fn has_other_controller(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Deletes { when_deleted, when_scaled } = deletes(set);
    let is_other = |owner: &OwnerReference| {
        if names(owner, set) {
            owner.uid != set.metadata.uid()
        } else if names(owner, pod) {
            owner.uid != pod.metadata.uid()
        } else {
            owner.controller == Some(true)
        }
    };
    (when_deleted || when_scaled) && claim.metadata.owner_references.iter().flatten().any(is_other)
}

/// The owners a claim should have under the retention policy; `None` if it has them, or is to be left alone.
pub(super) fn claim_owners(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
    let known = claim.metadata.owner_references.clone().unwrap_or_default();
    if is_stale(&known, set) || is_stale(&known, pod) {
        return None;
    }
    let is_ours = |owner: &OwnerReference| owner.uid == set.metadata.uid() || owner.uid == pod.metadata.uid();
    let mut owners: Vec<OwnerReference> = known.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    if !has_other_controller(set, pod, claim) {
        let Deletes { when_deleted, when_scaled } = deletes(set);
        // A pod that is only updated must not take its claim along; one that is scaled away may.
        if when_scaled && !is_wanted(set, ordinal(pod)) {
            owners.push(controller_reference(pod));
        } else if when_deleted {
            owners.push(controller_reference(set));
        }
    }
    let same = |a: &[OwnerReference], b: &[OwnerReference]| {
        let role = |owner: &OwnerReference| (owner.uid.clone(), owner.controller == Some(true));
        a.len() == b.len() && a.iter().all(|owner| b.iter().any(|other| role(owner) == role(other)))
    };
    (!same(&owners, &known)).then_some(owners)
}
