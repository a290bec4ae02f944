//! The roles and bindings that every cluster has, as objects.

use machinery::Value;
use serde_json::json;

use super::GROUP;

/// The bootstrap roles and bindings, each with the plural of its kind.
pub fn objects() -> Vec<(&'static str, Value)> {
    let api_version = format!("{GROUP}/v1");
    let metadata = |name: &str, namespace: Option<&str>, labels: &[(&str, &str)]| {
        let (label, annotation) = (facts::rbac::BOOTSTRAPPING, facts::rbac::AUTOUPDATE);
        let mut metadata =
            json!({"name": name, "labels": {label.0: label.1}, "annotations": {annotation.0: annotation.1}});
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        for (key, value) in labels {
            metadata["labels"][*key] = json!(value);
        }
        metadata
    };
    let roles = facts::rbac().roles.iter().map(|role| {
        let rules: Vec<Value> = role.rules.iter().filter(|rule| !rule.gated).map(rule).collect();
        let kind = if role.namespace.is_some() { "Role" } else { "ClusterRole" };
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata(role.name, role.namespace, &role.labels),
            "rules": rules,
        });
        if !role.aggregates.is_empty() {
            let selectors: Vec<Value> =
                role.aggregates.iter().map(|(key, value)| json!({"matchLabels": {*key: value}})).collect();
            object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            // Its rules are the aggregation controller's.
            object.as_object_mut().expect("just made").remove("rules");
        }
        let plural = if role.namespace.is_some() { "roles" } else { "clusterroles" };
        (plural, object)
    });
    let bindings = facts::rbac().bindings.iter().map(|binding| {
        let subjects: Vec<Value> = binding
            .subjects
            .iter()
            .map(|subject| match subject.namespace {
                Some(namespace) => json!({"kind": subject.kind, "name": subject.name, "namespace": namespace}),
                None => json!({"kind": subject.kind, "name": subject.name, "apiGroup": GROUP}),
            })
            .collect();
        let (kind, plural) = match binding.namespace {
            Some(_) => ("RoleBinding", "rolebindings"),
            None => ("ClusterRoleBinding", "clusterrolebindings"),
        };
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata(binding.name, binding.namespace, &[]),
            "roleRef": {"apiGroup": GROUP, "kind": binding.role_kind, "name": binding.role}, "subjects": subjects,
        });
        (plural, object)
    });
    roles.chain(bindings).collect()
}

fn rule(rule: &facts::rbac::Rule) -> Value {
    let mut tree = json!({"verbs": rule.verbs});
    for (key, list) in [
        ("apiGroups", &rule.groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
        ("nonResourceURLs", &rule.urls),
    ] {
        if !list.is_empty() {
            tree[key] = json!(list);
        }
    }
    tree
}
