//! Services and Endpoints.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, joined, labels, load_balancer, name, number};
use crate::table::{AGE, Column, NAME, Printer, of, text};

const SPEC: &str = "io.k8s.api.core.v1.ServiceSpec";

const COLUMNS: [Column; 7] = [
    NAME,
    text("Type", of(SPEC, "type")),
    text("Cluster-IP", of(SPEC, "clusterIP")),
    text("External-IP", of(SPEC, "externalIPs")),
    text("Port(s)", of(SPEC, "ports")),
    AGE,
    text("Selector", of(SPEC, "selector")).wide(),
];

pub static TABLE: Printer = Printer::new(&COLUMNS, |service, now| {
    vec![
        name(service),
        json!(value::text(service, "spec.type")),
        value::list(service, "spec.clusterIPs").first().cloned().unwrap_or_else(|| json!("<none>")),
        json!(external(service)),
        json!(ports(service)),
        age(service, now),
        json!(labels(service, "spec.selector")),
    ]
});

fn external(service: &Value) -> String {
    let external = joined(service, "spec.externalIPs", ",");
    match value::text(service, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => value::text(service, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn ports(service: &Value) -> String {
    let show = |port: &Value| {
        let (number, protocol) = (number(port, "port"), value::text(port, "protocol"));
        match value::int(port, "nodePort").filter(|node| *node > 0) {
            Some(node) => format!("{number}:{node}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    };
    match value::list(service, "spec.ports") {
        [] => "<none>".to_owned(),
        ports => ports.iter().map(show).collect::<Vec<_>>().join(","),
    }
}
