//! Which rules a role holds that is made of others.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use crate::common::meta::MetaExt;
use crate::common::selector;

/// The rules that a role should have; `None` if it has them.
pub(super) fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let rules = aggregated(role, all);
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

/// The rules of all selected roles, each once, in the order of the roles' names.
fn aggregated(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Vec<PolicyRule> {
    let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.filter_map(selector::parse) {
        let mut picked: Vec<&Arc<ClusterRole>> =
            all.iter().filter(|candidate| selector::matches(&selector, &candidate.metadata.labels)).collect();
        picked.sort_by_key(|candidate| candidate.metadata.name());
        // A role that selects itself would only ever grow.
        for candidate in picked.into_iter().filter(|candidate| candidate.metadata.name != role.metadata.name) {
            for rule in candidate.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}
