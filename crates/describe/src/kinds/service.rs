//! Services and the endpoints behind them.

use machinery::{Value, value};

use crate::read::{self, ENDPOINT_SLICES};
use crate::show::{Scene, at, format_labels, int, joined, or, plain, text_or};
use crate::writer::{Writer, put};
use crate::{Error, Read};

/// The slices of a service's endpoints.
pub fn slices(namespace: &str, service: &str) -> Read {
    Read::list(ENDPOINT_SLICES, namespace).with_labels(format!("kubernetes.io/service-name={service}")).at_once()
}

fn own_slices(service: &Value) -> Read {
    slices(value::text(service, "metadata.namespace"), value::text(service, "metadata.name"))
}

pub fn reads(service: &Value, show_events: bool) -> Vec<Read> {
    let mut reads = vec![own_slices(service)];
    reads.extend(read::only_events(service, show_events));
    reads
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Selector", format_labels(scene.at("spec.selector")));
    out.field(0, "Type", scene.text("spec.type"));
    let optional = |out: &mut Writer, title: &str, path: &str| {
        if let Some(said) = scene.at(path).map(plain).filter(|said| !said.is_empty() && said != "0") {
            out.field(0, title, said);
        }
    };
    optional(out, "IP Family Policy", "spec.ipFamilyPolicy");
    out.field(0, "IP Families", text_or(&joined(scene.list("spec.ipFamilies"), ","), "<none>"));
    out.field(0, "IP", scene.text("spec.clusterIP"));
    match scene.list("spec.clusterIPs") {
        [] => out.field(0, "IPs", "<none>"),
        addresses => out.field(0, "IPs", joined(addresses, ",")),
    }
    if !scene.list("spec.externalIPs").is_empty() {
        out.field(0, "External IPs", joined(scene.list("spec.externalIPs"), ","));
    }
    optional(out, "Desired LoadBalancer IP", "spec.loadBalancerIP");
    optional(out, "External Name", "spec.externalName");
    if !scene.list("status.loadBalancer.ingress").is_empty() {
        out.field(0, "LoadBalancer Ingress", ingress(scene.list("status.loadBalancer.ingress")));
    }
    let slices = scene.answers.items(&own_slices(scene.object)).unwrap_or_default();
    scene.list("spec.ports").iter().for_each(|spec| port(out, spec, slices));
    out.field(0, "Session Affinity", scene.text("spec.sessionAffinity"));
    optional(out, "External Traffic Policy", "spec.externalTrafficPolicy");
    optional(out, "Internal Traffic Policy", "spec.internalTrafficPolicy");
    optional(out, "HealthCheck NodePort", "spec.healthCheckNodePort");
    if !scene.list("spec.loadBalancerSourceRanges").is_empty() {
        out.field(0, "LoadBalancer Source Ranges", joined(scene.list("spec.loadBalancerSourceRanges"), ","));
    }
    optional(out, "Traffic Distribution", "spec.trafficDistribution");
    scene.events(out);
    Ok(())
}

fn ingress(points: &[Value]) -> String {
    let shown = points.iter().map(|point| match (value::text(point, "ip"), at(point, "ipMode")) {
        ("", _) => value::text(point, "hostname").to_owned(),
        (address, Some(mode)) => format!("{address} ({})", plain(mode)),
        (address, None) => address.to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn port(out: &mut Writer, port: &Value, slices: &[Value]) {
    let protocol = value::text(port, "protocol");
    let name = text_or(value::text(port, "name"), "<unset>");
    put!(out, 0, "Port:\t{name}\t{}/{protocol}\n", int(port, "port"));
    out.field(0, "TargetPort", format_args!("{}/{protocol}", or(port, "targetPort", "0")));
    if at(port, "appProtocol").is_some() {
        out.field(0, "AppProtocol", value::text(port, "appProtocol"));
    }
    if int(port, "nodePort") != 0 {
        put!(out, 0, "NodePort:\t{name}\t{}/{protocol}\n", int(port, "nodePort"));
    }
    out.field(0, "Endpoints", addresses(slices, value::text(port, "name")));
}

/// The first addresses of those that are ready for a port of this name, and how many more there are.
pub fn addresses(slices: &[Value], name: &str) -> String {
    const MOST: usize = 3;
    if slices.is_empty() {
        return "<none>".to_owned();
    }
    let (mut shown, mut count, mut more) = (Vec::new(), 0, false);
    let mut add = |endpoint: &Value, port: Option<i64>| {
        // Upstream says that there are more when it sees one, ready or not.
        more |= shown.len() == MOST;
        if value::at(endpoint, "conditions.ready").and_then(Value::as_bool) == Some(false) {
            return;
        }
        let address = value::list(endpoint, "addresses").first().and_then(Value::as_str).unwrap_or_default();
        if !more {
            shown.push(port.map_or_else(|| address.to_owned(), |port| host_port(address, port)));
        }
        count += 1;
    };
    for slice in slices {
        let endpoints = value::list(slice, "endpoints");
        let ports = value::list(slice, "ports");
        if ports.is_empty() {
            endpoints.iter().for_each(|endpoint| add(endpoint, None));
        }
        for port in ports.iter().filter(|port| value::text(port, "name") == name) {
            endpoints.iter().for_each(|endpoint| add(endpoint, Some(int(port, "port"))));
        }
    }
    let list = shown.join(",");
    if more { format!("{list} + {} more...", count - MOST) } else { list }
}

fn host_port(address: &str, port: i64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

pub fn endpoints(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    put!(out, 0, "Subsets:\n");
    for subset in scene.list("subsets") {
        for (title, field) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let all: Vec<&str> = value::list(subset, field).iter().map(|address| value::text(address, "ip")).collect();
            out.field(1, title, text_or(&all.join(","), "<none>"));
        }
        let ports = value::list(subset, "ports");
        if !ports.is_empty() {
            put!(out, 1, "Ports:\n");
            put!(out, 2, "Name\tPort\tProtocol\n");
            put!(out, 2, "----\t----\t--------\n");
        }
        for port in ports {
            let (name, protocol) = (text_or(value::text(port, "name"), "<unset>"), value::text(port, "protocol"));
            put!(out, 2, "{name}\t{}\t{protocol}\n", int(port, "port"));
        }
        put!(out, 0, "\n");
    }
    scene.events(out);
    Ok(())
}

pub fn endpoint_slice(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "AddressType", scene.text("addressType"));
    let ports = scene.list("ports");
    if ports.is_empty() {
        put!(out, 0, "Ports: <unset>\n");
    } else {
        put!(out, 0, "Ports:\n");
        put!(out, 1, "Name\tPort\tProtocol\n");
        put!(out, 1, "----\t----\t--------\n");
    }
    for port in ports {
        let name = text_or(value::text(port, "name"), "<unset>");
        put!(out, 1, "{name}\t{}\t{}\n", or(port, "port", "<unset>"), value::text(port, "protocol"));
    }
    let endpoints = scene.list("endpoints");
    put!(out, 0, "Endpoints:{}\n", if endpoints.is_empty() { " <none>" } else { "" });
    for endpoint in endpoints {
        out.field(1, "- Addresses", text_or(&joined(value::list(endpoint, "addresses"), ", "), "<none>"));
        put!(out, 2, "Conditions:\n");
        out.field(3, "Ready", or(endpoint, "conditions.ready", "<unset>"));
        out.field(2, "Hostname", or(endpoint, "hostname", "<unset>"));
        if let Some(target) = at(endpoint, "targetRef") {
            let (kind, name) = (value::text(target, "kind"), value::text(target, "name"));
            out.field(2, "TargetRef", format_args!("{kind}/{name}"));
        }
        out.field(2, "NodeName", or(endpoint, "nodeName", "<unset>"));
        out.field(2, "Zone", or(endpoint, "zone", "<unset>"));
    }
    scene.events(out);
    Ok(())
}
