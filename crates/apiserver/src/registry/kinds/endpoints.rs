//! Endpoints and EndpointSlices.

use std::collections::HashSet;
use std::net::IpAddr;

use machinery::names::{self, ip};
use machinery::status::FieldError;
use machinery::{Value, value};

use super::super::strategy::{Strategy, wish};
use super::common::{At, Errors};
use super::names::qualified_domain;

/// Endpoints.
pub struct Endpoints;

impl Strategy for Endpoints {
    fn creates_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for subset in value::list_mut(object, "subsets") {
            for port in value::list_mut(subset, "ports") {
                value::set_default(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        for subset in At::root(object).at("subsets").items() {
            validate_subset(&subset, &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        // What was accepted once is accepted again.
        if new.get("subsets") == old.get("subsets") { Vec::new() } else { self.validate(new) }
    }

    fn warnings(&self, _new: &Value, old: Option<&Value>) -> Vec<String> {
        match old {
            None => vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()],
            Some(_) => Vec::new(),
        }
    }
}

fn validate_subset(subset: &At<'_, '_>, errors: &mut Errors) {
    if subset.at("addresses").is_empty() && subset.at("notReadyAddresses").is_empty() {
        errors.required(subset, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in ["addresses", "notReadyAddresses"] {
        for address in subset.at(list).items() {
            let text = address.text_at("ip");
            errors.extend(ip::is_valid_ip_for_legacy_field(&address.at("ip").to_string(), text, true, &[]));
            let host = address.at("hostname");
            if !host.text().is_empty() {
                errors.problems(&host, names::is_dns1123_label(host.text()));
            }
            let node = address.at("nodeName");
            if node.is_set() {
                errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
            }
            endpoint_ip(&address.at("ip"), errors);
        }
    }
    let ports = subset.at("ports");
    for port in ports.items() {
        let name = port.at("name");
        if name.text().is_empty() && ports.len() > 1 {
            errors.required(&name, "");
        } else if !name.text().is_empty() {
            errors.problems(&name, names::is_dns1123_label(name.text()));
        }
        let number = port.at("port");
        errors.int_problems(&number, names::is_valid_port_num(number.int().unwrap_or(0)));
        errors.required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
        if port.has("appProtocol") {
            errors.label_name(&port.at("appProtocol"));
        }
    }
}

/// An address that traffic can be sent to.
pub fn endpoint_ip(at: &At<'_, '_>, errors: &mut Errors) {
    let Some(address) = ip::parse_sloppy(at.text()).map(ip::canonical) else {
        return errors.invalid_text(at, "must be a valid IP address");
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.invalid_text(at, format!("may not be unspecified ({})", at.text()));
    }
    if address.is_loopback() {
        errors.invalid_text(at, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        errors.invalid_text(at, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid_text(at, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// EndpointSlices.
pub struct EndpointSlices;

impl Strategy for EndpointSlices {
    fn counts_generations(&self) -> bool {
        true
    }

    /// Labels count too: they say whose endpoints these are.
    fn wish_changed(&self, new: &Value, old: &Value) -> bool {
        let labels = |object| value::at(object, "metadata.labels").filter(|map| !map.is_null());
        wish(new).ne(wish(old)) || labels(new) != labels(old)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn slices_are_checked_in_upstreams_words() {
        let check = |slice: Value, expected: &[&str]| {
            let errors: Vec<String> = EndpointSlices.validate(&slice).iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected);
        };
        check(
            json!({"addressType": "IPv4", "ports": [{"name": "", "protocol": "TCP"}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            &[],
        );
        check(
            json!({"addressType": "IPv4", "endpoints": [{"addresses": []}, {"addresses": ["::1", "127.0.0.1"]}]}),
            &[
                "endpoints[0].addresses: Required value",
                "endpoints[1].addresses: Invalid value: \"::1\": must be an IPv4 address",
                "endpoints[1].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "endpoints[1].addresses[1]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ],
        );
    }
}
