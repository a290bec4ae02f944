//! NetworkPolicies.

pub mod columns;

use machinery::names::ip;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::strategy::{Flags, Strategy};

pub struct NetworkPolicies;

impl Strategy for NetworkPolicies {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
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
