//! ClusterRole aggregation: roles such as `admin` hold the rules of all roles that their selectors pick.
//!
//! Upstream: ClusterRoleAggregationController.

use std::sync::Arc;

use client::{Client, Patch};
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::context::Context;

const WORKERS: usize = 5;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Aggregation { client: context.client.clone(), roles: context.informers.of() };
    let queue = context.queue();
    let roles = controller.roles.clone();
    informer::feed(&controller.roles, &queue, move |change| {
        let aggregating = |role: &Arc<ClusterRole>| role.aggregation_rule.is_some();
        let mut keys: Vec<Key> =
            roles.list().iter().filter(|role| aggregating(role)).map(|role| role.metadata.key()).collect();
        keys.extend(change.after().filter(|role| aggregating(role)).map(|role| role.metadata.key()));
        keys
    });
    controller.roles.synced().await;
    context.run(controller, queue, WORKERS).await;
}

struct Aggregation {
    client: Client,
    roles: Informer<ClusterRole>,
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

impl Reconciler for Aggregation {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(role) = self.roles.get(key).filter(|role| role.aggregation_rule.is_some()) else {
            return Ok(Action::Done);
        };
        let rules = aggregated(&role, &self.roles.list());
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(Action::Done);
        }
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": key.name},
            "rules": rules,
        });
        let patch = Patch::Apply { manager: "clusterrole-aggregation-controller".to_owned(), force: true, object };
        match self.client.patch::<ClusterRole>("", &key.name, &patch).await {
            Ok(_) => Ok(Action::Done),
            Err(error) if error.is_not_found() => Ok(Action::Done),
            // Servers without apply take the whole object.
            Err(error) if matches!(error.code(), Some(400 | 415)) => {
                let changed = ClusterRole { rules: Some(rules), ..ClusterRole::clone(&role) };
                self.client.update(&changed).await?;
                Ok(Action::Done)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::AggregationRule;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
    use std::collections::BTreeMap;

    use super::*;

    fn role(name: &str, verb: &str) -> Arc<ClusterRole> {
        let labels = BTreeMap::from([("to".to_owned(), "admin".to_owned())]);
        Arc::new(ClusterRole {
            metadata: ObjectMeta { name: Some(name.into()), labels: Some(labels), ..ObjectMeta::default() },
            rules: Some(vec![PolicyRule { verbs: vec![verb.to_owned()], ..PolicyRule::default() }]),
            aggregation_rule: None,
        })
    }

    #[test]
    fn rules_are_taken_once_in_the_order_of_names() {
        let match_labels = Some(BTreeMap::from([("to".to_owned(), "admin".to_owned())]));
        let selector = LabelSelector { match_labels, ..LabelSelector::default() };
        let mut admin = ClusterRole::clone(&role("admin", "own"));
        admin.aggregation_rule = Some(AggregationRule { cluster_role_selectors: Some(vec![selector]) });
        let all = [Arc::new(admin.clone()), role("z", "get"), role("a", "list"), role("b", "get")];
        let verbs: Vec<String> = aggregated(&admin, &all).into_iter().flat_map(|rule| rule.verbs).collect();
        assert_eq!(verbs, ["list", "get"]);
    }
}
