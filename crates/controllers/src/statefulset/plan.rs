//! What to do next.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Volume};

use super::identity::{labels, matches, ordinal, pod_name, volumes_of};
use crate::common::history::{HASH_LABEL, template};
use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;
use crate::common::pod_control::from_template;
use crate::common::pods;

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Create the pod of this number.
    Create(i32),
    Delete(Arc<Pod>),
    /// Give the pod its identity back.
    Repair(Arc<Pod>),
    /// Bring the claims of the pod in line with the retention policy.
    KeepClaims(Arc<Pod>),
}

/// The templates before and after the update under way, by the names of their revisions.
pub(super) struct Templates {
    pub(super) current_name: String,
    pub(super) update_name: String,
    current: PodTemplateSpec,
    update: PodTemplateSpec,
}

impl Templates {
    pub(super) fn new(set: &StatefulSet, current: &ControllerRevision, update: &ControllerRevision) -> Self {
        let own = |revision: &ControllerRevision| template(revision).unwrap_or_else(|| set.spec.template.clone());
        Self {
            current_name: current.metadata.name().to_owned(),
            update_name: update.metadata.name().to_owned(),
            current: own(current),
            update: own(update),
        }
    }

    /// The pod of a number: below the partition, and in the part of an update not reached yet, of the old template.
    pub(super) fn pod(&self, set: &StatefulSet, number: i32) -> Pod {
        let (template, revision) = if self.is_old(set, number) {
            (&self.current, &self.current_name)
        } else {
            (&self.update, &self.update_name)
        };
        let mut pod = from_template(template, set);
        let name = pod_name(set, number);
        let meta = &mut pod.metadata;
        meta.generate_name = None;
        meta.name = Some(name.clone());
        let own = meta.labels.get_or_insert_default();
        own.extend(labels(set, &name));
        own.insert(HASH_LABEL.to_owned(), revision.clone());
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(name.clone());
        spec.subdomain = set.spec.service_name.clone().filter(|service| !service.is_empty());
        let claimed = volumes_of(set, &name);
        let is_claimed = |volume: &Volume| claimed.iter().any(|claim| claim.name == volume.name);
        let mut volumes: Vec<Volume> = spec.volumes.take().unwrap_or_default();
        volumes.retain(|volume| !is_claimed(volume));
        volumes.extend(claimed);
        spec.volumes = (!volumes.is_empty()).then_some(volumes);
        pod
    }

    fn is_old(&self, set: &StatefulSet, number: i32) -> bool {
        if self.current_name == self.update_name {
            return false;
        }
        let strategy = set.spec.update_strategy.as_ref();
        let kept = match strategy.and_then(|strategy| strategy.rolling_update.as_ref()) {
            Some(rolling) => rolling.partition.unwrap_or_default(),
            // Nothing is said about a partition: the first pods stay as they are until the update reaches them from the end.
            None if is_rolling(set) => {
                set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default()
            }
            None => 0,
        };
        number < start(set) + kept
    }
}

fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// Whether its pods come and go one after the other.
pub(super) fn is_ordered(set: &StatefulSet) -> bool {
    set.spec.pod_management_policy.as_deref() != Some("Parallel")
}

fn is_rolling(set: &StatefulSet) -> bool {
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    !matches!(strategy, Some("OnDelete" | "Recreate"))
}

pub(super) fn partition(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    rolling.and_then(|rolling| rolling.partition).unwrap_or_default()
}

pub(super) fn max_unavailable(set: &StatefulSet) -> usize {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let given = rolling.and_then(|rolling| scaled(rolling.max_unavailable.as_ref()?, replicas(set), Round::Down));
    usize::try_from(given.unwrap_or(1).max(1)).unwrap_or(1)
}

pub(super) fn is_running(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

fn revision(pod: &Pod) -> &str {
    pod.metadata.label(HASH_LABEL).unwrap_or_default()
}

/// The steps for now. An ordered set does one thing at a time and waits for it; a parallel one does all at once.
pub(super) fn plan(set: &StatefulSet, own: &[Arc<Pod>], templates: &Templates, now: Timestamp) -> Vec<Step> {
    if set.metadata.is_deleting() {
        return Vec::new();
    }
    let (start, count) = (start(set), replicas(set));
    let ordered = is_ordered(set);
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    let is_up = |pod: &Pod| is_running(pod) && pods::is_available(pod, min_ready, now) && !pod.metadata.is_deleting();
    let find = |number: i32| own.iter().find(|pod| ordinal(pod) == number);
    let mut condemned: Vec<&Arc<Pod>> = own
        .iter()
        .filter(|pod| ordinal(pod) >= 0 && !(start..start.saturating_add(count)).contains(&ordinal(pod)))
        .collect();
    condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
    let first_down = (start..start.saturating_add(count))
        .filter_map(find)
        .chain(condemned.iter().rev().copied())
        .find(|pod| !is_up(pod))
        .map(|pod| pod.metadata.uid());

    let mut steps = Vec::new();
    if is_recreated(set) {
        let old: Vec<&Arc<Pod>> = own.iter().filter(|pod| revision(pod) != templates.update_name).collect();
        if !old.is_empty() {
            let alive = old.into_iter().filter(|pod| !pod.metadata.is_deleting());
            return alive.map(|pod| Step::Delete(pod.clone())).collect();
        }
    }
    for number in start..start.saturating_add(count) {
        match find(number) {
            None => {
                steps.push(Step::Create(number));
                if ordered {
                    return steps;
                }
            }
            Some(pod) if pods::is_terminal(pod) => {
                if !pod.metadata.is_deleting() {
                    steps.push(Step::Delete(pod.clone()));
                }
                if ordered {
                    return steps;
                }
            }
            Some(pod) => {
                if ordered && !is_up(pod) {
                    return steps;
                }
                if !pod.metadata.is_deleting() && !matches(set, pod) {
                    steps.push(Step::Repair(pod.clone()));
                }
            }
        }
    }
    if !ordered && !steps.is_empty() {
        return steps;
    }
    steps.extend(condemned.iter().filter(|_| has_retention(set)).map(|pod| Step::KeepClaims((*pod).clone())));
    for pod in &condemned {
        if pod.metadata.is_deleting() {
            if ordered {
                return steps;
            }
            continue;
        }
        if ordered && !is_up(pod) && first_down != Some(pod.metadata.uid()) {
            return steps;
        }
        steps.push(Step::Delete((*pod).clone()));
        if ordered {
            return steps;
        }
    }
    if is_rolling(set) {
        steps.extend(update(set, own, templates, &is_up, ordered));
    }
    steps
}

fn is_recreated(set: &StatefulSet) -> bool {
    set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

fn has_retention(set: &StatefulSet) -> bool {
    set.spec.persistent_volume_claim_retention_policy.is_some()
}

/// The pods that a rolling update replaces now, from the highest number down.
fn update(
    set: &StatefulSet,
    own: &[Arc<Pod>],
    templates: &Templates,
    is_up: &dyn Fn(&Pod) -> bool,
    ordered: bool,
) -> Vec<Step> {
    let (start, count) = (start(set), replicas(set));
    let mut pods: Vec<&Arc<Pod>> =
        own.iter().filter(|pod| (start..start.saturating_add(count)).contains(&ordinal(pod))).collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
    let missing = usize::try_from(count).unwrap_or_default().saturating_sub(pods.len());
    let down = missing + pods.iter().filter(|pod| !is_up(pod)).count();
    let mut room = max_unavailable(set).saturating_sub(down);
    let outdated = pods.into_iter().filter(|pod| {
        ordinal(pod) >= start.saturating_add(partition(set))
            && revision(pod) != templates.update_name
            && !pod.metadata.is_deleting()
    });
    let mut steps = Vec::new();
    for pod in outdated {
        // A pod that does not serve costs nothing to replace; an ordered set has none at this point.
        if !ordered && !is_up(pod) {
            steps.push(Step::Delete(pod.clone()));
        } else if room > 0 {
            room -= 1;
            steps.push(Step::Delete(pod.clone()));
        }
    }
    steps
}
