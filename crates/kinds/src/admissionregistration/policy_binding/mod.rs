//! Bindings of admission policies.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names};

use crate::admissionregistration::rules::{default_match, match_resources, mutating_operations};
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct PolicyBindings {
    /// Whether the policies change what they see.
    pub mutating: bool,
}

impl Strategy for PolicyBindings {
    fn flags(&self) -> Flags {
        Flags { judges_finalizers: false, allows_unconditional_update: false, counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, binding: &mut Value) {
        default_match(binding, "spec.matchResources");
    }

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(binding);
        let spec = root.at("spec");
        let policy = spec.at("policyName");
        if errors.required_text(&policy) {
            errors.problems(&policy, names::name_is_dns_subdomain(policy.text(), false));
        }
        if spec.has("paramRef") {
            param_ref(&spec.at("paramRef"), &mut errors);
        }
        let resources = spec.at("matchResources");
        if resources.is_set() {
            match_resources(&resources, &mut errors);
        }
        if self.mutating {
            mutating_operations(&resources.at("resourceRules"), &mut errors);
        } else {
            actions(&spec.at("validationActions"), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn param_ref(at: &At<'_, '_>, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (at.at("name"), at.at("selector"));
    if !name.text().is_empty() {
        errors.problems(&name, names::is_path_segment_name(name.text()));
        if selector.is_set() {
            errors.forbidden(&name, EXCLUSIVE);
        }
    }
    if selector.is_set() {
        errors.label_selector(&selector);
        if !name.text().is_empty() {
            errors.forbidden(&selector, EXCLUSIVE);
        }
    } else if name.text().is_empty() {
        errors.required(at, "one of name or selector must be specified");
    }
    errors.required_one_of(&at.at("parameterNotFoundAction"), &["Deny", "Allow"]);
}

fn actions(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, action) in list.items().enumerate() {
        errors.one_of(&action, &["Audit", "Deny", "Warn"]);
        if list.items().take(index).any(|known| known.value() == action.value()) {
            errors.duplicate(&action, action.text());
        }
    }
    let has = |wanted: &str| list.items().any(|action| action.text() == wanted);
    if has("Deny") && has("Warn") {
        errors.invalid(list, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
    if list.is_empty() {
        errors.required(list, "");
    }
}
