//! Which ReplicaSet is the new one, and the revisions that Deployments and ReplicaSets carry in their annotations.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::sizes::{self, DESIRED, MAXIMUM, by_age, size};
use crate::common::meta::{MetaExt, controller_reference};
use crate::common::template_hash::template_hash;

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations that are the Deployment's or the ReplicaSet's own and not copied from one to the other.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED, MAXIMUM, ROLLBACK_TO];

/// The revision history is cut to this many characters.
const HISTORY_CHARS: usize = 2000;

/// Whether two templates are the same but for the hash.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let labels = |template: &PodTemplateSpec| {
        let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        labels.remove(HASH_LABEL);
        labels
    };
    let rest =
        |template: &PodTemplateSpec| ObjectMeta { labels: None, ..template.metadata.clone().unwrap_or_default() };
    a.spec == b.spec && labels(a) == labels(b) && rest(a) == rest(b)
}

/// The ReplicaSet with the Deployment's template (the oldest, should there be several), and all the others.
pub(super) fn split(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    let mut old = sets.to_vec();
    by_age(&mut old);
    let wanted = &deployment.spec.template;
    let is_new =
        |set: &Arc<ReplicaSet>| set.spec.template.as_ref().is_some_and(|template| same_template(template, wanted));
    let at = old.iter().position(is_new);
    let new = at.map(|at| old.remove(at));
    (new, old)
}

/// Old ReplicaSets beyond the history limit, the oldest revision first.
pub(super) fn surplus_history(deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let limit = deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX);
    let Some(limit) = limit else { return Vec::new() };
    let mut alive: Vec<Arc<ReplicaSet>> = old.iter().filter(|set| !set.metadata.is_deleting()).cloned().collect();
    by_age(&mut alive);
    alive.sort_by_key(|set| revision(&set.metadata).unwrap_or_default());
    let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    alive.truncate(surplus);
    alive.retain(|set| {
        let status = set.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
        status.is_none_or(|status| status.replicas == 0)
            && size(set) == 0
            && set.metadata.generation.unwrap_or_default() <= observed
    });
    alive
}

/// The revision; 0 where there is none, `None` where it is not a number.
pub(super) fn revision(meta: &ObjectMeta) -> Option<i64> {
    meta.annotation(REVISION).map_or(Some(0), |revision| revision.parse().ok())
}

/// The revision that a template gets which comes after these.
pub(super) fn next_revision(old: &[Arc<ReplicaSet>]) -> i64 {
    old.iter().filter_map(|set| revision(&set.metadata)).max().unwrap_or_default() + 1
}

/// The second highest revision.
pub(super) fn last_revision(sets: &[Arc<ReplicaSet>]) -> Option<i64> {
    let mut revisions: Vec<i64> = sets.iter().filter_map(|set| revision(&set.metadata)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().filter(|revision| *revision > 0)
}

fn is_own(annotation: &str) -> bool {
    OWN.contains(&annotation)
}

/// The annotations of the new ReplicaSet: the Deployment's, with the revision, and the revisions it had before when it is rolled back to.
pub(super) fn annotations(deployment: &Deployment, set: &ObjectMeta, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = set.annotations.clone().unwrap_or_default();
    let copied = deployment.metadata.annotations.iter().flatten().filter(|(key, _)| !is_own(key));
    annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    let known = annotations.get(REVISION).cloned();
    let number = known.as_deref().map_or(Some(0), |known| if known.is_empty() { Some(0) } else { known.parse().ok() });
    let Some(number) = number.filter(|number: &i64| *number < revision) else { return annotations };
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if known.is_some() {
        let history = annotations.get(REVISION_HISTORY).map(String::as_str).unwrap_or_default();
        let history = extended_history(history, number);
        annotations.insert(REVISION_HISTORY.to_owned(), history);
    }
    annotations
}

/// A comma-separated history with one more revision, without the oldest ones if it gets too long.
fn extended_history(history: &str, revision: i64) -> String {
    let mut revisions: Vec<String> = history.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    revisions.push(revision.to_string());
    while revisions.len() > 1 && revisions.iter().map(|part| part.len() + 1).sum::<usize>() - 1 > HISTORY_CHARS {
        revisions.remove(0);
    }
    revisions.join(",")
}

/// The annotations a Deployment has after it is rolled back to a ReplicaSet.
pub(super) fn rolled_back_annotations(deployment: &ObjectMeta, set: &ObjectMeta) -> BTreeMap<String, String> {
    let own = deployment.annotations.iter().flatten().filter(|(key, _)| is_own(key));
    let old = set.annotations.iter().flatten().filter(|(key, _)| !is_own(key));
    own.chain(old).filter(|(key, _)| *key != ROLLBACK_TO).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// The ReplicaSet's name: the same for the same template, so that a repeated creation is noticed.
fn set_name(deployment: &str, hash: &str) -> String {
    let most = MAX_NAME - 1 - hash.len();
    let cut = deployment.get(..most).unwrap_or(deployment);
    format!("{cut}-{hash}")
}

fn hash(deployment: &Deployment) -> String {
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    template_hash(&deployment.spec.template, collisions)
}

/// The ReplicaSet for the Deployment's present template.
pub(super) fn new_set(deployment: &Deployment, old: &[Arc<ReplicaSet>], revision: i64) -> ReplicaSet {
    let hash = hash(deployment);
    let spec = deployment.spec.clone();
    let (mut template, mut selector) = (spec.template, spec.selector);
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = meta.labels.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let mut annotations = annotations(deployment, &ObjectMeta::default(), revision);
    annotations.extend(sizes::replicas_annotations(deployment));
    let others = sizes::total(old.iter().map(|set| sizes::footprint(set)));
    let observed = old.iter().all(|set| sizes::is_observed(set));
    let replicas = if observed { sizes::new_size(deployment, others, 0) } else { 0 };
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(set_name(deployment.metadata.name(), &hash)),
            namespace: deployment.metadata.namespace.clone(),
            labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    }
}

/// The new ReplicaSet with its revision and what else it has from the Deployment brought up to date; `None` if it is.
pub(super) fn refreshed(deployment: &Deployment, set: &ReplicaSet, revision: i64) -> Option<ReplicaSet> {
    let annotations = annotations(deployment, &set.metadata, revision);
    let min_ready = deployment.spec.min_ready_seconds.unwrap_or_default();
    let is_fresh = annotations == set.metadata.annotations.clone().unwrap_or_default()
        && min_ready == set.spec.min_ready_seconds.unwrap_or_default();
    (!is_fresh).then(|| {
        let mut changed = set.clone();
        changed.metadata.annotations = Some(annotations);
        changed.spec.min_ready_seconds = (min_ready != 0).then_some(min_ready);
        changed
    })
}

pub(super) fn set_revision(deployment: &mut Deployment, revision: &str) {
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.insert(REVISION.to_owned(), revision.to_owned());
}

/// The revision that is asked to be rolled back to, by the API that `kubectl rollout undo` used before it changed the template itself; 0 is the
/// one before.
pub(super) fn rollback_requested(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotation(ROLLBACK_TO)?.parse().ok()
}
