//! InterPodAffinity: pods that must, should, should not or must not share a domain with others.
//!
//! Both directions count: what the incoming pod wants of placed pods, and what placed pods want of it. Placed pods are
//! met by class: a selector is matched once per distinct set of labels, a placed pod's term once per distinct term.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::config::InterPodAffinityArgs;
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, MAX_SCORE, Plugin, Points, PreFilter,
    PreFilterExtensions, PreFilterOutcome, PreFilterResult, PreScore, Rejection, Resource, Score, Verdict,
};
use crate::model::classes::TermKind;
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::pod::{AffinityTerm, PodInfo};
use crate::model::topology::Column;

const EXISTING_REFUSE: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
const AFFINITY_UNMET: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY_UNMET: &str = "node(s) didn't match pod anti-affinity rules";

/// Keeps pods together and apart.
#[derive(Default)]
pub struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

impl InterPodAffinity {
    pub fn new(args: InterPodAffinityArgs) -> Self {
        Self { args }
    }
}

/// A number per domain of one topology key.
#[derive(Clone, Default)]
struct Tally {
    key: String,
    column: Column,
    counts: Vec<i64>,
}

impl Tally {
    fn new(key: &str, cluster: &Cluster) -> Self {
        let column = cluster.topology().column(key).cloned().unwrap_or_default();
        Self { key: key.to_owned(), counts: vec![0; column.domains()], column }
    }

    fn add(&mut self, node: NodeIdx, amount: i64) -> bool {
        let Some(domain) = self.column.domain(node) else { return false };
        self.counts[domain] += amount;
        true
    }

    fn at(&self, node: NodeIdx) -> Option<i64> {
        self.column.domain(node).map(|domain| self.counts[domain])
    }
}

/// The tally of a key, made on first use.
fn tally<'a>(tallies: &'a mut Vec<Tally>, key: &str, cluster: &Cluster) -> &'a mut Tally {
    let position = tallies.iter().position(|t| t.key == key).unwrap_or_else(|| {
        tallies.push(Tally::new(key, cluster));
        tallies.len() - 1
    });
    &mut tallies[position]
}

#[derive(Clone, Default)]
struct Counted {
    /// Placed pods that refuse the incoming one, by key.
    refusing: Vec<Tally>,
    /// Placed pods that all required terms select, per term.
    wanted: Vec<Tally>,
    /// Whether there is any such pod at all, in any domain.
    wanted_total: i64,
    /// Placed pods that a required anti-affinity term selects, per term.
    unwanted: Vec<Tally>,
    /// Whether the incoming pod would satisfy its own terms.
    wants_itself: bool,
}

fn selects(term: &AffinityTerm, pod: &PodInfo, cluster: &Cluster) -> bool {
    term.matches(pod.namespace(), cluster.namespace_labels(pod.namespace()), pod.labels())
}

fn selects_all(terms: &[AffinityTerm], pod: &PodInfo, cluster: &Cluster) -> bool {
    !terms.is_empty() && terms.iter().all(|t| selects(t, pod, cluster))
}

impl Counted {
    fn reset(&mut self) {
        self.refusing.clear();
        self.wanted.clear();
        self.unwanted.clear();
        (self.wanted_total, self.wants_itself) = (0, false);
    }

    fn count_refusing(&mut self, pod: &PodInfo, cluster: &Cluster) {
        for class in cluster.classes().terms().filter(|c| c.kind == TermKind::RequiredAnti) {
            if selects(&class.term, pod, cluster) {
                let tally = tally(&mut self.refusing, &class.term.topology_key, cluster);
                for (node, count) in class.counts.iter() {
                    tally.add(node, i64::from(count));
                }
            }
        }
        self.refusing.retain(|t| t.counts.iter().any(|c| *c != 0));
    }

    fn count_selected(&mut self, required: &[AffinityTerm], anti: &[AffinityTerm], cluster: &Cluster) {
        self.wanted.extend(required.iter().map(|t| Tally::new(&t.topology_key, cluster)));
        self.unwanted.extend(anti.iter().map(|t| Tally::new(&t.topology_key, cluster)));
        for namespace in cluster.classes().namespaces() {
            let namespace_labels = cluster.namespace_labels(namespace);
            for class in cluster.classes().in_namespace(namespace) {
                let matches = |t: &AffinityTerm| t.matches(namespace, namespace_labels, class.labels.as_ref());
                if !required.is_empty() && required.iter().all(matches) {
                    for (node, count) in class.counts.iter() {
                        for tally in &mut self.wanted {
                            if tally.add(node, i64::from(count)) {
                                self.wanted_total += i64::from(count);
                            }
                        }
                    }
                }
                for (term, tally) in anti.iter().zip(&mut self.unwanted) {
                    if matches(term) {
                        class.counts.iter().for_each(|(node, count)| {
                            tally.add(node, i64::from(count));
                        });
                    }
                }
            }
        }
    }

    /// A placed pod appears (or vanishes) during a what-if.
    fn update(&mut self, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, cluster: &Cluster, delta: i64) {
        for term in changed.affinity.iter().flat_map(|a| &a.required_anti) {
            if selects(term, pod, cluster) {
                tally(&mut self.refusing, &term.topology_key, cluster).add(node.idx(), delta);
            }
        }
        let Some(affinity) = &pod.affinity else { return };
        if selects_all(&affinity.required, changed, cluster) {
            for tally in &mut self.wanted {
                if tally.add(node.idx(), delta) {
                    self.wanted_total += delta;
                }
            }
        }
        for (term, tally) in affinity.required_anti.iter().zip(&mut self.unwanted) {
            if selects(term, changed, cluster) {
                tally.add(node.idx(), delta);
            }
        }
    }

    fn has_company(&self, node: NodeIdx) -> bool {
        let mut all_present = true;
        for tally in &self.wanted {
            // A node without the label is in no domain, so in none with company.
            let Some(count) = tally.at(node) else { return false };
            all_present &= count > 0;
        }
        // The first of a group that wants its own company must start somewhere.
        all_present || (self.wanted_total == 0 && self.wants_itself)
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        super::INTER_POD_AFFINITY
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter, pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, Action::ADD | Action::POD_LABEL | Action::DELETE),
            Interest::new(Resource::TargetPod, Action::POD_LABEL),
            Interest::new(Resource::Node, Action::ADD | Action::NODE_LABEL),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &Cluster) -> Hint {
        let helps = match (event.resource, event.nodes(), event.pods()) {
            (Resource::AssignedPod, _, (old, new)) => pods_help(pod, old, new, cluster),
            (Resource::Node, (old, Some(new)), _) => node_helps(pod, old, new),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

fn pods_help(pod: &PodInfo, old: Option<&Arc<PodInfo>>, new: Option<&Arc<PodInfo>>, cluster: &Cluster) -> bool {
    let (required, anti) =
        pod.affinity.as_ref().map_or((&[][..], &[][..]), |a| (&a.required[..], &a.required_anti[..]));
    let wanted = |p: &PodInfo| selects_all(required, p, cluster);
    let unwanted = |p: &PodInfo| anti.iter().any(|t| selects(t, p, cluster));
    match (old, new) {
        (Some(old), Some(new)) => (!wanted(old) && wanted(new)) || (unwanted(old) && !unwanted(new)),
        (None, Some(new)) => wanted(new),
        (Some(old), None) => {
            let refuses = old.affinity.iter().flat_map(|a| &a.required_anti).any(|t| selects(t, pod, cluster));
            unwanted(old) || refuses
        }
        (None, None) => true,
    }
}

fn node_helps(pod: &PodInfo, old: Option<&Arc<Node>>, new: &Arc<Node>) -> bool {
    let Some(affinity) = &pod.affinity else { return false };
    let label = |node: &Arc<Node>, key: &String| node.metadata.labels.as_ref().and_then(|l| l.get(key)).cloned();
    let joins =
        |term: &AffinityTerm| match (old.and_then(|o| label(o, &term.topology_key)), label(new, &term.topology_key)) {
            (None, Some(_)) => true,
            (Some(before), Some(after)) => before != after,
            _ => false,
        };
    let leaves = |term: &AffinityTerm| match old {
        None => true,
        Some(old) => match (label(old, &term.topology_key), label(new, &term.topology_key)) {
            (Some(_), None) => true,
            (Some(before), Some(after)) => before != after,
            _ => false,
        },
    };
    affinity.required.iter().any(joins) || affinity.required_anti.iter().any(leaves)
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        if let Some(error) = &pod.invalid {
            return Err(Rejection::unresolvable(format!("parsing pod: {error}")));
        }
        let (required, anti) =
            pod.affinity.as_ref().map_or((&[][..], &[][..]), |a| (&a.required[..], &a.required_anti[..]));
        if required.is_empty() && anti.is_empty() && cluster.classes().has_no_terms() {
            return Ok(PreFilterOutcome::Skip);
        }
        let counted = state.get_or_default::<Counted>();
        counted.reset();
        counted.count_refusing(pod, cluster);
        if required.is_empty() && anti.is_empty() && counted.refusing.is_empty() {
            return Ok(PreFilterOutcome::Skip);
        }
        if !required.is_empty() || !anti.is_empty() {
            counted.count_selected(required, anti, cluster);
        }
        counted.wants_itself = selects_all(required, pod, cluster);
        Ok(PreFilterOutcome::Proceed)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for InterPodAffinity {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, cluster: &Cluster) {
        state.expect_mut::<Counted>().update(pod, added, node, cluster, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, cluster: &Cluster) {
        state.expect_mut::<Counted>().update(pod, removed, node, cluster, -1);
    }
}

impl Filter for InterPodAffinity {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        let counted = state.expect::<Counted>();
        let idx = node.idx();
        if !counted.has_company(idx) {
            return Verdict::unresolvable(AFFINITY_UNMET);
        }
        if counted.unwanted.iter().any(|t| t.at(idx).is_some_and(|c| c > 0)) {
            return Verdict::unschedulable(ANTI_AFFINITY_UNMET);
        }
        if counted.refusing.iter().any(|t| t.at(idx).is_some_and(|c| c > 0)) {
            return Verdict::unschedulable(EXISTING_REFUSE);
        }
        Verdict::Pass
    }
}

/// What domains are worth, by key.
#[derive(Clone, Default)]
struct Worth(Vec<Tally>);

impl PreScore for InterPodAffinity {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster, _: NodeList<'_>) -> bool {
        let own = pod.affinity.as_ref().filter(|a| !a.preferred.is_empty() || !a.preferred_anti.is_empty());
        if own.is_none() && (self.args.ignore_preferred_terms_of_existing_pods || cluster.classes().has_no_terms()) {
            return false;
        }
        let worth = &mut state.get_or_default::<Worth>().0;
        worth.clear();
        let mut any = false;
        if let Some(own) = own {
            let nearer = own.preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
            let farther = own.preferred_anti.iter().map(|(weight, term)| (-i64::from(*weight), term));
            for (weight, term) in nearer.chain(farther) {
                for namespace in cluster.classes().namespaces() {
                    let namespace_labels = cluster.namespace_labels(namespace);
                    for class in cluster.classes().in_namespace(namespace) {
                        if term.matches(namespace, namespace_labels, class.labels.as_ref()) {
                            let tally = tally(worth, &term.topology_key, cluster);
                            for (node, count) in class.counts.iter() {
                                any |= tally.add(node, weight * i64::from(count));
                            }
                        }
                    }
                }
            }
        }
        for class in cluster.classes().terms() {
            let weight = match class.kind {
                TermKind::Required => i64::from(self.args.hard_pod_affinity_weight),
                TermKind::RequiredAnti => 0,
                TermKind::Preferred(weight) => i64::from(weight),
                TermKind::PreferredAnti(weight) => -i64::from(weight),
            };
            if weight != 0 && selects(&class.term, pod, cluster) {
                let tally = tally(worth, &class.term.topology_key, cluster);
                for (node, count) in class.counts.iter() {
                    any |= tally.add(node, weight * i64::from(count));
                }
            }
        }
        any
    }
}

impl Score for InterPodAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        state.expect::<Worth>().0.iter().filter_map(|t| t.at(node.idx())).sum()
    }

    fn normalize(&self, _: &CycleState, scores: &mut [i64]) {
        let (Some(&least), Some(&most)) = (scores.iter().min(), scores.iter().max()) else { return };
        let spread = (most - least) as f64;
        for score in scores {
            *score = if spread > 0.0 { (MAX_SCORE as f64 * ((*score - least) as f64 / spread)) as i64 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests;
