//! Ingresses, network policies, and the addresses of services.

use machinery::names::{self, ip};
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::{NameRule, Strategy};
use super::common::{At, Errors, IMMUTABLE, is_absolute};
use super::names::{domain_prefixed_path, typed_reference};
use super::service::balancer_point;
use crate::rest::keep_object_meta;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Ingresses.
pub struct Ingresses;

impl Strategy for Ingresses {
    fn counts_generations(&self) -> bool {
        true
    }

    fn prepare_for_create(&self, ingress: &mut Value) {
        value::set(ingress, "status", json!({"loadBalancer": {}}));
    }

    fn validate(&self, ingress: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(ingress);
        validate_ingress(&root.at("spec"), &mut errors);
        let annotation = root.at("metadata.annotations").value().get(CLASS_ANNOTATION).and_then(Value::as_str);
        let class = root.at("spec.ingressClassName");
        if let Some(annotation) = annotation.filter(|annotation| class.is_set() && *annotation != class.text()) {
            let path = format!("annotations.{CLASS_ANNOTATION}");
            errors.push(FieldError::invalid(path, annotation, "must match `ingressClassName` when both are specified"));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_ingress(&At::root(new).at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let known: Vec<&str> =
            value::list(old, "status.loadBalancer.ingress").iter().map(|point| value::text(point, "ip")).collect();
        for point in At::root(new).at("status.loadBalancer.ingress").items() {
            balancer_point(&point, &known, &mut errors);
        }
        errors.into_vec()
    }

    fn warnings(&self, ingress: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = value::at(ingress, "metadata.annotations")
            .is_some_and(|annotations| annotations.get(CLASS_ANNOTATION).is_some());
        let warning =
            format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
        (annotated && old.is_none()).then_some(warning).into_iter().collect()
    }
}

fn validate_ingress(spec: &At<'_, '_>, errors: &mut Errors) {
    let (rules, backend) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.is_empty() && !backend.is_set() {
        errors.invalid_value(spec, rules.value().clone(), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_set() {
        validate_backend(&backend, errors);
    }
    for rule in rules.items() {
        let host = rule.at("host");
        if !host.text().is_empty() {
            if ip::parse_sloppy(host.text()).is_some() {
                errors.invalid(&host, "must be a DNS name, not an IP address");
            }
            host_name(&host, errors);
        }
        let http = rule.at("http");
        if http.is_set() {
            if http.at("paths").is_empty() {
                errors.required(&http.at("paths"), "");
            }
            for path in http.at("paths").items() {
                validate_path(&path, errors);
            }
        }
    }
    for tls in spec.at("tls").items() {
        for host in tls.at("hosts").items() {
            host_name(&host, errors);
        }
        let secret = tls.at("secretName");
        if !secret.text().is_empty() {
            errors.problems(&secret, names::name_is_dns_subdomain(secret.text(), false));
        }
    }
    let class = spec.at("ingressClassName");
    if class.is_set() {
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
    }
}

fn host_name(at: &At<'_, '_>, errors: &mut Errors) {
    let check =
        if at.text().contains('*') { names::is_wildcard_dns1123_subdomain } else { names::is_dns1123_subdomain };
    errors.problems(at, check(at.text()));
}

fn validate_path(at: &At<'_, '_>, errors: &mut Errors) {
    let (kind, path) = (at.at("pathType"), at.at("path"));
    if !kind.is_set() {
        return errors.required(&kind, "pathType must be specified");
    }
    match kind.text() {
        "Exact" | "Prefix" => {
            if !is_absolute(path.text()) {
                errors.invalid_text(&path, "must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(sequence) {
                    errors.invalid(&path, format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if path.text().ends_with(suffix) {
                    errors.invalid(&path, format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !is_absolute(path.text()) {
                errors.invalid(&path, "must be an absolute path");
            }
        }
        _ => errors.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    validate_backend(&at.at("backend"), errors);
}

fn validate_backend(at: &At<'_, '_>, errors: &mut Errors) {
    let (resource, service) = (at.at("resource"), at.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => errors.invalid_value(at, "", "cannot set both resource and service backends"),
        (true, false) => {
            group(&resource.at("apiGroup"), errors);
            typed_reference(&resource, "kind", errors);
        }
        (false, true) => {
            let name = service.at("name");
            if errors.required_text(&name) {
                errors.problems(&name, names::name_is_dns_label(name.text(), false));
            }
            let (port, number) = (service.at("port.name"), service.at("port.number"));
            match (port.text().is_empty(), number.int().unwrap_or(0)) {
                (false, 0) => errors.problems(&port, names::is_valid_port_name(port.text())),
                (false, _) => errors.invalid_value(at, "", "cannot set both port name & port number"),
                (true, 0) => errors.required(at, "port name or number is required"),
                (true, given) => errors.int_problems(&number, names::is_valid_port_num(given)),
            }
        }
        (false, false) => errors.invalid_value(at, "", "resource or service backend is required"),
    }
}

fn group(at: &At<'_, '_>, errors: &mut Errors) {
    if at.is_set() {
        errors.problems(at, names::is_dns1123_subdomain(at.text()));
    }
}

/// IngressClasses.
pub struct IngressClasses;

impl Strategy for IngressClasses {
    fn counts_generations(&self) -> bool {
        true
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

/// NetworkPolicies.
pub struct NetworkPolicies;

impl Strategy for NetworkPolicies {
    fn counts_generations(&self) -> bool {
        true
    }

    /// What a policy is about follows from what it says, unless it says so itself.
    fn default(&self, policy: &mut Value) {
        for list in ["spec.ingress", "spec.egress"] {
            for rule in value::list_mut(policy, list) {
                for port in value::list_mut(rule, "ports") {
                    value::set_default(port, "protocol", "TCP");
                }
            }
        }
        if value::list(policy, "spec.policyTypes").is_empty() {
            let mut types = vec![json!("Ingress")];
            if !value::list(policy, "spec.egress").is_empty() {
                types.push(json!("Egress"));
            }
            value::set(policy, "spec.policyTypes", types);
        }
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        validate_policy(policy, &[])
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let lists = [("spec.ingress", "from"), ("spec.egress", "to")];
        let peers = lists
            .iter()
            .flat_map(|(list, peers)| value::list(old, list).iter().flat_map(|rule| value::list(rule, peers)));
        let known: Vec<&str> = peers
            .flat_map(|peer| {
                let except = value::list(peer, "ipBlock.except").iter().filter_map(Value::as_str);
                std::iter::once(value::text(peer, "ipBlock.cidr")).chain(except)
            })
            .filter(|known| !known.is_empty())
            .collect();
        validate_policy(new, &known)
    }
}

fn validate_policy(policy: &Value, known: &[&str]) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(policy);
    let spec = root.at("spec");
    errors.label_selector(&spec.at("podSelector"));
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(list).items() {
            for port in rule.at("ports").items() {
                policy_port(&port, &mut errors);
            }
            for peer in rule.at(peers).items() {
                policy_peer(&peer, known, &mut errors);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        errors.invalid(&types, "may not specify more than two policyTypes");
    } else {
        for kind in types.items() {
            errors.one_of(&kind, &["Ingress", "Egress"]);
        }
    }
    errors.into_vec()
}

fn policy_port(at: &At<'_, '_>, errors: &mut Errors) {
    errors.one_of_if_set(&at.at("protocol"), &["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.at("port"), at.at("endPort"));
    match port.value() {
        Value::Null if end.is_set() => errors.invalid(&end, "may not be specified when `port` is not specified"),
        Value::Null => {}
        Value::String(name) => {
            if end.is_set() {
                errors.invalid(&end, "may not be specified when `port` is non-numeric");
            }
            errors.problems(&port, names::is_valid_port_name(name));
        }
        _ => {
            let start = port.int().unwrap_or(0);
            errors.int_problems(&port, names::is_valid_port_num(start));
            if let Some(last) = end.int() {
                if last < start {
                    errors.invalid(&end, "must be greater than or equal to `port`");
                }
                errors.int_problems(&end, names::is_valid_port_num(last));
            }
        }
    }
}

fn policy_peer(peer: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    let (pods, namespaces, block) = (peer.at("podSelector"), peer.at("namespaceSelector"), peer.at("ipBlock"));
    errors.label_selector(&pods);
    errors.label_selector(&namespaces);
    if block.is_set() {
        if pods.is_set() || namespaces.is_set() {
            errors.forbidden(peer, "may not specify both ipBlock and another peer");
        }
        ip_block(&block, known, errors);
    } else if !pods.is_set() && !namespaces.is_set() {
        errors.required(peer, "must specify a peer");
    }
}

fn ip_block(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    let whole = at.at("cidr");
    if !errors.required_text(&whole) {
        return;
    }
    errors.extend(ip::is_valid_cidr_for_legacy_field(&whole.to_string(), whole.text(), true, known));
    let Some((address, length)) = ip::parse_cidr_sloppy(whole.text()) else { return };
    for except in at.at("except").items() {
        errors.extend(ip::is_valid_cidr_for_legacy_field(&except.to_string(), except.text(), true, known));
        let Some((inner, inner_length)) = ip::parse_cidr_sloppy(except.text()) else { continue };
        let inside = inner.is_ipv4() == address.is_ipv4() && ip::network(inner, length) == ip::network(address, length);
        if !inside || length >= inner_length {
            errors.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}

/// ServiceCIDRs.
pub struct ServiceCidrs;

impl Strategy for ServiceCidrs {
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        service_ranges(&At::root(object).at("spec"), &mut errors);
        errors.into_vec()
    }

    /// A range stays, and one of the other family may come.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (after, before) = (fresh.at("spec.cidrs"), stale.at("spec.cidrs"));
        let grows = before.len() == 1 && after.len() == 2;
        if after.len() != before.len() && !grows {
            errors.invalid(&after, IMMUTABLE);
            return errors.into_vec();
        }
        for (range, known) in after.items().zip(before.items()) {
            if range.value() != known.value() {
                errors.invalid(&range, IMMUTABLE);
            }
        }
        if grows {
            service_ranges(&fresh.at("spec"), &mut errors);
        }
        errors.into_vec()
    }
}

fn service_ranges(spec: &At<'_, '_>, errors: &mut Errors) {
    let ranges = spec.at("cidrs");
    if ranges.is_empty() {
        return errors.required(&ranges, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        return errors.invalid_value(&ranges, spec.value().clone(), "may only hold up to 2 values");
    }
    for range in ranges.items() {
        errors.extend(ip::is_valid_cidr(&range.to_string(), range.text()));
    }
    let families: Vec<bool> = ranges
        .items()
        .filter_map(|range| ip::parse_cidr_sloppy(range.text()))
        .map(|(address, _)| address.is_ipv4())
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        errors.invalid(
            &ranges,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

/// IPAddresses.
pub struct IpAddresses;

impl Strategy for IpAddresses {
    /// An address is judged as one.
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn fields(&self) -> &'static [Field] {
        const {
            &[
                Field::text("spec.parentRef.group"),
                Field::text("spec.parentRef.resource"),
                Field::text("spec.parentRef.namespace"),
                Field::text("spec.parentRef.name"),
            ]
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let name = root.at("metadata.name");
        // That there is none is said of every object.
        if !name.text().is_empty() {
            errors.extend(ip::is_valid_ip("metadata.name", name.text()));
        }
        let parent = root.at("spec.parentRef");
        if !parent.is_set() {
            errors.required(&parent, "");
            return errors.into_vec();
        }
        let group = parent.at("group");
        if !group.text().is_empty() {
            errors.problems(&group, names::is_dns1123_subdomain(group.text()));
        }
        typed_reference(&parent, "resource", &mut errors);
        let namespace = parent.at("namespace");
        if !namespace.text().is_empty() {
            errors.problems(&namespace, names::is_path_segment_name(namespace.text()));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        let parent = new.at("spec.parentRef");
        if !parent.is_set() {
            errors.required(&parent, "");
        } else {
            for field in ["resource", "name"] {
                errors.required_text(&parent.at(field));
            }
        }
        errors.immutable_unshown(&parent, &old.at("spec.parentRef"));
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ingresses_are_checked() {
        let ingress = json!({"spec": {"rules": [{"host": "1.2.3.4", "http": {"paths": [
            {"path": "a//b", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {}}}}, {"backend": {}}]}}]}});
        assert_eq!(
            shown(Ingresses.validate(&ingress)),
            [
                "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must be an absolute path",
                "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must not contain '//'",
                "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
                "spec.rules[0].http.paths[1].pathType: Required value: pathType must be specified",
            ]
        );
        assert_eq!(
            shown(Ingresses.validate(&json!({"spec": {}}))),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
    }

    #[test]
    fn network_policies_are_checked_and_filled_in() {
        let mut policy = json!({"spec": {"podSelector": {}, "egress": [{"to": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16", "10.0.0.0/8"]}}],
            "ports": [{"port": 10, "endPort": 5}, {"endPort": 1}]}]}});
        NetworkPolicies.default(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(
            shown(NetworkPolicies.validate(&policy)),
            [
                "spec.egress[0].ports[0].endPort: Invalid value: 5: must be greater than or equal to `port`",
                "spec.egress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                "spec.egress[0].to[0]: Required value: must specify a peer",
                "spec.egress[0].to[1].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
                "spec.egress[0].to[1].ipBlock.except[1]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
            ]
        );
    }
}
