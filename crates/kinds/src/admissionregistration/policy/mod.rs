//! MutatingAdmissionPolicies and ValidatingAdmissionPolicies.

pub mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::admissionregistration::rules::{default_match, match_conditions, match_resources, mutating_operations};
use crate::checks::conditions::conditions;
use crate::checks::{At, Errors, expressions};
use crate::keep::keep_object_meta;
use crate::strategy::{Flags, Strategy};

pub struct Policies {
    /// Whether they change what they see.
    pub mutating: bool,
}

impl Strategy for Policies {
    fn flags(&self) -> Flags {
        Flags {
            status_resets_metadata: !self.mutating,
            judges_finalizers: false,
            allows_unconditional_update: false,
            counts_generations: true,
            ..Flags::USUAL
        }
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        for warning in root.at("status.typeChecking.expressionWarnings").items() {
            errors.required_text(&warning.at("warning"));
            errors.required_text(&warning.at("fieldRef"));
        }
        conditions(&root.at("status.conditions"), &mut errors);
        errors.into_vec()
    }

    fn default(&self, policy: &mut Value) {
        value::set_default(policy, "spec.failurePolicy", "Fail");
        default_match(policy, "spec.matchConstraints");
    }

    fn prepare_for_create(&self, policy: &mut Value) {
        if !self.mutating {
            value::set(policy, "status", json!({}));
        }
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(policy);
        let spec = root.at("spec");
        let failure = spec.at("failurePolicy");
        match failure.is_set() {
            true => errors.one_of(&failure, &["Fail", "Ignore"]),
            false => errors.required(&failure, ""),
        }
        if spec.has("paramKind") {
            param_kind(&spec.at("paramKind"), &mut errors);
        }
        let constraints = spec.at("matchConstraints");
        if constraints.is_set() {
            match_resources(&constraints, &mut errors);
            let rules = constraints.at("resourceRules");
            if rules.is_empty() {
                errors.required(&rules, "");
            }
            if self.mutating {
                mutating_operations(&rules, &mut errors);
            }
        } else {
            errors.required(&constraints, "");
        }
        match_conditions(&spec.at("matchConditions"), |_, _| {}, &mut errors);
        for variable in spec.at("variables").items() {
            let name = variable.at("name");
            if name.text().trim().is_empty() {
                errors.required(&name, "name is not specified");
            } else if !is_identifier(name.text()) {
                errors.invalid(&name, "must be a valid CEL identifier");
            }
            if variable.text_at("expression").trim().is_empty() {
                errors.required(&variable.at("expression"), "expression is not specified");
            }
        }
        if self.mutating {
            mutations(&spec, &mut errors);
        } else {
            validations(&root, &spec, &mut errors);
        }
        expressions::policy(policy, &spec, self.mutating, &mut errors);
        if self.mutating {
            errors.required_one_of(&spec.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !cel::is_reserved(name)
}

fn param_kind(at: &At<'_, '_>, errors: &mut Errors) {
    let (version, kind) = (at.at("apiVersion"), at.at("kind"));
    if errors.required_text(&version) {
        let (group, name) = version.text().rsplit_once('/').unwrap_or(("", version.text()));
        if group.contains('/') {
            errors.invalid(&version, format!("unexpected GroupVersion string: {}", version.text()));
        } else {
            let problems = names::is_dns1123_subdomain(group);
            if !group.is_empty() && !problems.is_empty() {
                errors.invalid_value(&version, group, problems.join(","));
            }
            let problems = names::is_dns1035_label(name);
            if name.is_empty() {
                errors.invalid(&version, "version must be specified");
            } else if !problems.is_empty() {
                errors.invalid_value(&version, name, problems.join(","));
            }
        }
    }
    if errors.required_text(&kind) {
        let problems = names::is_dns1035_label(&kind.text().to_lowercase());
        if !problems.is_empty() {
            errors.invalid(&kind, format!("may have mixed case, but should otherwise match: {}", problems.join(",")));
        }
    }
}

fn mutations(spec: &At<'_, '_>, errors: &mut Errors) {
    let list = spec.at("mutations");
    if list.is_empty() {
        errors.required(&list, "mutations must contain at least one item");
    }
    for mutation in list.items() {
        let (kind, patch, apply) =
            (mutation.at("patchType"), mutation.at("jsonPatch"), mutation.at("applyConfiguration"));
        let (own, other, shown) = match kind.text() {
            "JSONPatch" => (&patch, &apply, "{applyConfiguration}"),
            "ApplyConfiguration" => (&apply, &patch, "{jsonPatch}"),
            _ => {
                errors.required_one_of(&kind, &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        if !own.is_set() {
            errors.required(own, format!("must be specified when patchType is {}", kind.text()));
        } else if own.text_at("expression").trim().is_empty() {
            errors.required(&own.at("expression"), "");
        }
        if other.is_set() {
            errors.invalid_value(other, shown, format!("must not be specified when patchType is {}", kind.text()));
        }
    }
}

fn validations(policy: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    const MOST_ANNOTATIONS: usize = 20;
    const MOST_EXPRESSION: usize = 5 * 1024;
    const NEEDED: &str = "validations or auditAnnotations must contain at least one item";
    let (list, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if list.is_empty() && annotations.is_empty() {
        errors.required(&list, NEEDED);
        return errors.required(&annotations, NEEDED);
    }
    for validation in list.items() {
        if validation.text_at("expression").trim().is_empty() {
            errors.required(&validation.at("expression"), "expression is not specified");
        }
        let (message, expression) = (validation.at("message"), validation.at("messageExpression"));
        if !expression.text().is_empty() && expression.text().trim().is_empty() {
            errors.invalid(&expression, "must be non-empty if specified");
        }
        if !message.text().is_empty() && message.text().trim().is_empty() {
            errors.invalid(&message, "must be non-empty if specified");
        } else if message.text().trim().contains(['\n', '\r']) {
            errors.invalid(&message, "must not contain line breaks");
        }
        errors.one_of_if_set(&validation.at("reason"), &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
    if annotations.len() > MOST_ANNOTATIONS {
        errors.invalid(&annotations, format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations"));
    }
    let name = policy.text_at("metadata.name");
    let mut seen: HashSet<&str> = HashSet::new();
    for annotation in annotations.items() {
        let key = annotation.at("key");
        for problem in names::is_qualified_name(&format!("{name}/{}", key.text())) {
            errors.invalid_value(&key, format!("{name}/{}", key.text()), problem);
        }
        let expression = annotation.at("valueExpression");
        let trimmed = expression.text().trim();
        if trimmed.is_empty() {
            errors.required(&expression, "valueExpression is not specified");
        } else if trimmed.len() > MOST_EXPRESSION {
            errors.required(&expression, format!("must not exceed {MOST_EXPRESSION} bytes in length"));
        }
        if seen.contains(&key.text()) {
            errors.duplicate(&key, key.text());
        }
        seen.insert(key.text());
    }
}
