//! Rules of roles that are made of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{AggregationRule, ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::plan::plan;

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
    let rules = plan(&admin, &all).expect("other rules than its own");
    let verbs: Vec<&str> = rules.iter().flat_map(|rule| rule.verbs.iter().map(String::as_str)).collect();
    assert_eq!(verbs, ["list", "get"]);
    admin.rules = Some(rules);
    assert_eq!(plan(&admin, &all), None, "it has them");
}
