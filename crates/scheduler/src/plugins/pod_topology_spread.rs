//! PodTopologySpread: pods of one kind share the domains of a topology evenly.
//!
//! Hard constraints filter: a node is rejected when its domain would get too far ahead of the emptiest one. Soft
//! constraints score. Pods are counted by label class, not one by one, and per domain in arrays.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, TopologySpreadConstraint};

use super::default_selector::default_selector;
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, MAX_SCORE, Plugin, Points, PreFilter,
    PreFilterExtensions, PreFilterOutcome, PreFilterResult, PreScore, Rejection, Resource, Score, Verdict,
};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::pod::{PodInfo, SpreadConstraint};
use crate::model::topology::Column;
use rules::selectors::Labels;
use rules::tolerations::is_repelled;

const NOT_MATCHED: &str = "node(s) didn't match pod topology spread constraints";
const LABEL_MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A domain that has no eligible node.
const NOT_ELIGIBLE: i32 = -1;
/// The raw score of a node that lacks a required label; turned into zero by normalization.
const IGNORED: i64 = -1;

/// Spreads pods over domains.
pub struct PodTopologySpread {
    defaults: Vec<SpreadConstraint>,
    system_defaulted: bool,
}

impl Default for PodTopologySpread {
    /// With the system's default constraints: lightly over zones, more lightly over nodes.
    fn default() -> Self {
        let constraint = |key: &str, max_skew| TopologySpreadConstraint {
            topology_key: key.into(),
            max_skew,
            when_unsatisfiable: "ScheduleAnyway".into(),
            ..Default::default()
        };
        let system = [constraint(HOSTNAME, 3), constraint("topology.kubernetes.io/zone", 5)];
        Self { system_defaulted: true, ..Self::with_defaults(&system) }
    }
}

impl PodTopologySpread {
    /// With these constraints for pods that bring none.
    pub fn with_defaults(constraints: &[TopologySpreadConstraint]) -> Self {
        let defaults = constraints.iter().filter_map(|c| SpreadConstraint::parse(c, None).ok()).collect();
        Self { defaults, system_defaulted: false }
    }

    /// The pod's own constraints of one kind, or else the default ones for the workloads it belongs to.
    fn constraints(&self, pod: &PodInfo, hard: bool, cluster: &Cluster) -> Vec<SpreadConstraint> {
        if !pod.spread.is_empty() {
            return pod.spread.iter().filter(|c| c.hard == hard).cloned().collect();
        }
        if !self.defaults.iter().any(|c| c.hard == hard) {
            return Vec::new();
        }
        let selector = default_selector(pod, &cluster.objects);
        if selector.is_empty() {
            return Vec::new();
        }
        let defaults = self.defaults.iter().filter(|c| c.hard == hard);
        defaults.map(|c| SpreadConstraint { selector: selector.clone(), ..c.clone() }).collect()
    }
}

fn has_all_keys(labels: Option<&Labels>, constraints: &[SpreadConstraint]) -> bool {
    constraints.iter().all(|c| labels.is_some_and(|l| l.contains_key(&c.topology_key)))
}

/// Whether the constraint counts pods on this node at all.
fn includes(constraint: &SpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!constraint.honor_affinity || pod.required_node.as_ref().is_none_or(|r| r.matches(node)))
        && !(constraint.honor_taints && node.has_repelling_taints() && is_repelled(node.taints(), pod.tolerations()))
}

fn column(cluster: &Cluster, key: &str) -> Column {
    cluster.topology().column(key).cloned().unwrap_or_default()
}

/// One hard constraint with the pods counted.
#[derive(Clone)]
struct Counted {
    constraint: SpreadConstraint,
    column: Column,
    /// Pods per domain; [`NOT_ELIGIBLE`] where none may go anyway.
    counts: Vec<i32>,
    domains: i32,
    fewest: i32,
    self_match: i32,
}

impl Counted {
    fn find_fewest(&mut self) {
        let eligible = self.counts.iter().copied().filter(|c| *c != NOT_ELIGIBLE);
        self.fewest = eligible.min().unwrap_or(i32::MAX);
        if self.domains < self.constraint.min_domains {
            self.fewest = 0;
        }
    }
}

#[derive(Clone, Default)]
struct Hard(Vec<Counted>);

impl Hard {
    fn has_all_domains(&self, node: NodeIdx) -> bool {
        self.0.iter().all(|c| c.column.domain(node).is_some())
    }

    /// Counts pods that appear (or vanish) on a node during a what-if.
    fn update(&mut self, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, delta: i32) {
        if changed.namespace() != pod.namespace() || changed.is_terminating() || !self.has_all_domains(node.idx()) {
            return;
        }
        for counted in &mut self.0 {
            if !counted.constraint.selector.matches(changed.labels()) || !includes(&counted.constraint, pod, node) {
                continue;
            }
            if let Some(domain) = counted.column.domain(node.idx()) {
                counted.counts[domain] = counted.counts[domain].max(0) + delta;
                counted.find_fewest();
            }
        }
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        super::POD_TOPOLOGY_SPREAD
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter, pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, Action::ADD | Action::POD_LABEL | Action::DELETE),
            Interest::new(Resource::TargetPod, Action::POD_TOLERATION | Action::POD_LABEL),
            Interest::new(Resource::Node, Action::ADD | Action::DELETE | Action::NODE_LABEL | Action::NODE_TAINT),
        ]
    }

    fn topology_keys(&self) -> Vec<String> {
        self.defaults.iter().map(|c| c.topology_key.clone()).collect()
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &Cluster) -> Hint {
        let constraints = self.constraints(pod, true, cluster);
        let helps = match event.resource {
            Resource::Node => node_helps(event.nodes(), &constraints),
            Resource::TargetPod => {
                let honors_taints = constraints.iter().any(|c| c.honor_taints);
                (event.action == Action::POD_TOLERATION && honors_taints) || pods_help(event, &constraints)
            }
            _ => {
                let (old, new) = event.pods();
                let involved = old.into_iter().chain(new).all(|p| p.namespace() == pod.namespace());
                involved && pods_help(event, &constraints)
            }
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

fn node_helps((old, new): (Option<&Arc<Node>>, Option<&Arc<Node>>), constraints: &[SpreadConstraint]) -> bool {
    let matches = |node: &Arc<Node>| has_all_keys(node.metadata.labels.as_ref(), constraints);
    let (Some(old), Some(new)) = (old, new) else { return old.or(new).is_some_and(matches) };
    if matches(old) != matches(new) {
        return true;
    }
    let label = |node: &Arc<Node>, key: &String| node.metadata.labels.as_ref().and_then(|l| l.get(key)).cloned();
    let taints = |node: &Arc<Node>| node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    let moved = constraints.iter().any(|c| label(old, &c.topology_key) != label(new, &c.topology_key));
    matches(new) && (moved || taints(old) != taints(new))
}

fn pods_help(event: &ClusterEvent, constraints: &[SpreadConstraint]) -> bool {
    let selects = |c: &SpreadConstraint, labels: Option<&Labels>| c.selector.matches(labels);
    match event.pods() {
        (Some(old), Some(new)) => {
            let (old, new) = (old.labels(), new.labels());
            constraints.iter().any(|c| selects(c, old) != selects(c, new))
        }
        (old, new) => {
            let labels = old.or(new).and_then(|p| p.labels());
            constraints.iter().any(|c| selects(c, labels))
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        if let Some(error) = &pod.invalid {
            return Err(Rejection::error(format!("obtaining pod's hard topology spread constraints: {error}")));
        }
        if !pod.spread.iter().any(|c| c.hard) && !self.defaults.iter().any(|c| c.hard) {
            return Ok(PreFilterOutcome::Skip);
        }
        let constraints = self.constraints(pod, true, cluster);
        if constraints.is_empty() {
            return Ok(PreFilterOutcome::Skip);
        }
        let hard = state.get_or_default::<Hard>();
        hard.0.clear();
        for constraint in constraints {
            let column = column(cluster, &constraint.topology_key);
            let self_match = i32::from(constraint.selector.matches(pod.labels()));
            hard.0.push(Counted {
                counts: vec![NOT_ELIGIBLE; column.domains()],
                column,
                domains: 0,
                fewest: 0,
                self_match,
                constraint,
            });
        }
        for &idx in cluster.order() {
            if !hard.has_all_domains(idx) {
                continue;
            }
            let node = cluster.node(idx);
            for counted in &mut hard.0 {
                let Some(domain) = counted.column.domain(idx) else { continue };
                if counted.counts[domain] == NOT_ELIGIBLE && includes(&counted.constraint, pod, node) {
                    counted.counts[domain] = 0;
                    counted.domains += 1;
                }
            }
        }
        for class in cluster.classes().in_namespace(pod.namespace()).filter(|c| !c.terminating) {
            for position in 0..hard.0.len() {
                let constraint = &hard.0[position].constraint;
                // An empty selector counts nothing, as upstream has it.
                if constraint.selector.is_empty() || !constraint.selector.matches(class.labels.as_ref()) {
                    continue;
                }
                for (idx, count) in class.counts.iter() {
                    if hard.has_all_domains(idx) && includes(&hard.0[position].constraint, pod, cluster.node(idx)) {
                        let counted = &mut hard.0[position];
                        if let Some(domain) = counted.column.domain(idx) {
                            counted.counts[domain] = counted.counts[domain].max(0) + count as i32;
                        }
                    }
                }
            }
        }
        hard.0.iter_mut().for_each(Counted::find_fewest);
        Ok(PreFilterOutcome::Proceed)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for PodTopologySpread {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, _: &Cluster) {
        state.expect_mut::<Hard>().update(pod, added, node, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, _: &Cluster) {
        state.expect_mut::<Hard>().update(pod, removed, node, -1);
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        for counted in &state.expect::<Hard>().0 {
            let Some(domain) = counted.column.domain(node.idx()) else { return Verdict::unresolvable(LABEL_MISSING) };
            let here = i64::from(counted.counts[domain].max(0) + counted.self_match);
            if here - i64::from(counted.fewest) > i64::from(counted.constraint.max_skew) {
                return Verdict::unschedulable(NOT_MATCHED);
            }
        }
        Verdict::Pass
    }
}

/// One soft constraint with the pods counted: per domain, or per node when every node is a domain.
#[derive(Clone)]
struct Scored {
    column: Column,
    counts: Vec<i64>,
    per_node: bool,
    max_skew: i64,
    /// Topologies with few domains weigh less, or their few large counts would drown the others.
    weight: f64,
}

#[derive(Clone, Default)]
struct Soft {
    constraints: Vec<Scored>,
    require_all: bool,
}

impl PreScore for PodTopologySpread {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster, nodes: NodeList<'_>) -> bool {
        let constraints = self.constraints(pod, false, cluster);
        if constraints.is_empty() {
            return false;
        }
        let soft = state.get_or_default::<Soft>();
        soft.constraints.clear();
        soft.require_all = !pod.spread.is_empty() || !self.system_defaulted;
        let columns: Vec<_> = constraints.iter().map(|c| column(cluster, &c.topology_key)).collect();
        let has_all = |idx: NodeIdx| columns.iter().all(|c| c.domain(idx).is_some());
        let counted_nodes = nodes.iter().filter(|n| !soft.require_all || has_all(n.idx())).count();
        for (constraint, column) in constraints.iter().zip(&columns) {
            let per_node = constraint.topology_key == HOSTNAME;
            let mut counts = vec![-1; if per_node { cluster.rows() } else { column.domains() }];
            let mut size = counted_nodes;
            if per_node {
                counts.fill(0);
            } else {
                // Only domains of nodes that may be chosen matter.
                let mut unlabelled = 0;
                size = 0;
                for node in nodes.iter().filter(|n| !soft.require_all || has_all(n.idx())) {
                    match column.domain(node.idx()) {
                        Some(domain) if counts[domain] < 0 => {
                            counts[domain] = 0;
                            size += 1;
                        }
                        Some(_) => {}
                        None => unlabelled = 1,
                    }
                }
                size += unlabelled;
            }
            let selects =
                |labels: Option<&Labels>| !constraint.selector.is_empty() && constraint.selector.matches(labels);
            let classes = cluster.classes().in_namespace(pod.namespace()).filter(|c| !c.terminating);
            for (idx, count) in classes.filter(|c| selects(c.labels.as_ref())).flat_map(|c| c.counts.iter()) {
                if per_node {
                    counts[idx.row()] += i64::from(count);
                } else if let Some(domain) = column.domain(idx).filter(|d| counts[*d] >= 0)
                    && (!soft.require_all || has_all(idx))
                    && includes(constraint, pod, cluster.node(idx))
                {
                    counts[domain] += i64::from(count);
                }
            }
            let weight = ((size + 2) as f64).ln();
            let max_skew = i64::from(constraint.max_skew);
            soft.constraints.push(Scored { column: column.clone(), counts, per_node, max_skew, weight });
        }
        true
    }
}

impl Score for PodTopologySpread {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        let soft = state.expect::<Soft>();
        let mut score = 0.0;
        for constraint in &soft.constraints {
            match constraint.column.domain(node.idx()) {
                Some(domain) => {
                    let count = constraint.counts[if constraint.per_node { node.idx().row() } else { domain }].max(0);
                    score += count as f64 * constraint.weight + (constraint.max_skew - 1) as f64;
                }
                None if soft.require_all => return IGNORED,
                None => {}
            }
        }
        score.round() as i64
    }

    fn normalize(&self, _: &CycleState, scores: &mut [i64]) {
        let considered = || scores.iter().copied().filter(|s| *s != IGNORED);
        let (fewest, most) = (considered().min().unwrap_or(i64::MAX), considered().max().unwrap_or(0).max(0));
        for score in scores {
            *score = match *score {
                IGNORED => 0,
                _ if most == 0 => MAX_SCORE,
                score => MAX_SCORE * (most + fewest - score) / most,
            };
        }
    }
}

#[cfg(test)]
mod tests;
