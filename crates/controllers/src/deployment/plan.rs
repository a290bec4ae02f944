//! Decisions of a rollout: which ReplicaSet is the new one, how large each should be, what its annotations are.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations that are the Deployment's or the ReplicaSet's own and not copied from one to the other.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED, MAXIMUM, ROLLBACK_TO];

/// The revision history is cut to this many characters.
const HISTORY_CHARS: usize = 2000;

/// A ReplicaSet and the size it should have.
pub(super) type Resize = (Arc<ReplicaSet>, i32);

/// `spec.replicas` of a Deployment.
pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// `spec.replicas` of a ReplicaSet.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// How many pods a ReplicaSet has or will have: one that was told to shrink still has the pods it had.
pub(super) fn footprint(set: &ReplicaSet) -> i32 {
    size(set).max(set.status.as_ref().map_or(0, |status| status.replicas))
}

/// Whether the numbers in a ReplicaSet's status are about its present size.
pub(super) fn is_observed(set: &ReplicaSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    observed >= set.metadata.generation.unwrap_or_default()
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

fn total<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sets.into_iter().map(|set| size(set)).sum()
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
}

pub(super) fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.paused == Some(true)
}

/// The deadline in seconds; the largest number means none.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

/// How many pods more, and how many fewer than wanted a rollout may have. Never both zero: it could not move.
fn fence_posts(deployment: &Deployment) -> (i32, i32) {
    if !is_rolling(deployment) {
        return (0, 0);
    }
    let rolling = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let post = |value: Option<&IntOrString>, round| {
        value.and_then(|value| scaled(value, wanted(deployment), round)).unwrap_or_default()
    };
    let surge = post(rolling.and_then(|rolling| rolling.max_surge.as_ref()), Round::Up);
    let unavailable = post(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), Round::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    fence_posts(deployment).0
}

pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let wanted = wanted(deployment);
    if wanted == 0 { 0 } else { fence_posts(deployment).1.min(wanted) }
}

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

/// Older before newer, then by name.
pub(super) fn by_age(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by(|a, b| {
        let age = |set: &ReplicaSet| set.metadata.creation_timestamp.clone();
        age(a).cmp(&age(b)).then_with(|| a.metadata.name().cmp(b.metadata.name()))
    });
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

/// The size a rollout gives to the new ReplicaSet, whose current size is part of `all`.
pub(super) fn new_size(deployment: &Deployment, all: i32, current: i32) -> i32 {
    let wanted = wanted(deployment);
    if !is_rolling(deployment) {
        return wanted;
    }
    let room = wanted + max_surge(deployment) - all;
    if room <= 0 { current } else { current + room.min(wanted - current) }
}

/// The number an annotation holds, if it is one.
fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.metadata.annotation(annotation)?.parse().ok().filter(|number| *number >= 0)
}

/// Whether the Deployment was resized since its ReplicaSets were.
pub(super) fn was_resized(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    let active = sets.iter().filter(|set| size(set) > 0);
    active.filter_map(|set| number(set, DESIRED)).any(|desired| desired != wanted(deployment))
}

/// How a resized or paused Deployment is spread over its ReplicaSets: in proportion, so that a rollout under way keeps its pace.
/// The flag says whether the annotations are to be brought up to date even where the size stays.
pub(super) fn resize(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
) -> (Vec<Resize>, bool) {
    let wanted = wanted(deployment);
    let mut active: Vec<Arc<ReplicaSet>> = old.iter().chain(new).filter(|set| size(set) > 0).cloned().collect();
    if active.len() <= 1 {
        let only = active.pop().or_else(|| new.cloned()).or_else(|| old.last().cloned());
        return (only.filter(|set| size(set) != wanted).map(|set| (set, wanted)).into_iter().collect(), false);
    }
    if new.is_some_and(|new| is_saturated(deployment, new)) {
        return (old.iter().filter(|set| size(set) > 0).map(|set| (set.clone(), 0)).collect(), false);
    }
    if !is_rolling(deployment) {
        return (Vec::new(), false);
    }
    let allowed = if wanted > 0 { wanted + max_surge(deployment) } else { 0 };
    let to_add = allowed - total(&active);
    by_age(&mut active);
    if to_add > 0 {
        // The newer of equals grows first.
        active.reverse();
    }
    active.sort_by_key(|set| std::cmp::Reverse(size(set)));
    let mut added = 0;
    let mut sizes: Vec<Resize> = active
        .into_iter()
        .map(|set| {
            let share = proportion(deployment, &set, to_add, added);
            added += share;
            let size = size(&set) + share;
            (set, size)
        })
        .collect();
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    (sizes, true)
}

/// All wanted pods are in this ReplicaSet and available.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = wanted(deployment);
    size(set) == wanted && number(set, DESIRED) == Some(wanted) && available(set) == wanted
}

/// A ReplicaSet's share of what is to be added (or, negative, to be taken away).
fn proportion(deployment: &Deployment, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, left) = (fraction(deployment, set), to_add - added);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    let wanted = wanted(deployment);
    if wanted == 0 {
        return -size(set);
    }
    let before = number(set, MAXIMUM).filter(|maximum| *maximum > 0);
    let before = before.or_else(|| deployment.status.as_ref().and_then(|status| status.replicas));
    let Some(before) = before.filter(|before| *before > 0) else { return 0 };
    let maximum = wanted + max_surge(deployment);
    let grown = f64::from(size(set)) * f64::from(maximum) / f64::from(before);
    // Sizes are counts of pods, far below what a float cannot hold exactly.
    grown.round() as i32 - size(set)
}

/// How far old ReplicaSets may shrink in a rolling update: first the pods that do not serve, then others as new ones become available.
pub(super) fn shrink(deployment: &Deployment, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> Vec<Resize> {
    let mut old: Vec<Arc<ReplicaSet>> = old.iter().filter(|set| size(set) > 0).cloned().collect();
    by_age(&mut old);
    let least = wanted(deployment) - max_unavailable(deployment);
    let mut budget = total(&old) + size(new) - least - (size(new) - available(new));
    if old.is_empty() || budget <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = old.iter().map(|set| size(set)).collect();
    for (set, size) in old.iter().zip(&mut sizes) {
        let unhealthy = (*size - available(set)).clamp(0, budget.max(0));
        *size -= unhealthy;
        budget -= unhealthy;
    }
    // A status may still count pods that its ReplicaSet was told to give up: those are as good as gone.
    let kept = |set: &ReplicaSet| available(set).min(size(set));
    let all_available: i32 = old.iter().map(|set| kept(set)).sum::<i32>() + kept(new);
    let mut surplus = all_available - least;
    for size in &mut sizes {
        let step = surplus.clamp(0, *size);
        *size -= step;
        surplus -= step;
    }
    old.into_iter().zip(sizes).filter(|(set, new_size)| size(set) != *new_size).collect()
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

/// The annotations by which a later turn sees that the Deployment was resized.
pub(super) fn replicas_annotations(deployment: &Deployment) -> [(String, String); 2] {
    let wanted = wanted(deployment);
    [(DESIRED.to_owned(), wanted.to_string()), (MAXIMUM.to_owned(), (wanted + max_surge(deployment)).to_string())]
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
pub(super) fn set_name(deployment: &str, hash: &str) -> String {
    let most = MAX_NAME - 1 - hash.len();
    let cut = deployment.get(..most).unwrap_or(deployment);
    format!("{cut}-{hash}")
}
