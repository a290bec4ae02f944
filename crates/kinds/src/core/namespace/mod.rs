//! Namespaces: held back by finalizers of their own until what is in them is gone.

pub mod columns;

use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::keep::keep;
use crate::strategy::{Action, Flags, NameRule, Strategy, Subresource};

/// The finalizer of the namespace controller.
const KUBERNETES: &str = "kubernetes";

pub struct Namespaces;

impl Strategy for Namespaces {
    fn flags(&self) -> Flags {
        Flags { is_namespace: true, ..Flags::USUAL }
    }

    fn subresource(&self, name: &str) -> Option<Subresource> {
        match name {
            "finalize" => Some(Subresource::Action(Action::Finalize)),
            "status" => Some(Subresource::Part),
            _ => None,
        }
    }

    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("status.phase")] }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn default(&self, namespace: &mut Value) {
        let name = value::text(namespace, "metadata.name").to_owned();
        if !name.is_empty() {
            let metadata = value::object_mut(namespace, "metadata");
            let labels = metadata.entry("labels").or_insert(Value::Null);
            value::as_object_mut(labels).insert("kubernetes.io/metadata.name".to_owned(), json!(name));
        }
        if value::text(namespace, "status.phase").is_empty() {
            value::set(namespace, "status.phase", "Active");
        }
    }

    fn prepare_for_create(&self, namespace: &mut Value) {
        value::set(namespace, "status", json!({"phase": "Active"}));
        let finalizers = value::list(namespace, "spec.finalizers");
        if !finalizers.iter().any(|finalizer| finalizer == KUBERNETES) {
            let mut finalizers = finalizers.to_vec();
            finalizers.push(json!(KUBERNETES));
            value::set(namespace, "spec.finalizers", finalizers);
        }
        // A generated name is known only now.
        self.default(namespace);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "spec.finalizers");
        keep(new, old, "status");
    }

    fn validate(&self, namespace: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(namespace);
        let list = root.at("spec.finalizers");
        for finalizer in list.items() {
            for problem in names::is_qualified_name(finalizer.text()) {
                errors.invalid_value(&list, finalizer.text(), problem);
            }
            if !finalizer.text().contains('/')
                && !matches!(finalizer.text(), KUBERNETES | "orphan" | "foregroundDeletion")
            {
                let detail = "name is neither a standard finalizer name nor is it fully qualified";
                errors.invalid_value(&list, finalizer.text(), detail);
            }
        }
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let deleting = value::at(new, "metadata.deletionTimestamp").is_some_and(|time| !time.is_null());
        let (wanted, detail) = if deleting {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        let phase = value::text(new, "status.phase");
        (phase != wanted).then(|| FieldError::invalid("status.Phase", phase, detail)).into_iter().collect()
    }

    fn holds(&self, namespace: &Value) -> bool {
        !value::list(namespace, "spec.finalizers").is_empty()
    }

    fn prepare_for_deletion(&self, namespace: &mut Value) {
        value::set(namespace, "status.phase", "Terminating");
        value::remove(namespace, "metadata.deletionGracePeriodSeconds");
    }
}
