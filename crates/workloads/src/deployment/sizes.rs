//! How large each ReplicaSet of a rollout should be.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;

pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
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

/// How many pods a ReplicaSet has or will have: one that has to shrink still has the pods it had.
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

/// Counts of several ReplicaSets together. Each fits its field; what does not fit together is as much as the field of the sum holds.
pub(super) fn total(counts: impl IntoIterator<Item = i32>) -> i32 {
    counts.into_iter().fold(0, i32::saturating_add)
}

fn sizes<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i64 {
    sets.into_iter().map(|set| i64::from(size(set))).sum()
}

/// A count for a field, which is never negative.
fn fitted(count: i64) -> i32 {
    i32::try_from(count.max(0)).unwrap_or(i32::MAX)
}

/// How many pods there may be at most during a rollout.
fn most(deployment: &Deployment) -> i32 {
    wanted(deployment).saturating_add(max_surge(deployment))
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
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

/// Older before newer, then by name.
pub(super) fn by_age(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by(|a, b| {
        let age = |set: &ReplicaSet| set.metadata.creation_timestamp.clone();
        age(a).cmp(&age(b)).then_with(|| a.metadata.name().cmp(b.metadata.name()))
    });
}

/// The size a rollout gives to the new ReplicaSet, whose current size is part of `all`.
pub(super) fn new_size(deployment: &Deployment, all: i32, current: i32) -> i32 {
    let wanted = wanted(deployment);
    if !is_rolling(deployment) {
        return wanted;
    }
    let room = most(deployment) - all;
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
    let allowed = if wanted > 0 { most(deployment) } else { 0 };
    let to_add = i64::from(allowed) - sizes(&active);
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
            let size = fitted(i64::from(size(&set)) + share);
            (set, size)
        })
        .collect();
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = fitted(i64::from(*largest) + to_add - added);
    }
    (sizes, true)
}

/// All wanted pods are in this ReplicaSet and available.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = wanted(deployment);
    size(set) == wanted && number(set, DESIRED) == Some(wanted) && available(set) == wanted
}

/// A ReplicaSet's share of what is to be added (or, negative, to be taken away).
fn proportion(deployment: &Deployment, set: &ReplicaSet, to_add: i64, added: i64) -> i64 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, left) = (fraction(deployment, set), to_add - added);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i64 {
    let size = size(set);
    if wanted(deployment) == 0 {
        return -i64::from(size);
    }
    let before = number(set, MAXIMUM).filter(|maximum| *maximum > 0);
    let before = before.or_else(|| deployment.status.as_ref().and_then(|status| status.replicas));
    let Some(before) = before.filter(|before| *before > 0) else { return 0 };
    let grown = f64::from(size) * f64::from(most(deployment)) / f64::from(before);
    // Sizes are counts of pods, far below what a float cannot hold exactly.
    i64::from(fitted(grown.round() as i64)) - i64::from(size)
}

/// How far old ReplicaSets may shrink in a rolling update: first the pods that do not serve, then others as new ones become available.
pub(super) fn shrink(deployment: &Deployment, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> Vec<Resize> {
    let mut old: Vec<Arc<ReplicaSet>> = old.iter().filter(|set| size(set) > 0).cloned().collect();
    by_age(&mut old);
    let least = wanted(deployment) - max_unavailable(deployment);
    let mut budget = sizes(&old) + i64::from(available(new)) - i64::from(least);
    if old.is_empty() || budget <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i64> = old.iter().map(|set| i64::from(size(set))).collect();
    for (set, size) in old.iter().zip(&mut sizes) {
        let unhealthy = (*size - i64::from(available(set))).clamp(0, budget);
        *size -= unhealthy;
        budget -= unhealthy;
    }
    // A status may still count pods that its ReplicaSet has to give up: those are as good as gone.
    let kept = |set: &ReplicaSet| available(set).min(size(set));
    let all_available: i64 = old.iter().map(|set| &**set).chain([new]).map(|set| i64::from(kept(set))).sum();
    let mut surplus = all_available - i64::from(least);
    for size in &mut sizes {
        let step = surplus.clamp(0, *size);
        *size -= step;
        surplus -= step;
    }
    let resized = old.into_iter().zip(sizes.into_iter().map(fitted));
    resized.filter(|(set, new_size)| size(set) != *new_size).collect()
}

/// The annotations by which a later turn sees that the Deployment was resized.
pub(super) fn replicas_annotations(deployment: &Deployment) -> [(String, String); 2] {
    let wanted = wanted(deployment);
    [(DESIRED.to_owned(), wanted.to_string()), (MAXIMUM.to_owned(), most(deployment).to_string())]
}
