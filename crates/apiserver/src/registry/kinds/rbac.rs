//! Roles and bindings.

use machinery::names;
use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, value};

use super::super::strategy::{NameRule, Strategy};
use super::common::{At, Errors};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles, of a namespace or of the cluster.
pub struct Roles {
    /// Whether they belong to a namespace.
    pub namespaced: bool,
}

impl Strategy for Roles {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn validate(&self, role: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(role);
        for rule in root.at("rules").items() {
            policy_rule(&rule, self.namespaced, &mut errors);
        }
        let aggregation = root.at("aggregationRule");
        if !self.namespaced && aggregation.is_set() {
            let selectors = aggregation.at("clusterRoleSelectors");
            if selectors.is_empty() {
                errors.required(&selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil");
            }
            for selector in selectors.items() {
                errors.label_selector(&selector);
                if LabelSelector::from_value(selector.value()).is_err() {
                    errors.invalid_value(&selector, Value::Null, "invalid label selector.");
                }
            }
        }
        for rule in root.at("rules").items() {
            let verbs = rule.at("verbs");
            if verbs.is_empty() {
                errors.required(&verbs, "");
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

/// What verbs on what: resources, or paths that are none.
fn policy_rule(rule: &At<'_, '_>, namespaced: bool, errors: &mut Errors) {
    let paths = rule.at("nonResourceURLs");
    if !paths.is_empty() {
        if namespaced {
            errors.invalid(&paths, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.at(field).is_empty()) {
            errors.invalid(&paths, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.at("apiGroups").is_empty() {
        errors.required(&rule.at("apiGroups"), "resource rules must supply at least one api group");
    }
    if rule.at("resources").is_empty() {
        errors.required(&rule.at("resources"), "resource rules must supply at least one resource");
    }
}

/// Bindings, of a namespace or of the cluster.
pub struct Bindings {
    /// Whether they belong to a namespace.
    pub namespaced: bool,
}

impl Strategy for Bindings {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn default(&self, binding: &mut Value) {
        if value::text(binding, "roleRef.apiGroup").is_empty() {
            value::set(binding, "roleRef.apiGroup", GROUP);
        }
        for subject in value::list_mut(binding, "subjects") {
            if matches!(value::text(subject, "kind"), "User" | "Group") && value::text(subject, "apiGroup").is_empty() {
                value::set(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(binding);
        let role = root.at("roleRef");
        errors.one_of(&role.at("apiGroup"), &[GROUP]);
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        errors.one_of(&role.at("kind"), kinds);
        if !role.text_at("name").is_empty() {
            errors.problems(&role.at("name"), names::is_path_segment_name(role.text_at("name")));
        }
        let subjects = root.at("subjects");
        for subject in subjects.items() {
            validate_subject(&subject, self.namespaced, &mut errors);
        }
        // Upstream says last what the schema alone can say.
        errors.required_text(&role.at("name"));
        for subject in subjects.items() {
            errors.required_text(&subject.at("name"));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        errors.immutable(&new.at("roleRef"), &old.at("roleRef"));
        errors.into_vec()
    }
}

fn validate_subject(subject: &At<'_, '_>, namespaced: bool, errors: &mut Errors) {
    let (name, group) = (subject.at("name"), subject.at("apiGroup"));
    match subject.text_at("kind") {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                errors.problems(&name, names::name_is_dns_subdomain(name.text(), false));
            }
            if !group.text().is_empty() {
                errors.not_supported(&group, &[""]);
            }
            if !namespaced {
                errors.required_text(&subject.at("namespace"));
            }
        }
        "User" | "Group" => errors.one_of(&group, &[GROUP]),
        _ => errors.not_supported(&subject.at("kind"), &["ServiceAccount", "User", "Group"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_and_bindings_are_checked() {
        let shown = |errors: Vec<FieldError>| -> Vec<String> { errors.iter().map(ToString::to_string).collect() };
        assert_eq!(
            shown(
                Roles { namespaced: true }
                    .validate(&json!({"rules": [{"nonResourceURLs": ["/x"]}, {"verbs": ["get"]}]}))
            ),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[1].resources: Required value: resource rules must supply at least one resource",
                "rules[0].verbs: Required value",
            ]
        );
        let mut binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "Robot", "name": "x"}]});
        let bindings = Bindings { namespaced: false };
        bindings.default(&mut binding);
        assert_eq!(
            shown(bindings.validate(&binding)),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ]
        );
    }
}
