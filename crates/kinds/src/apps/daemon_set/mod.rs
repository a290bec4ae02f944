//! DaemonSets.

pub mod columns;

use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::workloads::{
    TEMPLATE, TEMPLATE_SPEC, always_restarts, amount, collisions, immutable, not_above_all, not_supported,
    number_or_percent, template_warnings,
};
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::{defaults, spec as pod_spec};
use crate::strategy::{Flags, Strategy};

pub struct DaemonSets;

impl Strategy for DaemonSets {
    /// The count of templates is a part of what is wanted, though upstream keeps it in an annotation.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        set_template_generation(new, template_generation(old));
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        // Whoever writes one without the count is on record as its author, since every read has it.
        if template_generation(object) == 0 {
            set_template_generation(object, 0);
        }
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.updateStrategy.type", "RollingUpdate");
        if value::text(object, "spec.updateStrategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        // Upstream still counts the templates it has seen, in an annotation.
        set_template_generation(object, 1);
        let status = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0});
        value::set(object, "status", status);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
        let before = template_generation(old);
        let changed = value::at(new, TEMPLATE) != value::at(old, TEMPLATE);
        if before != 0 || changed {
            set_template_generation(new, before + i64::from(changed));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        let chosen = spec.at("selector");
        let template = spec.at("template");
        errors.label_selector(&chosen);
        let selector = LabelSelector::from_value(chosen.value());
        if selector.is_ok_and(|selector| !selector.matches_labels(template.at("metadata.labels").value())) {
            errors.invalid(&template.at("metadata.labels"), "`selector` does not match template `labels`");
        }
        if chosen.is_set() && chosen.at("matchLabels").is_empty() && chosen.at("matchExpressions").is_empty() {
            errors.invalid(&chosen, "empty selector is invalid for daemonset");
        }
        pod_spec::validate_template(&template, &mut errors);
        always_restarts(&template, "DaemonSet", &mut errors);
        errors.not_negative(&spec.at("minReadySeconds"));
        daemon_strategy(&spec.at("updateStrategy"), &mut errors);
        errors.not_negative(&spec.at("revisionHistoryLimit"));
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = immutable(new, old, "spec.selector").into_iter().collect();
        errors.extend(self.validate(new));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
        collisions(&status, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    let annotation =
        value::at(object, "metadata.annotations").and_then(|annotations| annotations.get(TEMPLATE_GENERATION));
    annotation.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = value::object_mut(object, "metadata").entry("annotations").or_insert(Value::Null);
    value::as_object_mut(annotations).insert(TEMPLATE_GENERATION.to_owned(), json!(generation.to_string()));
}

fn daemon_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let rolling = at.at("rollingUpdate");
    match at.text_at("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errors.required(&rolling, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for bound in [&unavailable, &surge] {
                number_or_percent(bound, errors);
            }
            for bound in [&unavailable, &surge] {
                not_above_all(bound, errors);
            }
            match (amount(&unavailable) != 0, amount(&surge) != 0) {
                (true, true) => errors.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
                (false, false) => errors.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.push(not_supported(at, &["RollingUpdate", "OnDelete"])),
    }
}
