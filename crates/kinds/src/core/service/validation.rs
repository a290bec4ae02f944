//! What must be right in a Service.

use std::collections::HashSet;

use machinery::names::ip;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::addresses::endpoint_ip;
use crate::checks::{At, Errors};
use crate::core::service::{HINTS, MODE, is_checked, is_external, known_addresses};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// An address or a host name of a load balancer.
pub fn balancer_point(point: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    let (address, host) = (point.at("ip"), point.at("hostname"));
    if !address.text().is_empty() {
        errors.extend(ip::is_valid_ip_for_legacy_field(&address.to_string(), address.text(), true, known));
    }
    if !host.text().is_empty() {
        errors.problems(&host, names::is_dns1123_subdomain(host.text()));
        if ip::parse_sloppy(host.text()).is_some() {
            errors.invalid(&host, "must be a DNS name, not an IP address");
        }
    }
}

pub fn is_headless(service: &At<'_, '_>) -> bool {
    let addresses = service.at("spec.clusterIPs");
    addresses.len() == 1 && addresses.index(0).text() == "None"
}

pub fn validate(service: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let annotations = service.at("metadata.annotations");
    let (mode, hints) = (annotations.key(MODE), annotations.key(HINTS));
    if mode.is_set() && hints.is_set() && mode.value() != hints.value() {
        errors.invalid_text(&mode, format!("must match annotations[{HINTS}] when both are specified"));
    }
    let spec = service.at("spec");
    let kind = spec.text_at("type");
    let headless = is_headless(service);
    if spec.at("ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&spec.at("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            errors.invalid(&spec.at("clusterIPs").index(0), format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies"] {
                if !spec.at(field).is_empty() {
                    errors.forbidden(&spec.at(field), NOT_EXTERNAL_NAME);
                }
            }
            errors.forbidden_if_set(&spec.at("ipFamilyPolicy"), NOT_EXTERNAL_NAME);
            let name = spec.at("externalName");
            match name.text().strip_suffix('.').unwrap_or(name.text()) {
                "" => errors.required(&name, ""),
                host => {
                    for problem in names::is_dns1123_subdomain(host) {
                        errors.invalid_value(&name, host, problem);
                    }
                }
            }
        }
        _ => {}
    }
    ports(&spec.at("ports"), errors);
    errors.labels(&spec.at("selector"));
    affinity(&spec, errors);
    if kind != "ExternalName" {
        let known = known_addresses(old.map(At::value));
        addresses(&spec, &known, headless, errors);
    }
    let known: Vec<&str> = old.map_or_else(Vec::new, |old| {
        value::list(old.value(), "spec.externalIPs").iter().filter_map(Value::as_str).collect()
    });
    for address in spec.at("externalIPs").items() {
        let problems = ip::is_valid_ip_for_legacy_field(&address.to_string(), address.text(), true, &known);
        if problems.is_empty() {
            endpoint_ip(&address, errors);
        }
        errors.extend(problems);
    }
    errors.required_one_of(&spec.at("type"), &TYPES);
    unique_ports(&spec, kind, errors);
    source_ranges(service, &spec, old, errors);
    if kind != "LoadBalancer" {
        errors.forbidden_if_set(&spec.at("allocateLoadBalancerNodePorts"), FOR_BALANCERS);
        errors.forbidden_if_set(&spec.at("loadBalancerClass"), FOR_BALANCERS);
    } else if spec.has("loadBalancerClass") {
        errors.label_name(&spec.at("loadBalancerClass"));
    }
    traffic(service, &spec, errors);
}

pub fn ports(list: &At<'_, '_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for port in list.items() {
        let name = port.at("name");
        if name.text().is_empty() && list.len() > 1 {
            errors.required(&name, "");
        } else if !name.text().is_empty() {
            errors.problems(&name, names::is_dns1123_label(name.text()));
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            } else {
                seen.insert(name.text());
            }
        }
        let number = port.at("port");
        errors.int_problems(&number, names::is_valid_port_num(number.int().unwrap_or(0)));
        errors.required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
        errors.port(&port.at("targetPort"));
        if port.has("appProtocol") {
            errors.label_name(&port.at("appProtocol"));
        }
    }
}

fn affinity(spec: &At<'_, '_>, errors: &mut Errors) {
    const MOST: i64 = 86_400;
    const NEEDED: &str = "when session affinity type is ClientIP";
    let kind = spec.at("sessionAffinity");
    errors.required_one_of(&kind, &["ClientIP", "None"]);
    let config = spec.at("sessionAffinityConfig");
    match kind.text() {
        "ClientIP" => {
            let timeout = config.at("clientIP.timeoutSeconds");
            if !config.is_set() {
                errors.required(&config, NEEDED);
            } else if !config.has("clientIP") {
                errors.required(&config.at("clientIP"), NEEDED);
            } else if !timeout.is_set() {
                errors.required(&timeout, NEEDED);
            } else if !(1..=MOST).contains(&timeout.int().unwrap_or(0)) {
                errors.invalid(&timeout, format!("must be greater than 0 and less than {MOST}"));
            }
        }
        "None" => errors.forbidden_if_set(&config, "must not be set when session affinity is None"),
        _ => {}
    }
}

/// The addresses and their families. Those that it had before may stay, whatever is thought of them today.
pub fn addresses(spec: &At<'_, '_>, known: &[&str], headless: bool, errors: &mut Errors) {
    let (single, all, families) = (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    if single.text().is_empty() {
        if !all.is_empty() {
            errors.invalid(&all, "must be empty when `clusterIP` is not specified");
        }
    } else if all.is_empty() {
        errors.required(&all, "");
    } else if all.index(0).text() != single.text() {
        errors.invalid(&all, "first value must match `clusterIP`");
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for family in families.items() {
        errors.one_of(&family, &FAMILIES);
        if seen.contains(&family.text()) {
            errors.duplicate(&family, family.text());
        }
        seen.insert(family.text());
    }
    errors.one_of_if_set(&spec.at("ipFamilyPolicy"), &POLICIES);
    let before = errors.len();
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                errors.invalid(&all, "'None' must be the first and only value");
            }
            continue;
        }
        errors.extend(ip::is_valid_ip_for_legacy_field(&address.to_string(), address.text(), true, known));
    }
    if all.len() > 2 {
        errors.invalid(&all, "may only hold up to 2 values");
    }
    if errors.len() > before {
        return;
    }
    let is_v6 = |address: &At<'_, '_>| ip::parse_sloppy(address.text()).is_some_and(|address| address.is_ipv6());
    if all.len() == 2 && is_v6(&all.index(0)) == is_v6(&all.index(1)) {
        errors.invalid(&all, "may specify no more than one IP for each IP family");
    }
    if headless {
        return;
    }
    for (index, (address, family)) in all.items().zip(families.items()).enumerate() {
        let (expected, wrong) = (family.text(), (family.text() == "IPv6") != is_v6(&address));
        if wrong && FAMILIES.contains(&expected) {
            errors.invalid(&address, format!("expected an {expected} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

fn unique_ports(spec: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    let list = spec.at("ports");
    let mut node_ports: HashSet<(&str, i64)> = HashSet::new();
    let mut numbers: HashSet<(&str, i64)> = HashSet::new();
    if kind == "ClusterIP" {
        for port in list.items().filter(|port| port.at("nodePort").int().unwrap_or(0) != 0) {
            errors.forbidden(&port.at("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    for port in list.items() {
        let number = port.at("nodePort").int().unwrap_or(0);
        let key = (port.text_at("protocol"), number);
        if number != 0 && node_ports.contains(&key) {
            errors.duplicate(&port.at("nodePort"), number);
        }
        node_ports.insert(key);
    }
    for port in list.items() {
        let key = (port.text_at("protocol"), port.at("port").int().unwrap_or(0));
        if numbers.contains(&key) {
            errors.duplicate(&port, json!({"protocol": key.0, "port": key.1, "targetPort": 0}));
        }
        numbers.insert(key);
    }
}

fn source_ranges(service: &At<'_, '_>, spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let ranges = spec.named("LoadBalancerSourceRanges", "loadBalancerSourceRanges");
    let balances = spec.text_at("type") == "LoadBalancer";
    if !ranges.is_empty() {
        if !balances {
            errors.forbidden(&ranges, FOR_BALANCERS);
        }
        let known: Vec<&str> = old.map_or_else(Vec::new, |old| {
            value::list(old.value(), "spec.loadBalancerSourceRanges")
                .iter()
                .filter_map(Value::as_str)
                .map(str::trim)
                .collect()
        });
        for range in ranges.items() {
            errors.extend(ip::is_valid_cidr_for_legacy_field(&range.to_string(), range.text().trim(), true, &known));
        }
        return;
    }
    let annotations = service.at("metadata.annotations");
    let annotation = annotations.key(SOURCE_RANGES);
    if !annotation.is_set() {
        return;
    }
    if !balances {
        errors.forbidden(&annotation, FOR_BALANCERS);
    }
    let unchanged =
        old.is_some_and(|old| old.at("metadata.annotations").key(SOURCE_RANGES).value() == annotation.value());
    for range in annotation.text().trim().split(',').filter(|range| !range.is_empty() && !unchanged) {
        errors.extend(ip::is_valid_cidr_for_legacy_field(&annotation.to_string(), range.trim(), true, &[]));
    }
}

fn traffic(service: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let external = spec.at("externalTrafficPolicy");
    if is_external(service.value()) {
        errors.required_one_of(&external, &["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        errors.invalid(&external, "may only be set for externally-accessible services");
    }
    // A port that is not given is allocated after this check.
    let port = spec.at("healthCheckNodePort");
    if let Some(number) = port.int().filter(|number| *number != 0) {
        if is_checked(service.value()) {
            errors.int_problems(&port, names::is_valid_port_num(number));
        } else {
            errors
                .invalid(&port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'");
        }
    }
    let internal = spec.at("internalTrafficPolicy");
    if !internal.is_set() && matches!(spec.text_at("type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required(&internal, "");
    }
    errors.one_of_if_set(&internal, &["Cluster", "Local"]);
    errors.one_of_if_set(&spec.at("trafficDistribution"), &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}
