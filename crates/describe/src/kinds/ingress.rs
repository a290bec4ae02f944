//! Ingresses, with the endpoints behind their backends.

use std::collections::BTreeSet;

use machinery::{Value, value};

use super::service::{addresses, slices};
use crate::read::{self, SERVICES};
use crate::show::{Scene, at, int, joined, or};
use crate::writer::{Writer, put};
use crate::{Error, Read};

/// Every backend in the order in which it is shown.
fn backends(ingress: &Value) -> impl Iterator<Item = &Value> {
    let rules = value::list(ingress, "spec.rules").iter();
    let paths = rules.flat_map(|rule| value::list(rule, "http.paths")).filter_map(|path| at(path, "backend"));
    at(ingress, "spec.defaultBackend").into_iter().chain(paths)
}

/// The endpoints of a backend's service, and the service.
fn behind(ingress: &Value, service: &Value) -> [Read; 2] {
    let (namespace, name) = (value::text(ingress, "metadata.namespace"), value::text(service, "name"));
    [slices(namespace, name), Read::get(SERVICES, namespace, name)]
}

pub fn reads(ingress: &Value, show_events: bool) -> Vec<Read> {
    let mut reads = read::only_events(ingress, show_events);
    for read in backends(ingress).filter_map(|backend| at(backend, "service")).flat_map(|it| behind(ingress, it)) {
        // One answer is enough for backends that share a service.
        if !reads.contains(&read) {
            reads.push(read);
        }
    }
    reads
}

fn backend(scene: &Scene<'_>, backend: &Value) -> String {
    if let Some(service) = at(backend, "service") {
        return service_backend(scene, service);
    }
    let Some(resource) = at(backend, "resource") else { return String::new() };
    let group = or(resource, "apiGroup", "<none>");
    format!("APIGroup: {group}, Kind: {}, Name: {}", value::text(resource, "kind"), value::text(resource, "name"))
}

fn service_backend(scene: &Scene<'_>, backend: &Value) -> String {
    let (number, port) = (int(backend, "port.number"), value::text(backend, "port.name"));
    let name = value::text(backend, "name");
    let shown = if number != 0 { format!("{name}:{number}") } else { format!("{name}:{port}") };
    let [slices, service] = behind(scene.object, backend);
    for read in [&slices, &service] {
        if let Some(Err(failure)) = scene.answers.get(read) {
            return format!("{shown} (<error: {}>)", failure.message);
        }
    }
    let ports = scene.answers.get(&service).and_then(|answer| answer.as_ref().ok());
    let ports = ports.map_or(&[][..], |service| value::list(service, "spec.ports"));
    let found = ports.iter().rfind(|known| {
        (number != 0 && int(known, "port") == number) || (!port.is_empty() && value::text(known, "name") == port)
    });
    let found = found.map_or("", |known| value::text(known, "name"));
    format!("{shown} ({})", addresses(scene.answers.items(&slices).unwrap_or_default(), found))
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.namespace(out);
    out.field(0, "Address", balancers(scene.list("status.loadBalancer.ingress")));
    out.field(0, "Ingress Class", or(scene.object, "spec.ingressClassName", "<none>"));
    let default = scene.at("spec.defaultBackend").map_or_else(|| "<default>".to_owned(), |found| backend(scene, found));
    out.field(0, "Default backend", &default);
    if !scene.list("spec.tls").is_empty() {
        put!(out, 0, "TLS:\n");
    }
    for tls in scene.list("spec.tls") {
        let hosts = joined(value::list(tls, "hosts"), ",");
        match value::text(tls, "secretName") {
            "" => put!(out, 1, "SNI routes {hosts}\n"),
            secret => put!(out, 1, "{secret} terminates {hosts}\n"),
        }
    }
    rules(scene, out, &default);
    scene.annotations(out);
    scene.events(out);
    Ok(())
}

fn rules(scene: &Scene<'_>, out: &mut Writer, default: &str) {
    put!(out, 0, "Rules:\n  Host\tPath\tBackends\n");
    put!(out, 1, "----\t----\t--------\n");
    let mut none = true;
    for rule in scene.list("spec.rules").iter().filter(|rule| at(rule, "http").is_some()) {
        none = false;
        match value::text(rule, "host") {
            "" => put!(out, 1, "*\t\n"),
            host => put!(out, 1, "{host}\t\n"),
        }
        for path in value::list(rule, "http.paths") {
            let shown = at(path, "backend").map_or_else(String::new, |found| backend(scene, found));
            put!(out, 2, "\t{} \t{shown}\n", value::text(path, "path"));
        }
    }
    if none {
        put!(out, 1, "*\t*\t{default}\n");
    }
}

/// Addresses or host names, each once and sorted.
fn balancers(points: &[Value]) -> String {
    let name = |point: &'_ Value| match value::text(point, "ip") {
        "" => value::text(point, "hostname").to_owned(),
        address => address.to_owned(),
    };
    let names: BTreeSet<String> = points.iter().map(name).filter(|name| !name.is_empty()).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}
