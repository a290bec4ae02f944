//! The bootstrap roles and bindings.

fn role(name: &str) -> &'static facts::rbac::Role {
    facts::rbac().roles.iter().find(|role| role.name == name).unwrap_or_else(|| panic!("{name} is a bootstrap role"))
}

#[test]
fn cluster_admin_may_do_everything() {
    let [resources, urls] = &*role("cluster-admin").rules else { panic!("two rules") };
    assert_eq!((&*resources.verbs, &*resources.groups, &*resources.resources), (&["*"][..], &["*"][..], &["*"][..]));
    assert_eq!((&*urls.verbs, &*urls.urls), (&["*"][..], &["*"][..]));
    let binding = facts::rbac().bindings.iter().find(|binding| binding.name == "cluster-admin").expect("is bound");
    assert_eq!((binding.role_kind, binding.role, binding.namespace), ("ClusterRole", "cluster-admin", None));
    assert_eq!((binding.subjects[0].kind, binding.subjects[0].name), ("Group", "system:masters"));
}

#[test]
fn user_facing_roles_aggregate_by_label() {
    let admin = role("admin");
    assert!(admin.rules.is_empty());
    assert_eq!(&*admin.aggregates, &[("rbac.authorization.k8s.io/aggregate-to-admin", "true")][..]);
    assert_eq!(&*role("edit").labels, &[("rbac.authorization.k8s.io/aggregate-to-admin", "true")][..]);
}

#[test]
fn rules_of_features_that_are_off_are_marked() {
    let gated: usize = facts::rbac().roles.iter().map(|role| role.rules.iter().filter(|rule| rule.gated).count()).sum();
    assert!(gated > 5, "{gated}");
    let edit = role("system:aggregate-to-edit");
    assert!(edit.rules.iter().any(|rule| rule.gated && rule.groups[..] == ["lifecycle.k8s.io"]));
    assert!(!edit.rules[0].gated);
}

#[test]
fn every_binding_has_its_role() {
    let rbac = facts::rbac();
    assert_eq!((rbac.roles.len(), rbac.bindings.len()), (80, 61));
    for binding in &rbac.bindings {
        let namespace = if binding.role_kind == "Role" { binding.namespace } else { None };
        let found = rbac.roles.iter().any(|role| role.name == binding.role && role.namespace == namespace);
        assert!(found, "{} binds no role", binding.name);
        // Nodes are authorized by their own authorizer; the binding is kept empty on purpose.
        assert!(!binding.subjects.is_empty() || binding.name == "system:node", "{}", binding.name);
    }
}
