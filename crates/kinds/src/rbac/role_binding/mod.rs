//! RoleBindings and ClusterRoleBindings.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::strategy::{Flags, NameRule, Strategy};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Bindings, of a namespace or of the cluster.
pub struct Bindings {
    /// Whether they belong to a namespace.
    pub namespaced: bool,
}

impl Strategy for Bindings {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn flags(&self) -> Flags {
        Flags { creates_on_update: true, ..Flags::USUAL }
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
