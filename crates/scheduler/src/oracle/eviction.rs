//! Whom to evict for a pod, slowly: every node is emptied of less important pods, which are then put back one by one, the
//! most important first, as long as the pod still fits.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::World;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::testing::selector;
use rules::selectors::NodeFacts;

/// A disruption budget for the pods of an app in a namespace.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub namespace: String,
    pub app: String,
    pub allowed: i32,
}

impl Budget {
    /// As the API has it.
    pub(super) fn object(&self, name: &str) -> Object {
        Object::PodDisruptionBudget(Arc::new(PodDisruptionBudget {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..Default::default()
            },
            spec: Some(PodDisruptionBudgetSpec { selector: Some(selector("app", &self.app)), ..Default::default() }),
            status: Some(PodDisruptionBudgetStatus { disruptions_allowed: Some(self.allowed), ..Default::default() }),
        }))
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        self.namespace == pod.namespace() && pod.labels().and_then(|l| l.get("app")) == Some(&self.app)
    }
}

/// A node and who would have to leave it.
#[derive(Debug)]
pub(super) struct Eviction {
    pub node: String,
    pub victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

impl Eviction {
    /// The criteria in order; the smallest is chosen.
    fn harm(&self) -> (usize, i32, i64, usize, Reverse<Option<jiff::Timestamp>>) {
        let priorities = || self.victims.iter().map(|v| v.priority);
        let highest = priorities().max().unwrap_or(i32::MIN);
        let sum = priorities().map(|p| i64::from(p) + (1 << 31)).sum();
        let first = self.victims.iter().filter(|v| v.priority == highest).filter_map(|v| v.started()).min();
        (self.violations, highest, sum, self.victims.len(), Reverse(first))
    }

    /// Those who are not leaving anyway.
    pub(super) fn evicted(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.victims.iter().filter(|v| !v.is_terminating())
    }
}

impl World {
    /// Whether a pod can go to a node, both with and without the pods of no lower priority that are promised to it.
    pub(super) fn is_open(&self, pod: &PodInfo, node: &Node) -> bool {
        let counts =
            |(p, on): &&(Arc<PodInfo>, String)| on == node.name() && p.priority >= pod.priority && p.uid() != pod.uid();
        let mut with = self.clone();
        with.placed.extend(self.promised.iter().filter(counts).cloned());
        self.objection(pod, node).is_none() && with.objection(pod, node).is_none()
    }

    /// The evictions that would let a pod in and hurt least: several if they hurt alike.
    pub(super) fn evictions(&self, pod: &PodInfo) -> Vec<Eviction> {
        let all: Vec<_> = self.nodes.iter().filter_map(|node| self.eviction(pod, node)).collect();
        let least = all.iter().map(Eviction::harm).min();
        all.into_iter().filter(|e| Some(e.harm()) == least).collect()
    }

    fn eviction(&self, pod: &PodInfo, node: &Node) -> Option<Eviction> {
        let is_lower = |p: &PodInfo, on: &str| on == node.name() && p.priority < pod.priority;
        let mut lower: Vec<_> = self.placed.iter().filter(|(p, on)| is_lower(p, on)).cloned().collect();
        lower.sort_by_key(|(p, _)| (Reverse(p.priority), p.started()));
        let mut without = self.clone();
        without.placed.retain(|(p, on)| !is_lower(p, on));
        if lower.is_empty() || !without.is_open(pod, node) {
            return None;
        }
        let mut left: Vec<i32> = self.budgets.iter().map(|b| b.allowed).collect();
        let (guarded, free): (Vec<_>, Vec<_>) = lower.into_iter().partition(|(p, _)| {
            for (budget, left) in self.budgets.iter().zip(&mut left).filter(|(b, _)| b.covers(p)) {
                let _ = budget;
                *left -= 1;
                if *left < 0 {
                    return true;
                }
            }
            false
        });
        let (mut victims, mut violations) = (Vec::new(), 0);
        for (is_guarded, placed) in guarded.into_iter().map(|p| (true, p)).chain(free.into_iter().map(|p| (false, p))) {
            without.placed.push(placed.clone());
            if !without.is_open(pod, node) {
                without.placed.pop();
                victims.push(placed.0);
                violations += usize::from(is_guarded);
            }
        }
        Some(Eviction { node: node.name().to_owned(), victims, violations })
    }
}
