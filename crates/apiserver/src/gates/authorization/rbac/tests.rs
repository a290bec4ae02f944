//! The index against tables of bindings, and against the bootstrap roles.

use machinery::rest::User;
use serde_json::json;

use super::super::{Attributes, Decision};
use super::index::Index;

fn role(index: &mut Index, namespace: &str, name: &str, verb: &str) {
    let tree = json!({"rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]});
    index.set_role(namespace, name, Some(&tree));
}

fn bind(index: &mut Index, namespace: &str, name: &str, kind: &str, role: &str, subject: (&str, &str)) {
    let subject = json!({"kind": subject.0, "name": subject.1});
    let tree = json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]});
    index.set_binding(namespace, name, Some(&tree));
}

/// Whether a user may do this to pods in a namespace.
fn may(index: &Index, user: &User, verb: &str, namespace: &str) -> bool {
    let attributes = Attributes::question(user, verb, "", "pods", "").in_namespace(namespace);
    index.authorize(&attributes).allows()
}

#[test]
fn a_binding_reaches_its_namespace_and_a_cluster_binding_every() {
    let mut index = Index::default();
    role(&mut index, "", "reader", "get");
    role(&mut index, "a", "writer", "create");
    bind(&mut index, "a", "local", "ClusterRole", "reader", ("User", "jane"));
    bind(&mut index, "a", "own", "Role", "writer", ("Group", "devs"));
    bind(&mut index, "", "all", "ClusterRole", "reader", ("ServiceAccount", "bot"));
    let (jane, dev) = (User::new("jane", []), User::new("dev", ["devs"]));
    assert!(may(&index, &jane, "get", "a"));
    assert!(!may(&index, &jane, "get", "b"));
    assert!(!may(&index, &jane, "get", ""), "a role in a namespace never reaches the cluster");
    assert!(may(&index, &dev, "create", "a"));
    assert!(!may(&index, &dev, "create", "b"));
    let bot = User::new("system:serviceaccount::bot", []);
    assert!(!may(&index, &bot, "get", "a"), "an account without a namespace is nobody");
    // A cluster binding to a namespace's role means nothing.
    bind(&mut index, "", "wrong", "Role", "writer", ("User", "jane"));
    assert!(!may(&index, &jane, "create", "a"));
}

#[test]
fn changes_take_effect_one_at_a_time() {
    let mut index = Index::default();
    let jane = User::new("jane", []);
    bind(&mut index, "", "early", "ClusterRole", "later", ("User", "jane"));
    let question = Attributes::question(&jane, "get", "", "pods", "");
    let verdict = index.authorize(&question);
    assert_eq!(verdict.reason(), "RBAC: clusterrole.rbac.authorization.k8s.io \"later\" not found");
    role(&mut index, "", "later", "get");
    let verdict = index.authorize(&question);
    assert_eq!(verdict.decision, Decision::Allow);
    assert_eq!(
        verdict.reason(),
        "RBAC: allowed by ClusterRoleBinding \"early\" of ClusterRole \"later\" to User \"jane\""
    );
    role(&mut index, "", "later", "list");
    assert!(!index.authorize(&question).allows());
    role(&mut index, "", "later", "get");
    index.set_binding("", "early", None);
    assert!(!index.authorize(&question).allows());
    bind(&mut index, "a", "local", "ClusterRole", "later", ("User", "jane"));
    index.set_role("", "later", None);
    let local = question.in_namespace("a");
    assert!(!index.authorize(&local).allows());
    role(&mut index, "", "later", "get");
    let reason = index.authorize(&local).reason().to_owned();
    assert_eq!(reason, "RBAC: allowed by RoleBinding \"local/a\" of ClusterRole \"later\" to User \"jane\"");
    index.forget_bindings(false);
    index.forget_roles(true);
    assert!(!index.authorize(&local).allows());
}

#[test]
fn ten_thousand_bindings_are_found_by_subject_and_namespace() {
    let mut index = Index::default();
    role(&mut index, "", "reader", "get");
    for number in 0..10_000 {
        bind(&mut index, &format!("n{number}"), "b", "ClusterRole", "reader", ("Group", "devs"));
    }
    let dev = User::new("dev", ["devs"]);
    assert!(may(&index, &dev, "get", "n9999"));
    assert!(!may(&index, &dev, "get", "elsewhere"));
    assert_eq!(index.rules(&dev, "n5").0.len(), 1);
}
