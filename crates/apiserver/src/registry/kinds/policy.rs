//! Small kinds about what runs and how: disruption budgets, priority classes, runtime classes, leases.

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, objectmeta, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::apps::{not_above_all, number_or_percent};
use super::common::{At, Errors};
use super::pod::{resources, scheduling, warnings};

/// PodDisruptionBudgets.
pub struct DisruptionBudgets;

impl Strategy for DisruptionBudgets {
    fn counts_generations(&self) -> bool {
        true
    }

    /// A budget must be written by somebody who has seen the one before.
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn prepare_for_create(&self, budget: &mut Value) {
        let status = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        value::set(budget, "status", status);
    }

    fn validate(&self, budget: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(budget);
        let spec = root.at("spec");
        let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
        if least.is_set() && most.is_set() {
            errors.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
        }
        for bound in [least, most] {
            if bound.is_set() {
                number_or_percent(&bound, &mut errors);
                not_above_all(&bound, &mut errors);
            }
        }
        errors.label_selector(&spec.at("selector"));
        errors.one_of_if_set(&spec.at("unhealthyPodEvictionPolicy"), &["AlwaysAllow", "IfHealthyBudget"]);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        conditions(&status.at("conditions"), &mut errors);
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            errors.not_negative(&status.at(field));
        }
        errors.into_vec()
    }
}

/// `metav1.Condition`s, each type once.
pub fn conditions(list: &At<'_, '_>, errors: &mut Errors) {
    let mut found = Vec::new();
    let conditions = list.value().as_array().map_or(&[][..], Vec::as_slice);
    objectmeta::validate_conditions(conditions, &list.to_string(), &mut found);
    errors.extend(found);
}

/// PriorityClasses.
pub struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn counts_generations(&self) -> bool {
        true
    }

    /// What may change in a class is nothing that anybody has to catch up with.
    fn wish_changed(&self, _new: &Value, _old: &Value) -> bool {
        false
    }

    fn default(&self, class: &mut Value) {
        value::set_default(class, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        const HIGHEST: i64 = 1_000_000_000;
        let mut errors = Errors::new();
        let root = At::root(class);
        let (name, priority) = (root.at("metadata.name"), root.at("value").int().unwrap_or(0));
        if name.text().starts_with("system-") {
            let known = match name.text() {
                "system-node-critical" => Some(2_000_001_000),
                "system-cluster-critical" => Some(2_000_000_000),
                _ => None,
            };
            let why = match known {
                None => Some(format!("{} is not a known system priority class", name.text())),
                Some(wanted) if wanted != priority => {
                    Some(format!("value of {} PriorityClass must be {wanted}", name.text()))
                }
                Some(_) if root.at("globalDefault").flag() => {
                    Some(format!("globalDefault of {} PriorityClass must be false", name.text()))
                }
                Some(_) => None,
            };
            if let Some(why) = why {
                errors.forbidden(
                    &name,
                    format!(
                        "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                    ),
                );
            }
        } else if priority > HIGHEST {
            errors
                .forbidden(&root.at("value"), format!("maximum allowed value of a user defined priority is {HIGHEST}"));
        }
        let policy = root.at("preemptionPolicy");
        if policy.is_set() {
            errors.required_one_of(&policy, &["PreemptLowerPriority", "Never"]);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        if new.at("value").int().unwrap_or(0) != old.at("value").int().unwrap_or(0) {
            errors.forbidden(&new.at("value"), "may not be changed in an update.");
        }
        errors.immutable(&new.at("preemptionPolicy"), &old.at("preemptionPolicy"));
        errors.into_vec()
    }
}

/// What the schema says of a length, where the checks written by hand count characters.
pub fn in_bytes(problem: &str) -> String {
    match problem.strip_prefix("must be no more than ").and_then(|rest| rest.strip_suffix(" characters")) {
        Some(most) => format!("must be no more than {most} bytes"),
        None => problem.to_owned(),
    }
}

/// RuntimeClasses.
pub struct RuntimeClasses;

impl Strategy for RuntimeClasses {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        let handler = root.at("handler");
        if errors.required_text(&handler) {
            for problem in names::name_is_dns_label(handler.text(), false) {
                errors.invalid(&handler, in_bytes(&problem));
            }
        }
        if root.has("overhead") {
            resources::overhead(&root.named("overhead", "overhead.podFixed"), &mut errors);
        }
        let scheduling = root.at("scheduling");
        errors.labels(&scheduling.at("nodeSelector"));
        let tolerations = scheduling.at("tolerations");
        scheduling::tolerations(&tolerations, &mut errors);
        let key = |toleration: &At<'_, '_>| {
            ["key", "operator", "value", "effect"].map(|field| toleration.text_at(field).to_owned())
        };
        for (index, toleration) in tolerations.items().enumerate() {
            if tolerations.items().take(index).any(|known| key(&known) == key(&toleration)) {
                errors.duplicate(&toleration, toleration.value().clone());
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        errors.immutable_unshown(&new.at("handler"), &old.at("handler"));
        errors.into_vec()
    }

    fn warnings(&self, class: &Value, _old: Option<&Value>) -> Vec<String> {
        let selector = value::at(class, "scheduling.nodeSelector").and_then(Value::as_object).into_iter().flatten();
        let messages = selector.filter_map(|(key, _)| warnings::deprecated_label(key));
        messages.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
    }
}

/// Leases.
pub struct Leases;

impl Strategy for Leases {
    /// Who should hold a lease is coordinated behind a gate that is off.
    fn prepare_for_create(&self, new: &mut Value) {
        value::remove(new, "spec.strategy");
        value::remove(new, "spec.preferredHolder");
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        self.prepare_for_create(new);
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, lease: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(lease);
        let spec = root.at("spec");
        let duration = spec.at("leaseDurationSeconds");
        if duration.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&duration, "must be greater than 0");
        }
        errors.not_negative(&spec.at("leaseTransitions"));
        let strategy = spec.at("strategy");
        if strategy.is_set() {
            let place = strategy.to_string();
            lease_strategy(&At::part(&place, spec.value()), &mut errors);
        }
        if !spec.text_at("preferredHolder").is_empty() && strategy.text().is_empty() {
            errors.forbidden(&spec.at("preferredHolder"), "may only be specified if `strategy` is defined");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

/// Upstream names the strategy within itself.
pub fn lease_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let strategy = at.at("strategy");
    if !strategy.text().contains('/') {
        errors.one_of(&strategy, &["OldestEmulationVersion"]);
    } else {
        errors.label_name(&strategy);
    }
}
