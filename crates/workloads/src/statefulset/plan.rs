//! What to do next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec, Volume};

use super::claims::{claim_names, claim_owners, goes_with_earlier_pod, volumes_of};
use super::identity::{labels, matches, ordinal, pod_name};
use super::status;
use crate::common::history::{HASH_LABEL, surplus, template};
use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;
use crate::common::pod_control::from_template;
use crate::common::pods;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Create the pod of this number.
    Create(i32),
    Delete(Arc<Pod>),
    /// Give the pod its identity back.
    Repair(Arc<Pod>),
    /// Create what the pod waits for.
    CreateClaims(Arc<Pod>),
    /// Give the claims of the pod the owners that the retention policy wants.
    OwnClaims(Arc<Pod>),
}

/// What a turn sees.
pub(super) struct Observed {
    pub(super) set: Arc<StatefulSet>,
    /// Those that it controls.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) claims: Claims,
    /// Its own, of all templates it had.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// `None` if another template has the hash of the present one.
    pub(super) templates: Option<Templates>,
}

/// What a turn does and reports.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// A phase begins when all of the one before it has succeeded.
    pub(super) phases: Vec<Vec<Step>>,
    /// Revisions that nobody will go back to.
    pub(super) surplus: Vec<Arc<ControllerRevision>>,
    pub(super) status: StatefulSetStatus,
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { set, pods, claims, revisions, templates } = observed;
    let Some(templates) = templates else {
        return Plan { status: status::collided(set), ..Plan::default() };
    };
    let in_use = |revision: &ControllerRevision| {
        let name = revision.metadata.name();
        [&templates.current_name, &templates.update_name].iter().any(|used| *used == name)
            || pods.iter().any(|pod| pod.metadata.label(HASH_LABEL) == Some(name))
    };
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    Plan {
        phases: phases(set, pods, claims, templates, now),
        surplus: surplus(revisions, set.spec.revision_history_limit, in_use),
        status: status::status(set, pods, templates, now),
        again: pods.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min(),
    }
}

/// A parallel set takes at most this many steps in one turn; their echoes bring the next one. A set may ask for billions of pods.
const BURST: usize = 500;

/// The claims that may be those of a set, by their names.
pub(super) type Claims = BTreeMap<String, Arc<PersistentVolumeClaim>>;

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

/// Whether a pod of this number should be there.
pub(super) fn is_wanted(set: &StatefulSet, number: i32) -> bool {
    let start = start(set);
    (start..start.saturating_add(replicas(set))).contains(&number)
}

/// The steps for now. An ordered set does one thing at a time and waits for it; a parallel one creates, deletes and updates in one turn.
fn phases(
    set: &StatefulSet,
    own: &[Arc<Pod>],
    claims: &Claims,
    templates: &Templates,
    now: Timestamp,
) -> Vec<Vec<Step>> {
    if set.metadata.is_deleting() {
        return Vec::new();
    }
    if is_recreated(set) {
        let old: Vec<&Arc<Pod>> = own.iter().filter(|pod| revision(pod) != templates.update_name).collect();
        if !old.is_empty() {
            let alive = old.into_iter().filter(|pod| !pod.metadata.is_deleting());
            return vec![alive.map(|pod| Step::Delete(pod.clone())).collect()];
        }
    }
    let ordered = is_ordered(set);
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    let is_up = |pod: &Pod| is_running(pod) && pods::is_available(pod, min_ready, now) && !pod.metadata.is_deleting();
    let mut condemned: Vec<&Arc<Pod>> =
        own.iter().filter(|pod| ordinal(pod) >= 0 && !is_wanted(set, ordinal(pod))).collect();
    condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));

    let (replicas, waits) = keep_replicas(set, own, claims, &is_up);
    let mut phases = vec![replicas];
    if waits {
        return phases;
    }
    let unowned = condemned.iter().filter(|pod| !claims_are_owned(set, pod, claims));
    phases.push(unowned.map(|pod| Step::OwnClaims((*pod).clone())).collect());
    let (deletions, waits) = scale_down(set, own, &condemned, &is_up);
    phases.push(deletions);
    if !waits && is_rolling(set) {
        phases.push(update(set, own, templates, &is_up, ordered));
    }
    phases
}

/// What the wanted pods need, and whether everything else has to wait for it.
fn keep_replicas(
    set: &StatefulSet,
    own: &[Arc<Pod>],
    claims: &Claims,
    is_up: &dyn Fn(&Pod) -> bool,
) -> (Vec<Step>, bool) {
    let (start, ordered) = (start(set), is_ordered(set));
    let mut steps = Vec::new();
    for number in start..start.saturating_add(replicas(set)) {
        if steps.len() >= BURST {
            return (steps, true);
        }
        let Some(pod) = own.iter().find(|pod| ordinal(pod) == number) else {
            let name = pod_name(set, number);
            let mut known = claim_names(set, &name).into_iter().filter_map(|claim| claims.get(&claim));
            if !known.any(|claim| goes_with_earlier_pod(set, &name, claim)) {
                steps.push(Step::Create(number));
            }
            if ordered {
                return (steps, true);
            }
            continue;
        };
        if pods::is_terminal(pod) {
            if !pod.metadata.is_deleting() {
                steps.push(Step::Delete(pod.clone()));
            }
            if ordered {
                return (steps, true);
            }
            continue;
        }
        let missing = || claim_names(set, pod.metadata.name()).iter().any(|claim| !claims.contains_key(claim));
        if pods::phase(pod) == "Pending" && !pod.metadata.is_deleting() && missing() {
            steps.push(Step::CreateClaims(pod.clone()));
        }
        if ordered && !is_up(pod) {
            return (steps, true);
        }
        if pod.metadata.is_deleting() {
            continue;
        }
        if !matches(set, pod) {
            steps.push(Step::Repair(pod.clone()));
        }
        if !claims_are_owned(set, pod, claims) {
            steps.push(Step::OwnClaims(pod.clone()));
        }
    }
    (steps, false)
}

fn claims_are_owned(set: &StatefulSet, pod: &Pod, claims: &Claims) -> bool {
    let mut known = claim_names(set, pod.metadata.name()).into_iter().filter_map(|claim| claims.get(&claim));
    known.all(|claim| claim_owners(set, pod, claim).is_none())
}

/// The pods to delete of those that are too many, and whether an update has to wait for them.
fn scale_down(
    set: &StatefulSet,
    own: &[Arc<Pod>],
    condemned: &[&Arc<Pod>],
    is_up: &dyn Fn(&Pod) -> bool,
) -> (Vec<Step>, bool) {
    if !is_ordered(set) {
        let alive = condemned.iter().filter(|pod| !pod.metadata.is_deleting());
        return (alive.map(|pod| Step::Delete((*pod).clone())).collect(), false);
    }
    let Some(last) = condemned.first() else { return (Vec::new(), false) };
    let replicas = own.iter().filter(|pod| is_wanted(set, ordinal(pod)));
    let mut first_down: Vec<&Arc<Pod>> = replicas.filter(|pod| !is_up(pod)).collect();
    first_down.sort_by_key(|pod| ordinal(pod));
    first_down.extend(condemned.iter().rev().filter(|pod| !is_up(pod)));
    let is_first = || first_down.first().is_some_and(|pod| pod.metadata.uid == last.metadata.uid);
    // The others wait until the one that is going, or the first that does not serve, is gone.
    if last.metadata.is_deleting() || (!is_up(last) && !is_first()) {
        return (Vec::new(), true);
    }
    (vec![Step::Delete((*last).clone())], true)
}

fn is_recreated(set: &StatefulSet) -> bool {
    set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
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
            // It is deleted anyway.
            && !pods::is_terminal(pod)
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
