//! APIServices: which server answers for a version of a group.

pub mod columns;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::strategy::{Flags, NameRule, Strategy};

pub struct ApiServices;

impl Strategy for ApiServices {
    fn flags(&self) -> Flags {
        Flags {
            status_resets_metadata: true,
            judges_finalizers: false,
            says_once: false,
            allows_unconditional_update: false,
            ..Flags::USUAL
        }
    }

    /// That of the core group ends with a dot.
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        if value::at(object, "spec.service").is_some_and(Value::is_object) {
            value::set_default(object, "spec.service.port", 443);
        }
    }

    /// A group version that this server answers for itself is available from the beginning.
    fn prepare_for_create(&self, object: &mut Value) {
        let local = value::at(object, "spec.service").is_none_or(Value::is_null);
        let available = json!({"conditions": [{"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available",
            "lastTransitionTime": value::text(object, "metadata.creationTimestamp")}]});
        value::set(object, "status", if local { available } else { json!({}) });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        let (name, group, version) = (root.at("metadata.name"), spec.at("group"), spec.at("version"));
        let wanted = format!("{}.{}", version.text(), group.text());
        if name.text() != wanted {
            errors.invalid_text(&name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
        }
        if group.text().is_empty() && version.text() != "v1" {
            errors.required(&group, "only v1 may have an empty group and it better be legacy kube");
        }
        if !group.text().is_empty() {
            for problem in names::is_dns1123_subdomain(group.text()) {
                errors.invalid(&group, problem);
            }
        }
        errors.problems(&version, names::is_dns1035_label(version.text()));
        for (field, highest) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec.at(field);
            let number = priority.int().unwrap_or(0);
            if number <= 0 || number > highest {
                errors.invalid_int(&priority, format!("must be positive and less than {highest}"));
            }
        }
        let (service, insecure, bundle) = (spec.at("service"), spec.at("insecureSkipTLSVerify"), spec.at("caBundle"));
        if !service.is_set() {
            if !bundle.text().is_empty() {
                let bytes = STANDARD.decode(bundle.text()).unwrap_or_default();
                let shown = format!("{} bytes", bytes.len());
                errors.invalid_value(&bundle, shown, "local APIServices may not have a caBundle");
            }
            if insecure.flag() {
                errors.invalid(&insecure, "local APIServices may not have insecureSkipTLSVerify");
            }
            return errors.into_vec();
        }
        errors.required_text(&service.at("namespace"));
        errors.required_text(&service.at("name"));
        let port = service.at("port");
        for problem in names::is_valid_port_num(port.int().unwrap_or(443)) {
            errors.invalid_int(&port, format!("port is not valid: {problem}"));
        }
        if insecure.flag() && !bundle.text().is_empty() {
            errors.invalid(&insecure, "may not be true if caBundle is present");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        for condition in At::root(new).at("status.conditions").items() {
            errors.one_of(&condition.at("status"), &["False", "True", "Unknown"]);
        }
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests;
