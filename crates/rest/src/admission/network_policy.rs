//! Warnings about a NetworkPolicy that somebody can hardly have meant: it selects no pod, or names a port that none of the pods has. It is taken all the same: the
//! pods may come later.

use machinery::selector::LabelSelector;
use machinery::{Value, value};
use rules::network_policies::{NamedPort, doubts};
use rules::protocol::Protocol;
use storage::cache::Filter;

use super::{Operation, Request};
use crate::verbs::Api;

/// Where there are more pods than this, none is looked at: a warning is not worth the time of others.
const MOST: usize = 500;

pub fn warn(api: &Api, request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) {
    let written = matches!(request.operation, Operation::Create | Operation::Update);
    let Some(policy) = new.filter(|_| written && request.is_for("networking.k8s.io", "networkpolicies")) else {
        return;
    };
    if old.is_some_and(|old| old["spec"] == policy["spec"]) {
        return;
    }
    let Ok(selector) = LabelSelector::from_value(&policy["spec"]["podSelector"]) else { return };
    let Some(own) = few(api, &Filter::namespace(value::text(policy, "metadata.namespace"))) else { return };
    let selected: Vec<&Value> =
        own.iter().filter(|pod| selector.matches_labels(&pod["metadata"]["labels"]) && has_addresses(pod)).collect();
    let [ingress, egress] = [("Ingress", "spec.ingress"), ("Egress", "spec.egress")].map(|(of, rules)| {
        let in_force = value::list(policy, "spec.policyTypes").iter().any(|listed| listed == of);
        if in_force { named(value::list(policy, rules)) } else { Vec::new() }
    });
    // Few policies name ports of what goes out, and all pods would have to be read for the others.
    let everybody = if egress.is_empty() { None } else { few(api, &Filter::everything()) };
    let egress = if everybody.is_some() { egress } else { Vec::new() };
    let any_has = |port: &NamedPort| everybody.iter().flatten().any(|pod| has_addresses(pod) && has(pod, port));
    let selected_have = |port: &NamedPort| selected.iter().any(|pod| has(pod, port));
    for doubt in doubts(!selected.is_empty(), [&ingress, &egress], selected_have, any_has) {
        request.exchange.notes.warn(format!("NetworkPolicy {:?} {doubt}", value::text(policy, "metadata.name")));
    }
}

/// The pods, where they are few.
fn few(api: &Api, filter: &Filter) -> Option<Vec<Value>> {
    let (pods, _) = api.registry.stored("", "pods")?.cache.list(filter, None, MOST + 1);
    (pods.len() <= MOST).then(|| pods.iter().map(|pod| pod.to_value()).collect())
}

/// Whether policies are about it: it does not share its node's addresses, and has not given its own back.
fn has_addresses(pod: &Value) -> bool {
    pod["spec"]["hostNetwork"] != true && !matches!(value::text(pod, "status.phase"), "Succeeded" | "Failed")
}

/// The ports that rules name, each once.
fn named(rules: &[Value]) -> Vec<NamedPort> {
    let ports = rules.iter().flat_map(|rule| value::list(rule, "ports"));
    let mut named: Vec<NamedPort> = ports
        .filter_map(|port| Some((port["port"].as_str()?.to_owned(), Protocol::parse(port["protocol"].as_str())?)))
        .collect();
    named.sort();
    named.dedup();
    named
}

fn has(pod: &Value, (name, protocol): &NamedPort) -> bool {
    let all = value::list(pod, "spec.initContainers").iter().filter(|container| container["restartPolicy"] == "Always");
    let mut ports =
        all.chain(value::list(pod, "spec.containers")).flat_map(|container| value::list(container, "ports"));
    ports.any(|port| port["name"] == name.as_str() && Protocol::parse(port["protocol"].as_str()) == Some(*protocol))
}
