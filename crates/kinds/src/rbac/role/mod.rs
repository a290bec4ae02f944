//! Roles and ClusterRoles.

use machinery::Value;
use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;

use crate::checks::{At, Errors};
use crate::strategy::{Flags, NameRule, Strategy};

/// Roles, of a namespace or of the cluster.
pub struct Roles {
    /// Whether they belong to a namespace.
    pub namespaced: bool,
}

impl Strategy for Roles {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn flags(&self) -> Flags {
        Flags { creates_on_update: true, ..Flags::USUAL }
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
