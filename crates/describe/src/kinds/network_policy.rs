//! Network policies.

use machinery::{Value, time, value};

use crate::Error;
use crate::show::{Scene, at, format_selector, joined, or, text_or};
use crate::writer::{Writer, put};

/// How one direction of traffic is told.
struct Direction {
    word: &'static str,
    rules: &'static str,
    /// The field of a rule with the other side.
    peers: &'static str,
    title: &'static str,
    anybody: &'static str,
}

const INGRESS: Direction = Direction {
    word: "ingress",
    rules: "spec.ingress",
    peers: "from",
    title: "From",
    anybody: "traffic not restricted by source",
};
const EGRESS: Direction = Direction {
    word: "egress",
    rules: "spec.egress",
    peers: "to",
    title: "To",
    anybody: "traffic not restricted by destination",
};

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    let created = time::parse_clamped(scene.text("metadata.creationTimestamp")).map_or_else(
        || "0001-01-01 00:00:00 +0000 UTC".to_owned(),
        |at| at.to_zoned(scene.settings.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %z %Z").to_string(),
    );
    out.field(0, "Created on", created);
    scene.labels(out);
    scene.annotations(out);
    put!(out, 0, "Spec:\n");
    put!(out, 1, "PodSelector: ");
    match format_selector(scene.at("spec.podSelector").unwrap_or(&Value::Null)) {
        selector if selector == "<none>" => {
            put!(out, 2, "<none> (Allowing the specific traffic to all pods in this namespace)\n");
        }
        selector => put!(out, 2, "{selector}\n"),
    }
    let types = scene.list("spec.policyTypes");
    for (kind, direction) in [("Ingress", &INGRESS), ("Egress", &EGRESS)] {
        let word = direction.word;
        if types.iter().any(|named| named.as_str() == Some(kind)) {
            put!(out, 1, "Allowing {word} traffic:\n");
            rules(out, scene.list(direction.rules), direction);
        } else {
            put!(out, 1, "Not affecting {word} traffic\n");
        }
    }
    put!(out, 1, "Policy Types: {}\n", text_or(&joined(types, ", "), "<none>"));
    Ok(())
}

fn rules(out: &mut Writer, rules: &[Value], direction: &Direction) {
    if rules.is_empty() {
        return put!(out, 2, "<none> (Selected pods are isolated for {} connectivity)\n", direction.word);
    }
    for (number, rule) in rules.iter().enumerate() {
        let ports = value::list(rule, "ports");
        if ports.is_empty() {
            put!(out, 2, "To Port: <any> (traffic allowed to all ports)\n");
        }
        for port in ports {
            let protocol = or(port, "protocol", "TCP");
            let first = or(port, "port", "<nil>");
            match at(port, "endPort") {
                None => put!(out, 2, "To Port: {first}/{protocol}\n"),
                Some(last) => put!(out, 2, "To Port Range: {first}-{last}/{protocol}\n"),
            }
        }
        let peers = value::list(rule, direction.peers);
        if peers.is_empty() {
            put!(out, 2, "{}: <any> ({})\n", direction.title, direction.anybody);
        }
        for one in peers {
            put!(out, 2, "{}:\n", direction.title);
            peer(out, one);
        }
        if number + 1 != rules.len() {
            put!(out, 2, "----------\n");
        }
    }
}

fn peer(out: &mut Writer, peer: &Value) {
    let selectors = [("NamespaceSelector", at(peer, "namespaceSelector")), ("PodSelector", at(peer, "podSelector"))];
    for (title, selector) in &selectors {
        if let Some(selector) = selector {
            put!(out, 3, "{title}: {}\n", format_selector(selector));
        }
    }
    if selectors.iter().any(|(_, selector)| selector.is_some()) {
        return;
    }
    if let Some(block) = at(peer, "ipBlock") {
        put!(out, 3, "IPBlock:\n");
        put!(out, 4, "CIDR: {}\n", value::text(block, "cidr"));
        put!(out, 4, "Except: {}\n", joined(value::list(block, "except"), ", "));
    }
}
