//! ReplicationControllers.

pub mod columns;

use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::workloads::{TEMPLATE, TEMPLATE_SPEC, always_restarts, replica_status, template_warnings};
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::{defaults, spec as pod_spec};
use crate::strategy::{Flags, Strategy};

pub struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::count("status.replicas")] }
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, orphans_by_default: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        if value::at(object, "spec.template").is_some_and(Value::is_object) {
            defaults::default(object, TEMPLATE_SPEC);
        }
        value::set_default(object, "spec.replicas", 1);
        if let Some(labels) = value::at(object, "spec.template.metadata.labels").cloned() {
            let is_empty =
                |path: &str| value::at(object, path).and_then(Value::as_object).is_none_or(|map| map.is_empty());
            let (selects, labelled) = (!is_empty("spec.selector"), !is_empty("metadata.labels"));
            if !selects {
                value::set(object, "spec.selector", labels.clone());
            }
            if !labelled {
                value::set(object, "metadata.labels", labels);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("minReadySeconds"));
        let chosen = spec.at("selector");
        if chosen.is_empty() {
            errors.required(&chosen, "");
        }
        let replicas = spec.at("replicas");
        if replicas.is_set() {
            errors.not_negative(&replicas);
        } else {
            errors.required(&replicas, "");
        }
        let template = spec.at("template");
        if !template.is_set() {
            errors.required(&template, "");
            return errors.into_vec();
        }
        let labels = template.at("metadata.labels");
        if chosen.entries().any(|(key, wanted)| labels.key(key).value() != wanted.value()) {
            errors.invalid(&labels, "`selector` does not match template `labels`");
        }
        pod_spec::validate_template(&template, &mut errors);
        always_restarts(&template, "ReplicationController", &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        replica_status(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        // Of a change upstream takes the one before for the new one.
        let (new, old) = old.map_or((new, None), |old| (old, Some(new)));
        let chosen = value::at(new, TEMPLATE).is_some();
        if chosen { template_warnings(new, old, TEMPLATE) } else { Vec::new() }
    }
}
