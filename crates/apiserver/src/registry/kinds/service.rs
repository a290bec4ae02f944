//! Services.

use std::collections::{HashMap, HashSet};

use machinery::names::{self, ip};
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::{NameRule, Strategy};
use super::common::{At, Errors, IMMUTABLE};
use super::endpoints::endpoint_ip;
use crate::rest::keep;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const ONCE: &str = "may not change once set";
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Services.
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
            let told = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
            warnings.push(told.to_owned());
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
            let told = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
            warnings.push(told.to_owned());
        }
        warnings
    }
}

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

fn kind(service: &Value) -> &str {
    value::text(service, "spec.type")
}

/// Whether anything outside of the cluster can reach it.
fn is_external(service: &Value) -> bool {
    let externals = !value::list(service, "spec.externalIPs").is_empty();
    matches!(kind(service), "LoadBalancer" | "NodePort") || (kind(service) == "ClusterIP" && externals)
}

/// Whether a load balancer asks the nodes how they are.
fn is_checked(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && value::text(service, "spec.externalTrafficPolicy") == "Local"
}

fn has_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => {
            value::at(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true)
        }
        _ => false,
    }
}

fn is_headless(service: &At<'_, '_>) -> bool {
    let addresses = service.at("spec.clusterIPs");
    addresses.len() == 1 && addresses.index(0).text() == "None"
}

/// What is said before anything is allocated: both ways to name the address say the same, and what the server filled in stays
/// when an update leaves it out.
pub fn complete(new: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_allocated(new, old);
    }
    let single = value::text(new, "spec.clusterIP").to_owned();
    let all = value::list(new, "spec.clusterIPs");
    match old {
        None if !single.is_empty() && all.is_empty() => value::set(new, "spec.clusterIPs", vec![single]),
        // A client that knows only the one has the last word by it.
        Some(old) if single != value::text(old, "spec.clusterIP") && all == value::list(old, "spec.clusterIPs") => {
            match single.is_empty() {
                true => drop(value::remove(new, "spec.clusterIPs")),
                false => value::set(new, "spec.clusterIPs", vec![single]),
            }
        }
        _ => {}
    }
}

/// The addresses that a Service has.
fn known_addresses(service: Option<&Value>) -> Vec<&str> {
    let list = service.map_or(&[][..], |service| value::list(service, "spec.clusterIPs"));
    list.iter().filter_map(Value::as_str).collect()
}

/// What is wrong with addresses, families and policy by themselves.
pub fn related_errors(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (root, mut errors) = (At::root(service), Errors::new());
    addresses(&root.at("spec"), &known_addresses(old), is_headless(&root), &mut errors);
    errors.into_vec()
}

fn keep_allocated(new: &mut Value, old: &Value) {
    let needs_ip = |service: &Value| kind(service) != "ExternalName";
    if needs_ip(new) && needs_ip(old) {
        for path in ["spec.clusterIP", "spec.clusterIPs"] {
            let left_out =
                value::at(new, path).is_none_or(|given| given.is_null() || given == "" || *given == json!([]));
            if left_out && value::at(old, path).is_some() {
                keep(new, old, path);
            }
        }
    }
    if has_node_ports(new) && has_node_ports(old) {
        fn ports(service: &Value) -> impl Iterator<Item = (&str, i64)> {
            let each = value::list(service, "spec.ports").iter();
            each.map(|port| (value::text(port, "name"), value::int(port, "nodePort").unwrap_or(0)))
        }
        // Of ports with one name the last one counts.
        let before: HashMap<&str, i64> = ports(old).collect();
        let used: HashSet<i64> = ports(new).map(|(_, number)| number).collect();
        // A port is known by its name: whatever else of it changed, its number stays, unless another port has it now.
        for port in value::list_mut(new, "spec.ports") {
            let unset = value::int(port, "nodePort").unwrap_or(0) == 0;
            let known = before.get(value::text(port, "name")).filter(|number| unset && !used.contains(number));
            if let Some(number) = known {
                value::set(port, "nodePort", *number);
            }
        }
    }
    if is_checked(new) && is_checked(old) && value::int(new, "spec.healthCheckNodePort").unwrap_or(0) == 0 {
        keep(new, old, "spec.healthCheckNodePort");
    }
}

/// Fields that the old type had and the new one has not, if the client only left them as they were.
fn drop_other_types(new: &mut Value, old: &Value) {
    let same = |new: &Value, path: &str| value::at(new, path) == value::at(old, path);
    if kind(old) != "ExternalName" && kind(new) == "ExternalName" {
        if same(new, "spec.clusterIP") && same(new, "spec.clusterIPs") {
            value::remove(new, "spec.clusterIP");
            value::remove(new, "spec.clusterIPs");
        }
        for path in ["spec.ipFamilies", "spec.ipFamilyPolicy"] {
            if same(new, path) {
                value::remove(new, path);
            }
        }
    }
    let may_have_ports = |service: &Value| matches!(kind(service), "NodePort" | "LoadBalancer");
    if may_have_ports(old) && !may_have_ports(new) {
        let ports = |service: &Value| -> Vec<i64> {
            let each = value::list(service, "spec.ports").iter().map(|port| value::int(port, "nodePort").unwrap_or(0));
            each.filter(|port| *port != 0).collect()
        };
        let before = ports(old);
        if ports(new).iter().all(|port| before.contains(port)) {
            for port in value::list_mut(new, "spec.ports") {
                value::remove(port, "nodePort");
            }
        }
    }
    if is_checked(old) && !is_checked(new) && same(new, "spec.healthCheckNodePort") {
        value::remove(new, "spec.healthCheckNodePort");
    }
    if kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer" {
        for path in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if same(new, path) {
                value::remove(new, path);
            }
        }
        value::set(new, "status", json!({"loadBalancer": {}}));
    }
    if is_external(old) && !is_external(new) && same(new, "spec.externalTrafficPolicy") {
        value::remove(new, "spec.externalTrafficPolicy");
    }
}

fn validate(service: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
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

fn ports(list: &At<'_, '_>, errors: &mut Errors) {
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
fn addresses(spec: &At<'_, '_>, known: &[&str], headless: bool, errors: &mut Errors) {
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

fn addresses_stay(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let (after, before) = (new.at("spec.clusterIPs"), old.at("spec.clusterIPs"));
    if after.len() == before.len() {
        for (address, known) in after.items().zip(before.items()) {
            if address.text() != known.text() {
                errors.invalid_value(&address, after.value().clone(), ONCE);
            }
        }
        return;
    }
    if after.is_empty() {
        return errors.invalid_value(&after.index(0), after.value().clone(), "primary clusterIP can not be unset");
    }
    if !before.is_empty() && after.index(0).text() != before.index(0).text() {
        errors.invalid_value(&after.index(0), after.value().clone(), ONCE);
    }
    let policy = new.at("spec.ipFamilyPolicy");
    if after.len() < before.len() && policy.text() != "SingleStack" {
        errors.invalid(&policy, "must be set to 'SingleStack' when releasing the secondary clusterIP");
    }
}

fn families_stay(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let (after, before) = (new.at("spec.ipFamilies"), old.at("spec.ipFamilies"));
    let first = after.index(0);
    if after.len() < before.len() && new.at("spec.clusterIPs").is_empty() {
        errors.invalid_value(&first, after.value().clone(), "primary ipFamily can not be unset");
    }
    if after.len() == before.len() {
        for _ in after.items().zip(before.items()).filter(|(family, known)| family.text() != known.text()) {
            errors.invalid_value(&first, after.value().clone(), ONCE);
        }
        return;
    }
    if !after.is_empty() && !before.is_empty() && first.text() != before.index(0).text() {
        errors.invalid_value(&first, new.at("spec.clusterIPs").value().clone(), ONCE);
    }
    let policy = new.at("spec.ipFamilyPolicy");
    if after.len() == 1 && before.len() > 1 && policy.text() != "SingleStack" {
        errors.invalid(&policy, "must be set to 'SingleStack' when releasing the secondary ipFamily");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, expected: &[&str]) {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        Services.default(&mut service);
        complete(&mut service, None);
        Services.prepare_for_create(&mut service);
        let errors: Vec<String> = Services.validate(&service).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn services_are_checked_in_upstreams_words() {
        check(json!({"ports": [{"port": 80}]}), &[]);
        check(json!({"clusterIP": "None"}), &[]);
        check(json!({}), &["spec.ports: Required value"]);
        check(json!({"type": "ExternalName", "externalName": "a.b."}), &[]);
        check(
            json!({"type": "Odd", "sessionAffinity": "Some", "ports": [{"port": 0, "name": "A", "targetPort": "a_b"}, {"port": 80}]}),
            &[
                "spec.ports[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: \"a_b\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "spec.ports[1].name: Required value",
                "spec.sessionAffinity: Unsupported value: \"Some\": supported values: \"ClientIP\", \"None\"",
                "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        );
        check(
            json!({"ports": [{"port": 80, "nodePort": 30000}], "externalIPs": ["127.0.0.1", "x"], "loadBalancerClass": "c"}),
            &[
                "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "spec.externalIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
        );
    }

    #[test]
    fn an_address_stays_and_goes_with_the_type() {
        let mut old = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "nodePort": 30000}], "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}});
        Services.default(&mut old);
        let mut new = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}});
        Services.default(&mut new);
        complete(&mut new, Some(&old));
        Services.prepare_for_update(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.1");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
        let mut moved = old.clone();
        moved["spec"]["clusterIP"] = json!("10.0.0.2");
        moved["spec"]["clusterIPs"] = json!(["10.0.0.2"]);
        let errors: Vec<String> = Services.validate_update(&moved, &old).iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]);
        let mut named = old.clone();
        named["spec"]["type"] = json!("ExternalName");
        named["spec"]["externalName"] = json!("a.b");
        Services.prepare_for_update(&mut named, &old);
        assert!(named["spec"].get("clusterIP").is_none() && named["spec"]["ports"][0].get("nodePort").is_none());
    }

    #[test]
    fn what_is_ignored_deprecated_or_oddly_written_is_told() {
        let told = |spec: Value| {
            let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
            Services.default(&mut service);
            Services.warnings(&service, None)
        };
        assert_eq!(told(json!({"ports": [{"port": 80}]})), Vec::<String>::new());
        assert_eq!(
            told(
                json!({"clusterIP": "None", "clusterIPs": ["None"], "externalIPs": ["10.0.0.1"], "loadBalancerIP": "10.0.0.1"})
            ),
            [
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services"
            ],
        );
        assert_eq!(
            told(json!({"ports": [{"port": 80}], "externalIPs": ["fd00:0::1"], "trafficDistribution": "PreferClose"})),
            [
                "spec.externalIPs[0]: IPv6 address \"fd00:0::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ],
        );
    }
}
