//! Which nodes get a pod, and which pods go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use rules::names::{DISK_PRESSURE, MEMORY_PRESSURE, NOT_READY, PID_PRESSURE, UNREACHABLE, UNSCHEDULABLE};
use rules::selectors::RequiredNodeAffinity;
use rules::tolerations::untolerated;

use super::status;
use crate::common::history::{self, HASH_LABEL};
use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;
use crate::common::pod_control::from_template;
use crate::common::pods;

const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Taints that no daemon minds.
const TOLERATED: [(&str, &str); 6] = [
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
    (DISK_PRESSURE, "NoSchedule"),
    (MEMORY_PRESSURE, "NoSchedule"),
    (PID_PRESSURE, "NoSchedule"),
    (UNSCHEDULABLE, "NoSchedule"),
];

/// What a turn sees.
pub(super) struct Observed {
    pub(super) set: Arc<DaemonSet>,
    pub(super) nodes: Vec<Arc<Node>>,
    /// Those that it controls.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Its own, of all templates it had.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// That of its present template; `None` if another template has the same hash.
    pub(super) revision: Option<Arc<ControllerRevision>>,
}

/// What a turn does and reports.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The hash of the present template, which new pods get.
    pub(super) hash: String,
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that ended by themselves; they go too, with an event.
    pub(super) ended: Vec<Arc<Pod>>,
    /// Revisions that nobody will go back to.
    pub(super) surplus: Vec<Arc<ControllerRevision>>,
    pub(super) status: DaemonSetStatus,
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { set, nodes, pods, revisions, revision } = observed;
    let Some(revision) = revision else {
        return Plan { status: status::collided(set), ..Plan::default() };
    };
    let hash = revision.metadata.label(HASH_LABEL).unwrap_or_default().to_owned();
    let in_use = |candidate: &ControllerRevision| {
        let label = candidate.metadata.label(HASH_LABEL);
        candidate.metadata.name == revision.metadata.name
            || pods.iter().any(|pod| pod.metadata.label(HASH_LABEL) == label)
    };
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    Plan {
        surplus: history::surplus(revisions, set.spec.revision_history_limit, in_use),
        status: status::status(set, nodes, pods, &hash, now),
        again: pods.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min(),
        ..Plan { hash: hash.clone(), ..steps(set, nodes, pods, &hash, now) }
    }
}

/// Whether a pod may start on a node, and whether one that is there may stay.
pub(super) fn fits(set: &DaemonSet, node: &Node) -> (bool, bool) {
    let Some(spec) = &set.spec.template.spec else { return (false, false) };
    let named = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if named.is_some_and(|name| name != node.metadata.name()) || !RequiredNodeAffinity::parse(Some(spec)).matches(node)
    {
        return (false, false);
    }
    let tolerations = tolerations(spec);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerates = |effects: &[&str]| untolerated(taints, &tolerations, effects).is_none();
    (tolerates(&["NoSchedule", "NoExecute"]), tolerates(&["NoExecute"]))
}

/// Whether a change of a node is of no interest to daemons.
pub(super) fn same_to_daemons(old: &Node, new: &Node) -> bool {
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    old.metadata.labels == new.metadata.labels && taints(old) == taints(new)
}

/// The template's tolerations, and those of every daemon.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    let extra = (spec.host_network == Some(true)).then_some(network);
    for (key, effect) in TOLERATED.into_iter().chain(extra) {
        let added = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&added) {
            all.push(added);
        }
    }
    all
}

/// The pod for a node: bound to it by affinity, so that the scheduler has the last word on resources.
pub(super) fn pod_for(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut pod = from_template(&set.spec.template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = set.metadata.annotation(GENERATION_ANNOTATION) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default).node_affinity.get_or_insert_default();
    let required = &mut affinity.required_during_scheduling_ignored_during_execution;
    match required {
        // The node was chosen because one of the terms holds; which one no longer matters.
        Some(selector) if !selector.node_selector_terms.is_empty() => {
            for term in &mut selector.node_selector_terms {
                term.match_fields = Some(vec![requirement.clone()]);
                term.match_expressions = None;
            }
            selector.node_selector_terms.truncate(1);
        }
        _ => {
            let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
            *required = Some(NodeSelector { node_selector_terms: vec![term] });
        }
    }
    pod
}

/// The node a pod is on, or is meant for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    if let Some(name) = pods::node_name(pod) {
        return Some(name);
    }
    let affinity = pods::spec(pod)?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    named.next()?.values.as_ref()?.first().map(String::as_str)
}

/// A pod that is, in its own words, up to date.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let generation = set.metadata.annotation(GENERATION_ANNOTATION);
    pod.metadata.label(HASH_LABEL) == Some(hash)
        || generation.is_some_and(|generation| pod.metadata.label(GENERATION_LABEL) == Some(generation))
}

/// Surplus and room of an update, in pods.
struct Limits {
    surge: usize,
    unavailable: usize,
}

fn limits(set: &DaemonSet, desired: usize) -> Option<Limits> {
    let strategy = set.spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return None;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let total = i32::try_from(desired).unwrap_or(i32::MAX);
    let count = |value: Option<i32>| usize::try_from(value.unwrap_or_default()).unwrap_or_default();
    let surge = count(rolling.and_then(|rolling| scaled(rolling.max_surge.as_ref()?, total, Round::Up)));
    let given = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let unavailable = given.map_or(1, |value| count(scaled(value, total, Round::Up)));
    // Both zero cannot be asked for, only result from rounding; an update has to move.
    Some(Limits { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } })
}

/// The pods to create and delete, of all nodes.
fn steps(set: &DaemonSet, all: &[Arc<Node>], own: &[Arc<Pod>], hash: &str, now: Timestamp) -> Plan {
    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in own {
        by_node.entry(target(pod).unwrap_or_default()).or_default().push(pod);
    }
    let mut nodes: Vec<&Arc<Node>> = all.iter().collect();
    nodes.sort_by_key(|node| node.metadata.name());
    let desired = nodes.iter().filter(|node| fits(set, node).0).count();
    let limits = limits(set, desired);
    let surges = limits.as_ref().is_some_and(|limits| limits.surge > 0);
    let mut plan = Plan::default();
    for node in &nodes {
        let on_node = by_node.get(node.metadata.name()).map(Vec::as_slice).unwrap_or_default();
        let (starts, stays) = fits(set, node);
        if starts && on_node.is_empty() {
            plan.create.push(node.metadata.name().to_owned());
        } else if stays {
            one_per_node(set, on_node, hash, surges, now, &mut plan);
            let alive = on_node.iter().any(|pod| !pod.metadata.is_deleting());
            if surges && starts && !alive {
                plan.create.push(node.metadata.name().to_owned());
            }
        } else {
            plan.delete.extend(on_node.iter().filter(|pod| !pod.metadata.is_deleting()).map(|pod| (*pod).clone()));
        }
    }
    // Pods of nodes that are gone are the pod garbage collector's, unless they were never bound.
    let known = |name: &str| nodes.iter().any(|node| node.metadata.name() == name);
    let stranded =
        own.iter().filter(|pod| pods::node_name(pod).is_none() && target(pod).is_some_and(|name| !known(name)));
    plan.delete.extend(stranded.filter(|pod| !pod.metadata.is_deleting()).cloned());
    if let Some(limits) = limits {
        update(set, &by_node, &nodes, &limits, hash, now, &mut plan);
    }
    plan
}

/// Pods that ended go, and so do all but one of those that run (during a surge: one old and one new).
fn one_per_node(set: &DaemonSet, on_node: &[&Arc<Pod>], hash: &str, surges: bool, now: Timestamp, plan: &mut Plan) {
    let alive: Vec<&Arc<Pod>> = on_node.iter().filter(|pod| !pod.metadata.is_deleting()).copied().collect();
    plan.ended.extend(alive.iter().filter(|pod| pods::is_terminal(pod)).map(|pod| (*pod).clone()));
    let mut running: Vec<&Arc<Pod>> = alive.into_iter().filter(|pod| !pods::is_terminal(pod)).collect();
    running.sort_by_key(|pod| {
        (pods::node_name(pod).is_none(), pod.metadata.creation_timestamp.clone(), pod.metadata.name().to_owned())
    });
    if !surges {
        plan.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) =
        running.into_iter().partition(|pod| pod.metadata.label(HASH_LABEL) == Some(hash));
    plan.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| (*pod).clone()));
    if let (Some(new), Some(old)) = (new.first(), old.first()) {
        let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
        if !pods::is_ready(old) || pods::is_available(new, min_ready, now) {
            plan.delete.push((*old).clone());
        }
    }
}

/// Adds what a rolling update may do now.
fn update(
    set: &DaemonSet,
    by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    nodes: &[&Arc<Node>],
    limits: &Limits,
    hash: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    let is_up = |pod: &Arc<Pod>| pods::is_available(pod, min_ready, now);
    let going = |pod: &Arc<Pod>, plan: &Plan| {
        plan.delete.iter().chain(&plan.ended).any(|other| other.metadata.uid == pod.metadata.uid)
    };
    let (mut busy, mut candidates, mut free) = (0, Vec::new(), Vec::new());
    for node in nodes {
        let on_node = by_node.get(node.metadata.name()).map(Vec::as_slice).unwrap_or_default();
        if on_node.is_empty() && !fits(set, node).0 {
            continue;
        }
        let alive: Vec<&Arc<Pod>> =
            on_node.iter().copied().filter(|pod| !pod.metadata.is_deleting() && !going(pod, plan)).collect();
        let (new, old): (Vec<_>, Vec<_>) = alive.into_iter().partition(|pod| is_updated(set, pod, hash));
        match (new.first(), old.first()) {
            (None, None) => busy += usize::from(limits.surge == 0),
            (Some(new), None) => busy += usize::from(limits.surge == 0 && !is_up(new)),
            (Some(new), Some(_)) => busy += usize::from(limits.surge == 0 || !is_up(new)),
            // A pod that does not serve anyway may be replaced at any time.
            (None, Some(old)) if !is_up(old) => {
                busy += usize::from(limits.surge == 0);
                free.push((node.metadata.name(), (*old).clone()));
            }
            (None, Some(old)) => candidates.push((node.metadata.name(), (*old).clone())),
        }
    }
    let room = if limits.surge == 0 { limits.unavailable } else { limits.surge }.saturating_sub(busy);
    candidates.truncate(room);
    for (node, old) in free.into_iter().chain(candidates) {
        if limits.surge == 0 {
            plan.delete.push(old);
        } else if !plan.create.iter().any(|known| known == node) {
            plan.create.push(node.to_owned());
        }
    }
}
