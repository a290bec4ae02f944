//! The index against tables of bindings, and against the bootstrap roles.

use facts::rbac::{Binding, Role, Rule};
use machinery::rest::User;
use machinery::value;
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

/// What a rule of the facts says about a request, read as the documentation of RBAC reads and no faster than that.
fn grants(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    let any = |list: &[&str], wanted: &str| list.iter().any(|item| *item == "*" || *item == wanted);
    let resource = match attributes.subresource {
        "" => attributes.resource.to_owned(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let below = format!("*/{}", attributes.subresource);
    !rule.gated
        && any(&rule.verbs, attributes.verb)
        && any(&rule.groups, attributes.group)
        && (any(&rule.resources, &resource)
            || (!attributes.subresource.is_empty() && rule.resources.contains(&below.as_str())))
        && (rule.names.is_empty() || rule.names.contains(&attributes.name))
}

/// The bindings of a user, with their roles.
fn bound<'a>(user: &User) -> Vec<(&'a Binding, &'a Role)> {
    let facts = facts::rbac();
    let is = |subject: &facts::rbac::Subject| match subject.kind {
        "User" => subject.name == user.name,
        "Group" => user.groups.iter().any(|group| group == subject.name),
        _ => user.name == format!("system:serviceaccount:{}:{}", subject.namespace.unwrap_or_default(), subject.name),
    };
    let role = |binding: &Binding| {
        let namespace = if binding.role_kind == "Role" { binding.namespace } else { None };
        facts.roles.iter().find(|role| role.name == binding.role && role.namespace == namespace)
    };
    let bindings = facts.bindings.iter().filter(|binding| binding.subjects.iter().any(is));
    bindings.filter_map(|binding| Some((binding, role(binding)?))).collect()
}

/// Every identity that the bootstrap bindings name.
fn identities() -> Vec<User> {
    let mut identities = vec![User::new("jane", [])];
    for subject in facts::rbac().bindings.iter().flat_map(|binding| &binding.subjects) {
        let user = match subject.kind {
            "User" => User::new(subject.name, []),
            "Group" => User { name: "member".to_owned(), groups: vec![subject.name.to_owned()], ..User::default() },
            _ => {
                let namespace = subject.namespace.unwrap_or_default();
                let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
                User::new(
                    format!("system:serviceaccount:{namespace}:{}", subject.name),
                    groups.iter().map(String::as_str),
                )
            }
        };
        if !identities.contains(&user) {
            identities.push(user);
        }
    }
    identities
}

#[test]
fn decisions_are_what_the_bootstrap_roles_say() {
    const VERBS: [&str; 10] =
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "escalate"];
    let mut index = Index::default();
    for (plural, object) in super::bootstrap::objects() {
        let (namespace, name) = (value::text(&object, "metadata.namespace"), value::text(&object, "metadata.name"));
        match plural {
            "roles" | "clusterroles" => index.set_role(namespace, name, Some(&object)),
            _ => index.set_binding(namespace, name, Some(&object)),
        }
    }
    // Every resource and subresource that there is, and the names that some rule is about.
    let mut resources: Vec<(&str, &str, &str)> = Vec::new();
    for facts in facts::groups().iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources) {
        resources.push((&facts.group, &facts.plural, ""));
        resources.extend(facts.subresources.iter().map(|below| (&*facts.group, &*facts.plural, &*below.name)));
    }
    resources.sort_unstable();
    resources.dedup();
    let mut names: Vec<&str> =
        facts::rbac().roles.iter().flat_map(|role| &role.rules).flat_map(|rule| rule.names.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(8);
    names.extend(["", "other"]);
    let (mut allowed, mut refused) = (0, 0);
    for user in identities() {
        let bound = bound(&user);
        for (number, (group, resource, subresource)) in resources.iter().enumerate() {
            for (turn, verb) in VERBS.iter().enumerate() {
                for namespace in ["", "default", "kube-system", "kube-public"] {
                    // All names in turn: each meets each resource and verb with some identity.
                    let name = names[(number + turn) % names.len()];
                    let attributes = Attributes::question(&user, verb, group, resource, name)
                        .of_subresource(subresource)
                        .in_namespace(namespace);
                    let expect = bound.iter().any(|(binding, role)| {
                        let reaches = binding.namespace.is_none_or(|of| of == namespace);
                        reaches && role.rules.iter().any(|rule| grants(rule, &attributes))
                    });
                    assert_eq!(index.authorize(&attributes).allows(), expect, "{attributes:?}");
                    if expect {
                        allowed += 1;
                    } else {
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(allowed > 10_000 && refused > 10_000, "{allowed} and {refused}");
}
