//! APIServices: which server answers for a version of a group.

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::common::{At, Errors};

/// APIServices.
pub struct ApiServices;

impl Strategy for ApiServices {
    fn allows_unconditional_update(&self) -> bool {
        false
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

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let remote = value::at(new, "spec.service").is_some_and(Value::is_object);
        let told = "other servers' APIs are not served yet: the registration is kept, and no request is passed on";
        if remote { vec![told.to_owned()] } else { Vec::new() }
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
                let shown = format!("{} bytes", bundle.text().len());
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
}
