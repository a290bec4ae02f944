//! Services.

use machinery::status::FieldError;
use machinery::{Value, names, value};

use super::super::strategy::{NameRule, Strategy};

/// Services.
pub struct Services;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl Strategy for Services {
    fn fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label1035
    }

    fn default(&self, service: &mut Value) {
        value::set_default(service, "spec.sessionAffinity", "None");
        value::set_default(service, "spec.type", "ClusterIP");
        if value::text(service, "spec.sessionAffinity") == "ClientIP" {
            value::set_default(service, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800);
        }
        for port in value::list_mut(service, "spec.ports") {
            value::set_default(port, "protocol", "TCP");
            if value::at(port, "targetPort").is_none_or(|target| target == 0 || target == "") {
                let number = value::int(port, "port").unwrap_or(0);
                value::set(port, "targetPort", number);
            }
        }
        let kind = value::text(service, "spec.type").to_owned();
        let headless = value::text(service, "spec.clusterIP") == "None";
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            value::set_default(service, "spec.externalTrafficPolicy", "Cluster");
        }
        if kind != "ExternalName" && !headless {
            value::set_default(service, "spec.internalTrafficPolicy", "Cluster");
        }
        if kind != "ExternalName" && headless {
            value::set_default(service, "spec.internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            value::set_default(service, "spec.allocateLoadBalancerNodePorts", true);
        }
        // Either of the two ways to name the address says the other.
        let first = value::list(service, "spec.clusterIPs").first().and_then(Value::as_str).map(str::to_owned);
        match (value::text(service, "spec.clusterIP").to_owned(), first) {
            (single, None) if !single.is_empty() => value::set(service, "spec.clusterIPs", vec![single]),
            (single, Some(first)) if single.is_empty() => value::set(service, "spec.clusterIP", first),
            _ => {}
        }
    }

    fn prepare_for_create(&self, service: &mut Value) {
        value::set(service, "status.loadBalancer", serde_json::json!({}));
    }

    /// What the server filled in stays when an update leaves it out.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let needs_ip = value::text(new, "spec.type") != "ExternalName";
        if needs_ip && value::text(old, "spec.type") != "ExternalName" {
            for path in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"] {
                if let Some(kept) = value::at(old, path) {
                    value::set_default(new, path, kept.clone());
                }
            }
        }
    }

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let kind = value::text(service, "spec.type");
        if !TYPES.contains(&kind) {
            errors.push(FieldError::not_supported("spec.type", kind, TYPES));
        }
        let ports = value::list(service, "spec.ports");
        let headless = value::text(service, "spec.clusterIP") == "None";
        if ports.is_empty() && !headless && kind != "ExternalName" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        if kind == "ExternalName" && value::text(service, "spec.externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
        let mut seen: Vec<&str> = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let at = |field: &str| format!("spec.ports[{index}].{field}");
            let name = value::text(port, "name");
            if name.is_empty() && ports.len() > 1 {
                errors.push(FieldError::required(at("name"), ""));
            } else if !name.is_empty() {
                let problems = names::is_dns1123_label(name);
                errors.extend(problems.into_iter().map(|problem| FieldError::invalid(at("name"), name, problem)));
                if seen.contains(&name) {
                    errors.push(FieldError::duplicate(at("name"), name));
                }
                seen.push(name);
            }
            let number = value::int(port, "port").unwrap_or(0);
            let problems = names::is_valid_port_num(number);
            errors.extend(problems.into_iter().map(|problem| FieldError::invalid(at("port"), number, problem)));
            let protocol = value::text(port, "protocol");
            if !PROTOCOLS.contains(&protocol) {
                errors.push(FieldError::not_supported(at("protocol"), protocol, PROTOCOLS));
            }
        }
        let affinity = value::text(service, "spec.sessionAffinity");
        if !matches!(affinity, "ClientIP" | "None") {
            errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, ["ClientIP", "None"]));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        let (before, after) = (value::text(old, "spec.clusterIP"), value::text(new, "spec.clusterIP"));
        let external = |service: &Value| value::text(service, "spec.type") == "ExternalName";
        if !before.is_empty() && before != after && !external(new) && !external(old) {
            errors.push(FieldError::invalid("spec.clusterIPs[0]", after, "field is immutable"));
        }
        errors
    }
}
