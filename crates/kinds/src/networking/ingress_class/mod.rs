//! IngressClasses.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::rare_names::{domain_prefixed_path, typed_reference};
use crate::checks::{At, Errors, IMMUTABLE};
use crate::networking::references::group;
use crate::strategy::{Flags, Strategy};

pub struct IngressClasses;

impl Strategy for IngressClasses {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, class: &mut Value) {
        if value::at(class, "spec.parameters").is_some_and(Value::is_object) {
            value::set_default(class, "spec.parameters.scope", "Cluster");
        }
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        const MOST: usize = 250;
        let mut errors = Errors::new();
        let root = At::root(class);
        let controller = root.at("spec.controller");
        if controller.text().len() > MOST {
            errors.too_long(&controller, MOST);
        }
        domain_prefixed_path(&controller, &mut errors);
        let parameters = root.at("spec.parameters");
        if parameters.is_set() {
            group(&parameters.at("apiGroup"), &mut errors);
            typed_reference(&parameters, "kind", &mut errors);
            let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
            match scope.text() {
                "Namespace" if !namespace.is_set() => {
                    errors.required(&namespace, "`parameters.scope` is set to 'Namespace'")
                }
                "Namespace" => errors.problems(&namespace, names::name_is_dns_label(namespace.text(), false)),
                "Cluster" => errors.forbidden_if_set(&namespace, "`parameters.scope` is set to 'Cluster'"),
                _ if !scope.is_set() => errors.required(&scope, ""),
                _ => errors.not_supported(&scope, &["Cluster", "Namespace"]),
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let controller = fresh.at("spec.controller");
        if controller.text() != stale.at("spec.controller").text() {
            errors.invalid_text(&controller, IMMUTABLE);
        }
        errors.extend(self.validate(new));
        errors.into_vec()
    }
}
