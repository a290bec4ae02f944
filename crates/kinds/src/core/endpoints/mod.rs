//! Endpoints.

pub mod columns;

use machinery::names::ip;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::addresses::endpoint_ip;
use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct Endpoints;

impl Strategy for Endpoints {
    fn flags(&self) -> Flags {
        Flags { creates_on_update: true, ..Flags::USUAL }
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
