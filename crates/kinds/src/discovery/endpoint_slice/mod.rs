//! EndpointSlices.

pub mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use machinery::names::ip;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::addresses::endpoint_ip;
use crate::checks::rare_names::qualified_domain;
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy, desired_state};

pub struct EndpointSlices;

impl Strategy for EndpointSlices {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    /// Labels count too: they say whose endpoints these are.
    fn desired_state_changed(&self, new: &Value, old: &Value) -> bool {
        let labels = |object| value::at(object, "metadata.labels").filter(|map| !map.is_null());
        desired_state(new).ne(desired_state(old)) || labels(new) != labels(old)
    }

    fn default(&self, slice: &mut Value) {
        for port in value::list_mut(slice, "ports") {
            value::set_default(port, "name", "");
            value::set_default(port, "protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, new: &mut Value) {
        drop_topology(new);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_topology(new);
    }

    fn validate(&self, slice: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(slice);
        validate_slice(&root, &mut errors);
        validate_endpoints(&root, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        validate_slice(&fresh, &mut errors);
        if new.get("endpoints") != old.get("endpoints") {
            validate_endpoints(&fresh, &mut errors);
        }
        errors.immutable_unshown(&fresh.at("addressType"), &stale.at("addressType"));
        errors.into_vec()
    }

    fn warnings(&self, slice: &Value, _old: Option<&Value>) -> Vec<String> {
        let fqdn = value::text(slice, "addressType") == "FQDN";
        fqdn.then(|| "addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
    }
}

/// Where an endpoint is has fields of its own in this version.
fn drop_topology(slice: &mut Value) {
    for endpoint in value::list_mut(slice, "endpoints") {
        value::remove(endpoint, "deprecatedTopology");
    }
}

fn validate_slice(slice: &At<'_, '_>, errors: &mut Errors) {
    const MOST_PORTS: usize = 20_000;
    errors.required_one_of(&slice.at("addressType"), &["FQDN", "IPv4", "IPv6"]);
    let ports = slice.at("ports");
    if ports.len() > MOST_PORTS {
        errors.too_many(&ports, MOST_PORTS);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for port in ports.items() {
        let name = port.at("name");
        if !name.text().is_empty() {
            errors.problems(&name, names::is_dns1123_label(name.text()));
        }
        if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            seen.insert(name.text());
        }
        let protocol = port.at("protocol");
        match protocol.is_set() {
            true => errors.one_of(&protocol, &["SCTP", "TCP", "UDP"]),
            false => errors.required(&protocol, ""),
        }
        if port.has("appProtocol") {
            errors.label_name(&port.at("appProtocol"));
        }
    }
}

fn validate_endpoints(slice: &At<'_, '_>, errors: &mut Errors) {
    const MOST_ENDPOINTS: usize = 1000;
    const MOST_ADDRESSES: usize = 100;
    let kind = slice.text_at("addressType");
    let list = slice.at("endpoints");
    if list.len() > MOST_ENDPOINTS {
        errors.too_many(&list, MOST_ENDPOINTS);
    }
    for endpoint in list.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            errors.required(&addresses, "");
        } else if addresses.len() > MOST_ADDRESSES {
            errors.too_many(&addresses, MOST_ADDRESSES);
        }
        for address in addresses.items() {
            validate_address(kind, &addresses, &address, errors);
        }
        let node = endpoint.at("nodeName");
        if node.is_set() {
            errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
        }
        errors.labels(&endpoint.at("deprecatedTopology"));
        let host = endpoint.at("hostname");
        if host.is_set() {
            errors.problems(&host, names::is_dns1123_label(host.text()));
        }
        hints(&endpoint.at("hints"), errors);
    }
}

fn validate_address(kind: &str, list: &At<'_, '_>, address: &At<'_, '_>, errors: &mut Errors) {
    let problems = match kind {
        "IPv4" => ip::is_valid_ip_for_legacy_field(&address.to_string(), address.text(), true, &[]),
        "IPv6" => ip::is_valid_ip(&address.to_string(), address.text()),
        "FQDN" => return qualified_domain(address, errors),
        _ => return,
    };
    if !problems.is_empty() {
        return errors.extend(problems);
    }
    let is_v4 = ip::parse_sloppy(address.text()).is_some_and(|address| address.is_ipv4());
    if is_v4 != (kind == "IPv4") {
        errors.invalid_value(list, address.text(), format!("must be an {kind} address"));
    }
    endpoint_ip(address, errors);
}

fn hints(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 8;
    for (list, check) in [
        ("forZones", names::is_label_value as fn(&str) -> Vec<String>),
        ("forNodes", |name| names::name_is_dns_subdomain(name, false)),
    ] {
        let hints = at.at(list);
        if hints.len() > MOST {
            errors.too_many(&hints, MOST);
        }
        let mut seen: HashSet<&str> = HashSet::new();
        for hint in hints.items() {
            let name = hint.at("name");
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            } else {
                seen.insert(name.text());
            }
            errors.problems(&name, check(name.text()));
        }
    }
}
