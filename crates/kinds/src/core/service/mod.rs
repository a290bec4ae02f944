//! Services.
//!
//! `fill` completes and drops what belongs to another type, `validation` checks what is written, `update` what may change.

pub mod columns;
pub mod families;
pub mod fill;
#[cfg(test)]
mod tests;
pub mod update;
pub mod validation;

use machinery::names::ip;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::{At, Errors, IMMUTABLE};
use crate::core::service::fill::drop_other_types;
use crate::core::service::update::{ONCE, addresses_stay, families_stay};
use crate::core::service::validation::{addresses, balancer_point, is_headless, validate};
use crate::strategy::{NameRule, Strategy};

pub const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
pub const MODE: &str = "service.kubernetes.io/topology-mode";

pub struct Services;

impl Strategy for Services {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("spec.clusterIP"), Field::text("spec.type")] }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn default(&self, service: &mut Value) {
        value::set_default(service, "spec.sessionAffinity", "None");
        value::set_default(service, "spec.type", "ClusterIP");
        match value::text(service, "spec.sessionAffinity") {
            "None" => {
                value::remove(service, "spec.sessionAffinityConfig");
            }
            "ClientIP" => value::set_default(service, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800),
            _ => {}
        }
        for port in value::list_mut(service, "spec.ports") {
            value::set_default(port, "protocol", "TCP");
            if value::at(port, "targetPort").is_none_or(|target| target == 0 || target == "" || target.is_null()) {
                let number = value::int(port, "port").unwrap_or(0);
                value::set(port, "targetPort", number);
            }
        }
        if is_external(service) {
            value::set_default(service, "spec.externalTrafficPolicy", "Cluster");
        }
        if kind(service) != "ExternalName" {
            value::set_default(service, "spec.internalTrafficPolicy", "Cluster");
        }
        if kind(service) == "LoadBalancer" {
            value::set_default(service, "spec.allocateLoadBalancerNodePorts", true);
            for point in value::list_mut(service, "status.loadBalancer.ingress") {
                if !value::text(point, "ip").is_empty() {
                    value::set_default(point, "ipMode", "VIP");
                }
            }
        }
    }

    fn prepare_for_create(&self, service: &mut Value) {
        value::set(service, "status", json!({"loadBalancer": {}}));
    }

    /// What the server filled in goes when the type no longer has it.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        drop_other_types(new, old);
    }

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate(&At::root(service), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        if kind(new) != "ExternalName" && kind(old) != "ExternalName" {
            addresses_stay(&fresh, &stale, &mut errors);
            families_stay(&fresh, &stale, &mut errors);
        }
        let class = fresh.at("spec.loadBalancerClass");
        if kind(new) == "LoadBalancer"
            && kind(old) == "LoadBalancer"
            && class.value() != stale.at("spec.loadBalancerClass").value()
        {
            errors.invalid(&class, ONCE);
        }
        let port = fresh.at("spec.healthCheckNodePort");
        if is_checked(new) && is_checked(old) && port.value() != stale.at("spec.healthCheckNodePort").value() {
            errors.forbidden(&port, IMMUTABLE);
        }
        validate(&fresh, Some(&stale), &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let points = fresh.at("status.loadBalancer.ingress");
        if kind(new) != "LoadBalancer" && !points.is_empty() {
            errors.forbidden(&points, "may only be used when `spec.type` is 'LoadBalancer'");
            return errors.into_vec();
        }
        let known: Vec<&str> = value::list(stale.value(), "status.loadBalancer.ingress")
            .iter()
            .map(|point| value::text(point, "ip"))
            .collect();
        for point in points.items() {
            let (address, mode) = (point.at("ip"), point.at("ipMode"));
            match (address.text().is_empty(), mode.is_set()) {
                (false, false) => errors.required(&mode, "must be specified when `ip` is set"),
                (true, true) => errors.forbidden(&mode, "may not be specified when `ip` is not set"),
                (false, true) => errors.one_of(&mode, &["Proxy", "VIP"]),
                (true, false) => {}
            }
            balancer_point(&point, &known, &mut errors);
        }
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let annotations = value::at(new, "metadata.annotations");
        if annotations.is_some_and(|annotations| annotations.get(HINTS).is_some()) {
            warnings.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
        }
        let root = At::root(new);
        let spec = root.at("spec");
        let of = |list: &str, check: fn(&str, &str) -> Vec<String>| -> Vec<String> {
            spec.at(list).items().flat_map(|item| check(&item.to_string(), item.text())).collect()
        };
        let (headless, externals) = (is_headless(&root), spec.at("externalIPs"));
        if !matches!(spec.text_at("clusterIP"), "" | "None") && kind(new) != "ExternalName" {
            warnings.extend(of("clusterIPs", ip::warnings_for_ip));
        }
        let balancer = spec.at("loadBalancerIP");
        if headless && kind(new) == "ClusterIP" {
            let ignored = [
                ("spec.loadBalancerIP", !balancer.text().is_empty()),
                ("spec.externalIPs", !externals.is_empty()),
                ("spec.SessionAffinity", spec.text_at("sessionAffinity") != "None"),
            ];
            let ignored = ignored.iter().filter(|(_, set)| *set);
            warnings.extend(ignored.map(|(field, _)| format!("{field} is ignored for headless services")));
        }
        warnings.extend(of("externalIPs", ip::warnings_for_ip));
        if !externals.is_empty() && !headless && kind(new) != "ExternalName" {
            let warning = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
            warnings.push(warning.to_owned());
        }
        if !balancer.text().is_empty() {
            warnings.extend(ip::warnings_for_ip("spec.loadBalancerIP", balancer.text()));
        }
        warnings.extend(of("loadBalancerSourceRanges", ip::warnings_for_cidr));
        if !externals.is_empty() && kind(new) == "ExternalName" {
            warnings.push(format!("{externals} is ignored when spec.type is \"ExternalName\""));
        }
        if kind(new) != "ExternalName" && !value::text(new, "spec.externalName").is_empty() {
            warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
        }
        if spec.text_at("trafficDistribution") == "PreferClose" {
            let warning = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
            warnings.push(warning.to_owned());
        }
        warnings
    }
}

pub fn kind(service: &Value) -> &str {
    value::text(service, "spec.type")
}

/// Whether anything outside of the cluster can reach it.
pub fn is_external(service: &Value) -> bool {
    let externals = !value::list(service, "spec.externalIPs").is_empty();
    matches!(kind(service), "LoadBalancer" | "NodePort") || (kind(service) == "ClusterIP" && externals)
}

/// Whether a load balancer asks the nodes how they are.
pub fn is_checked(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && value::text(service, "spec.externalTrafficPolicy") == "Local"
}

/// The addresses that a Service has.
pub fn known_addresses(service: Option<&Value>) -> Vec<&str> {
    let list = service.map_or(&[][..], |service| value::list(service, "spec.clusterIPs"));
    list.iter().filter_map(Value::as_str).collect()
}

/// What is wrong with addresses, families and policy by themselves.
pub fn related_errors(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (root, mut errors) = (At::root(service), Errors::new());
    addresses(&root.at("spec"), &known_addresses(old), is_headless(&root), &mut errors);
    errors.into_vec()
}
