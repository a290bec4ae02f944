//! An oracle: scheduling once more, slowly and obviously, to check the fast one on random clusters.
//!
//! It shares nothing with the real thing but the parsing of selectors and quantities: no classes, no columns, no memory of
//! earlier verdicts, just every placed pod looked at for every node. On small clusters all nodes are considered, so a
//! placement must be legal and of the best score, and a failure must mean that no node was legal.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, TopologySpreadConstraint};

use crate::model::pod::{AffinityTerm, PodInfo, SpreadConstraint};
use crate::model::resources::Resources;
use rules::selectors::{Labels, NodeFacts};
use rules::tolerations::{any_tolerates, is_repelled};

mod eviction;
mod preemption;
mod random;
mod simulation;

/// How many seeds to try: `SEEDS=5000 cargo test -p scheduler oracle` tries more than the every-day number.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok());
    0..asked.unwrap_or(usual)
}

/// A claim, as far as it says where its pods may run.
#[derive(Default, Clone)]
struct Claim {
    /// The zone of its volume.
    zone: Option<&'static str>,
    /// The node it will be provisioned for.
    selected: Option<String>,
    /// Whether it waits for its first pod.
    waits: bool,
    /// Whether only one pod at all may use it.
    exclusive: bool,
}

/// A cluster as lists.
#[derive(Default, Clone)]
struct World {
    nodes: Vec<Arc<Node>>,
    placed: Vec<(Arc<PodInfo>, String)>,
    claims: BTreeMap<String, Claim>,
    /// The labels of namespaces.
    namespaces: BTreeMap<String, Labels>,
    /// Namespaces and selectors of services.
    services: Vec<(String, Labels)>,
    budgets: Vec<eviction::Budget>,
    /// Pods without a node, and the node that each is promised.
    promised: Vec<(Arc<PodInfo>, String)>,
}

/// A spread constraint as the pod wrote it. The labels that `matchLabelKeys` names are compared one by one.
struct Spread {
    written: SpreadConstraint,
    keys: Labels,
}

impl Spread {
    fn selects(&self, other: &PodInfo) -> bool {
        self.written.selector.matches(other.labels())
            && self.keys.iter().all(|(key, value)| other.labels().and_then(|l| l.get(key)) == Some(value))
    }
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a String> {
    node.labels().and_then(|l| l.get(key))
}

fn taints(node: &Node) -> &[k8s_openapi::api::core::v1::Taint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

impl World {
    fn selects(&self, term: &AffinityTerm, pod: &PodInfo) -> bool {
        let by_name = term.namespaces.iter().any(|n| n == pod.namespace());
        let by_label = || term.namespace_selector.matches(self.namespaces.get(pod.namespace()));
        (by_name || by_label()) && term.selector.matches(pod.labels())
    }

    /// The pod's constraints, or those of the cluster for pods that bring none and belong to services.
    fn constraints(&self, pod: &PodInfo, hard: bool) -> Vec<Spread> {
        let spec = pod.object().and_then(|pod| pod.spec.as_ref());
        let written = spec.and_then(|s| s.topology_spread_constraints.clone()).unwrap_or_default();
        let own_label = |key: &String| Some((key.clone(), pod.labels()?.get(key)?.clone()));
        let read = |mut constraint: TopologySpreadConstraint| Spread {
            keys: constraint.match_label_keys.take().iter().flatten().filter_map(own_label).collect(),
            written: SpreadConstraint::parse(&constraint, None).expect("random selectors are valid"),
        };
        let all: Vec<Spread> = match written.is_empty() {
            false => written.into_iter().map(read).collect(),
            true => self.cluster_constraints(pod).into_iter().map(read).collect(),
        };
        all.into_iter().filter(|c| c.written.hard == hard).collect()
    }

    fn cluster_constraints(&self, pod: &PodInfo) -> Vec<TopologySpreadConstraint> {
        let has = |selector: &Labels| selector.iter().all(|(k, v)| pod.labels().and_then(|l| l.get(k)) == Some(v));
        let services =
            self.services.iter().filter(|(namespace, selector)| namespace == pod.namespace() && has(selector));
        let selected: Labels = services.flat_map(|(_, selector)| selector.clone()).collect();
        if selected.is_empty() {
            return Vec::new();
        }
        let constraint = |(key, max_skew): (&str, i32)| TopologySpreadConstraint {
            label_selector: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
                match_labels: Some(selected.clone()),
                match_expressions: None,
            }),
            max_skew,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..Default::default()
        };
        [("kubernetes.io/hostname", 3), (random::ZONE, 5)].map(constraint).into()
    }

    fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|n| n.name() == name)
    }

    fn on<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        self.placed.iter().filter(|(_, on)| on == node.name()).map(|(pod, _)| pod)
    }

    /// Placed pods with the node they are on, leaving out those whose node is unknown.
    fn all(&self) -> impl Iterator<Item = (&Arc<PodInfo>, &Arc<Node>)> {
        self.placed.iter().filter_map(|(pod, on)| Some((pod, self.node(on)?)))
    }

    fn allocatable(node: &Node) -> (Resources, i64) {
        Resources::from_list(node.status.as_ref().and_then(|s| s.allocatable.as_ref()))
    }

    fn requested(&self, node: &Node) -> Resources {
        let mut sum = Resources::default();
        self.on(node).for_each(|p| sum.add(p.requests(), 1));
        sum
    }

    /// Why the node will not do, or nothing.
    fn objection(&self, pod: &PodInfo, node: &Node) -> Option<&'static str> {
        let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
        if cordoned {
            return Some("unschedulable");
        }
        if is_repelled(taints(node), pod.tolerations()) {
            return Some("taint");
        }
        if pod.required_node.as_ref().is_some_and(|r| !r.matches(node)) {
            return Some("node affinity");
        }
        if self.on(node).flat_map(|p| &p.host_ports).any(|taken| pod.host_ports.iter().any(|p| p.conflicts(taken))) {
            return Some("ports");
        }
        let (room, pods) = Self::allocatable(node);
        let taken = self.requested(node);
        if self.on(node).count() as i64 + 1 > pods {
            return Some("pods");
        }
        for name in ["cpu", "memory"] {
            let wanted = pod.requests().get(name);
            if wanted > 0 && taken.get(name) + wanted > room.get(name) {
                return Some("room");
            }
        }
        if !self.reaches_volumes(pod, node) {
            return Some("volumes");
        }
        if !self.spreads(pod, node) {
            return Some("spread");
        }
        (!self.keeps_company(pod, node)).then_some("company")
    }

    fn reaches_volumes(&self, pod: &PodInfo, node: &Node) -> bool {
        pod.named_claims().all(|name| {
            let Some(claim) = self.claims.get(name) else { return false };
            let uses =
                |other: &PodInfo| other.namespace() == pod.namespace() && other.named_claims().any(|c| c == name);
            let in_zone = claim.zone.is_none_or(|zone| label(node, random::ZONE).is_some_and(|z| z == zone));
            let is_selected = claim.selected.as_ref().is_none_or(|selected| selected == node.name());
            in_zone && is_selected && !(claim.exclusive && self.placed.iter().any(|(other, _)| uses(other)))
        })
    }

    fn included(constraint: &SpreadConstraint, pod: &PodInfo, node: &Node) -> bool {
        (!constraint.honor_affinity || pod.required_node.as_ref().is_none_or(|r| r.matches(node)))
            && !(constraint.honor_taints && is_repelled(taints(node), pod.tolerations()))
    }

    fn matching(&self, constraint: &Spread, pod: &PodInfo, node: &Node) -> i64 {
        let counted =
            |p: &&Arc<PodInfo>| !p.is_terminating() && p.namespace() == pod.namespace() && constraint.selects(p);
        self.on(node).filter(counted).count() as i64
    }

    fn spreads(&self, pod: &PodInfo, node: &Node) -> bool {
        let hard = self.constraints(pod, true);
        hard.iter().all(|constraint| {
            let c = &constraint.written;
            let Some(here) = label(node, &c.topology_key) else { return false };
            let mut domains: BTreeMap<&String, i64> = BTreeMap::new();
            for other in &self.nodes {
                let has_all = hard.iter().all(|h| label(other, &h.written.topology_key).is_some());
                if has_all && Self::included(c, pod, other) {
                    let value = label(other, &c.topology_key).expect("it has all labels");
                    *domains.entry(value).or_default() += self.matching(constraint, pod, other);
                }
            }
            let too_few = (domains.len() as i32) < c.min_domains;
            let fewest = if too_few { 0 } else { domains.values().min().copied().unwrap_or(i64::from(i32::MAX)) };
            let own = i64::from(constraint.selects(pod));
            domains.get(here).copied().unwrap_or(0) + own - fewest <= i64::from(c.max_skew)
        })
    }

    fn keeps_company(&self, pod: &PodInfo, node: &Node) -> bool {
        let same = |key: &str, other: &Node| label(node, key).is_some() && label(node, key) == label(other, key);
        // Placed pods that refuse the incoming one.
        for (placed, on) in self.all() {
            let refusals = placed.affinity.iter().flat_map(|a| &a.required_anti);
            if refusals.into_iter().any(|t| self.selects(t, pod) && same(&t.topology_key, on)) {
                return false;
            }
        }
        let Some(affinity) = &pod.affinity else { return true };
        for term in &affinity.required_anti {
            if self.all().any(|(placed, on)| self.selects(term, placed) && same(&term.topology_key, on)) {
                return false;
            }
        }
        if affinity.required.is_empty() {
            return true;
        }
        if affinity.required.iter().any(|t| label(node, &t.topology_key).is_none()) {
            return false;
        }
        let wanted = |placed: &PodInfo| affinity.required.iter().all(|t| self.selects(t, placed));
        let met = affinity.required.iter().all(|t| self.all().any(|(p, on)| wanted(p) && same(&t.topology_key, on)));
        let counts = |on: &Node| affinity.required.iter().any(|t| label(on, &t.topology_key).is_some());
        let none_anywhere = !self.all().any(|(p, on)| wanted(p) && counts(on));
        met || (none_anywhere && wanted(pod))
    }

    /// The total scores of these nodes.
    fn scores(&self, pod: &PodInfo, nodes: &[&Arc<Node>]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| totals.iter_mut().zip(scores).for_each(|(t, s)| *t += weight * s);
        let raw = |f: &dyn Fn(&Node) -> i64| nodes.iter().map(|n| f(n)).collect::<Vec<_>>();

        let discouraged = raw(&|n| {
            let soft = taints(n).iter().filter(|t| t.effect == "PreferNoSchedule");
            soft.filter(|t| !any_tolerates(pod.tolerations(), t)).count() as i64
        });
        let most = discouraged.iter().copied().max().unwrap_or(0);
        add(3, discouraged.iter().map(|c| if most == 0 { 100 } else { 100 - 100 * c / most }).collect());

        if !pod.preferred_nodes.is_empty() {
            let liked = raw(&|n| pod.preferred_nodes.iter().filter(|t| t.term.matches(n)).map(|t| t.weight).sum());
            let most = liked.iter().copied().max().unwrap_or(0);
            add(2, liked.iter().map(|c| if most == 0 { *c } else { 100 * c / most }).collect());
        }
        add(1, raw(&|n| self.least_allocated(pod, n)));
        if pod.requests().milli_cpu != 0 || pod.requests().memory != 0 {
            add(1, raw(&|n| self.balance(pod, n)));
        }
        add(1, raw(&|n| self.images_at_hand(pod, n)));
        if let Some(scores) = self.soft_spread(pod, nodes) {
            add(2, scores);
        }
        if let Some(scores) = self.attraction(pod, nodes) {
            add(2, scores);
        }
        totals
    }

    fn least_allocated(&self, pod: &PodInfo, node: &Node) -> i64 {
        let (room, _) = Self::allocatable(node);
        let (cpu, memory) = self.on(node).fold(pod.scoring_requests(), |(c, m), p| {
            let (pc, pm) = p.non_zero_requests();
            (c + pc, m + pm)
        });
        let share = |requested: i64, room: i64| if requested > room { 0 } else { (room - requested) * 100 / room };
        let shares: Vec<_> =
            [(cpu, room.milli_cpu), (memory, room.memory)].into_iter().filter(|(_, r)| *r != 0).collect();
        if shares.is_empty() { 0 } else { shares.iter().map(|(q, r)| share(*q, *r)).sum::<i64>() / shares.len() as i64 }
    }

    fn balance(&self, pod: &PodInfo, node: &Node) -> i64 {
        let (room, _) = Self::allocatable(node);
        let taken = self.requested(node);
        let score = |extra: bool| {
            let mut fractions = Vec::new();
            for name in ["cpu", "memory"] {
                if room.get(name) != 0 {
                    let requested = taken.get(name) + if extra { pod.requests().get(name) } else { 0 };
                    fractions.push((requested as f64 / room.get(name) as f64).min(1.0));
                }
            }
            let deviation = if let [a, b] = fractions[..] { ((a - b) / 2.0f64).abs() } else { 0.0 };
            ((1.0 - deviation) * 100.0) as i64
        };
        50 + (50 + score(true) - score(false)) / 2
    }

    /// Of the pod's images, what the node has counts in as far as other nodes have it too.
    fn images_at_hand(&self, pod: &PodInfo, node: &Node) -> i64 {
        const MIB: i64 = 1 << 20;
        let size = |node: &Node, wanted: &str| {
            let images = node.status.as_ref().and_then(|s| s.images.as_ref());
            let mut sizes = images.into_iter().flatten().map(|i| (i.names.iter().flatten(), i.size_bytes.unwrap_or(0)));
            sizes.find_map(|(mut names, size)| names.any(|n| n == wanted).then_some(size))
        };
        let bytes: i64 = pod
            .images
            .iter()
            .map(|image| {
                let tagged = if image.contains(':') { image.to_string() } else { format!("{image}:latest") };
                let owners = self.nodes.iter().filter(|n| size(n, &tagged).is_some()).count();
                let share = owners as f64 / self.nodes.len() as f64;
                size(node, &tagged).map_or(0, |size| (size as f64 * share) as i64)
            })
            .sum();
        let most = 1000 * MIB * pod.images.len() as i64;
        if pod.images.is_empty() { 0 } else { 100 * (bytes.clamp(23 * MIB, most) - 23 * MIB) / (most - 23 * MIB) }
    }

    fn soft_spread(&self, pod: &PodInfo, nodes: &[&Arc<Node>]) -> Option<Vec<i64>> {
        let soft = self.constraints(pod, false);
        if soft.is_empty() {
            return None;
        }
        // The cluster's own constraints do not mind nodes without a zone.
        let minds = !pod.spread.is_empty();
        let has_all = |n: &Node| !minds || soft.iter().all(|c| label(n, &c.written.topology_key).is_some());
        let raw: Vec<Option<i64>> = nodes
            .iter()
            .map(|node| {
                if !has_all(node) {
                    return None;
                }
                let mut sum = 0.0;
                for constraint in &soft {
                    let c = &constraint.written;
                    let Some(here) = label(node, &c.topology_key) else { continue };
                    let hostname = c.topology_key == "kubernetes.io/hostname";
                    let candidates: Vec<_> = nodes.iter().filter(|n| has_all(n)).collect();
                    let (count, size) = if hostname {
                        (self.matching(constraint, pod, node), candidates.len())
                    } else {
                        // Nodes without a zone are one zone more.
                        let values: std::collections::BTreeSet<_> =
                            candidates.iter().map(|n| label(n, &c.topology_key)).collect();
                        let domain =
                            self.nodes.iter().filter(|n| has_all(n) && label(n, &c.topology_key) == Some(here));
                        let counted = domain.filter(|n| Self::included(c, pod, n));
                        (counted.map(|n| self.matching(constraint, pod, n)).sum(), values.len())
                    };
                    sum += count as f64 * ((size + 2) as f64).ln() + f64::from(c.max_skew - 1);
                }
                Some(sum.round() as i64)
            })
            .collect();
        let most = raw.iter().flatten().copied().max().unwrap_or(0);
        let least = raw.iter().flatten().copied().min().unwrap_or(0);
        Some(
            raw.iter()
                .map(|r| r.map_or(0, |r| if most == 0 { 100 } else { 100 * (most + least - r) / most }))
                .collect(),
        )
    }

    fn attraction(&self, pod: &PodInfo, nodes: &[&Arc<Node>]) -> Option<Vec<i64>> {
        let mut any = false;
        let mut pulls: Vec<(String, String, i64)> = Vec::new();
        for (placed, on) in self.all() {
            let mut pull = |term: &AffinityTerm, weight: i64| {
                if let Some(value) = label(on, &term.topology_key) {
                    any = true;
                    pulls.push((term.topology_key.clone(), value.clone(), weight));
                }
            };
            for (weight, term) in
                pod.affinity.iter().flat_map(|a| &a.preferred).filter(|(_, t)| self.selects(t, placed))
            {
                pull(term, i64::from(*weight));
            }
            for (weight, term) in
                pod.affinity.iter().flat_map(|a| &a.preferred_anti).filter(|(_, t)| self.selects(t, placed))
            {
                pull(term, -i64::from(*weight));
            }
            let Some(theirs) = &placed.affinity else { continue };
            theirs.required.iter().filter(|t| self.selects(t, pod)).for_each(|t| pull(t, 1));
            theirs.preferred.iter().filter(|(_, t)| self.selects(t, pod)).for_each(|(w, t)| pull(t, i64::from(*w)));
            theirs
                .preferred_anti
                .iter()
                .filter(|(_, t)| self.selects(t, pod))
                .for_each(|(w, t)| pull(t, -i64::from(*w)));
        }
        if !any {
            return None;
        }
        let felt = |n: &Node| pulls.iter().filter(|(k, v, _)| label(n, k) == Some(v)).map(|(_, _, w)| w).sum::<i64>();
        let raw: Vec<i64> = nodes.iter().map(|n| felt(n)).collect();
        let (most, least) = (raw.iter().copied().max().unwrap_or(0), raw.iter().copied().min().unwrap_or(0));
        let spread = (most - least) as f64;
        Some(
            raw.iter().map(|r| if spread > 0.0 { (100.0 * ((r - least) as f64 / spread)) as i64 } else { 0 }).collect(),
        )
    }

    /// The legal nodes of the best score.
    fn best(&self, pod: &PodInfo) -> Vec<String> {
        let legal: Vec<_> = self.nodes.iter().filter(|n| self.is_open(pod, n)).collect();
        let scores = self.scores(pod, &legal);
        let best = scores.iter().copied().max().unwrap_or(0);
        let chosen = legal.iter().zip(&scores).filter(|(_, s)| **s == best || legal.len() == 1);
        chosen.map(|(n, _)| n.name().to_owned()).collect()
    }
}
