//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

pub mod columns;

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::admissionregistration::client::{client_config, review_versions};
use crate::admissionregistration::rules::{match_conditions, validate_rule};
use crate::checks::{At, Errors, expressions};
use crate::strategy::{Flags, Strategy};

pub struct Webhooks {
    /// Whether they may change what they see.
    pub mutating: bool,
}

impl Strategy for Webhooks {
    fn flags(&self) -> Flags {
        Flags { judges_finalizers: false, allows_unconditional_update: false, counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, configuration: &mut Value) {
        for webhook in value::list_mut(configuration, "webhooks") {
            value::set_default(webhook, "failurePolicy", "Fail");
            value::set_default(webhook, "matchPolicy", "Equivalent");
            value::set_default(webhook, "namespaceSelector", json!({}));
            value::set_default(webhook, "objectSelector", json!({}));
            value::set_default(webhook, "timeoutSeconds", 10);
            if self.mutating {
                value::set_default(webhook, "reinvocationPolicy", "Never");
            }
            for rule in value::list_mut(webhook, "rules") {
                value::set_default(rule, "scope", "*");
            }
            if value::at(webhook, "clientConfig.service").is_some_and(Value::is_object) {
                value::set_default(webhook, "clientConfig.service.port", 443);
            }
        }
    }

    fn validate(&self, configuration: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(configuration);
        let mut seen: HashSet<&str> = HashSet::new();
        for webhook in root.at("webhooks").items() {
            self.validate_webhook(&webhook, &mut errors);
            review_versions(&webhook.at("admissionReviewVersions"), "must specify one of v1, v1beta1", &mut errors);
            let name = webhook.at("name");
            if !name.text().is_empty() && seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

impl Webhooks {
    fn validate_webhook(&self, webhook: &At<'_, '_>, errors: &mut Errors) {
        qualified_name(&webhook.at("name"), errors);
        for rule in webhook.at("rules").items() {
            validate_rule(&rule, errors);
        }
        errors.one_of_if_set(&webhook.at("failurePolicy"), &["Fail", "Ignore"]);
        errors.one_of_if_set(&webhook.at("matchPolicy"), &["Equivalent", "Exact"]);
        let effects = webhook.at("sideEffects");
        if effects.is_set() {
            errors.one_of(&effects, &["None", "NoneOnDryRun"]);
        } else {
            errors.required(&effects, "must specify one of None, NoneOnDryRun");
        }
        let timeout = webhook.at("timeoutSeconds");
        if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
        }
        errors.label_selector(&webhook.at("namespaceSelector"));
        errors.label_selector(&webhook.at("objectSelector"));
        if self.mutating {
            errors.one_of_if_set(&webhook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
        }
        client_config(&webhook.at("clientConfig"), errors);
        match_conditions(&webhook.at("matchConditions"), expressions::condition, errors);
    }
}

/// A domain name with at least three parts.
fn qualified_name(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    let problems = names::is_dns1123_subdomain(at.text());
    if !problems.is_empty() {
        errors.invalid(at, problems.join(","));
    } else if at.text().split('.').count() < 3 {
        errors.invalid(at, "should be a domain with at least three segments separated by dots");
    }
}
