//! What the cluster stands on is there for as long as the server runs, and not only when it starts: the system's namespaces,
//! the `kubernetes` Service with its address and its endpoints, the first range of cluster IPs.
//!
//! What somebody deletes comes back. What somebody changes is theirs until the next start, except for the endpoints, which list the servers that are
//! alive, no more and no fewer ([`crate::servers`]).

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::status::ApiError;
use machinery::{Value, value};
use rest::Api;
use storage::cache::{Filter, Scope};

use super::{Repair, Wanted, objects};
use crate::loopback::Loopback;

/// Where the server is reached.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The address that clients inside the cluster use.
    pub advertise: IpAddr,
    pub port: u16,
}

/// Everything there has to be, namespaces first. Without a server that is known to be alive nothing is said of endpoints.
pub(super) fn wanted(api: &Api, place: Place, live: &BTreeSet<IpAddr>) -> (Vec<Wanted>, Vec<Wanted>) {
    let ranges = &api.allocator.service_ranges;
    let mut rest = vec![objects::token_tracking(&api.now()), objects::service_cidr(ranges, &api.now())];
    rest.extend(ranges.first().into_iter().flat_map(|range| objects::kubernetes_service(range.at(1), place.port)));
    if !live.is_empty() {
        rest.extend(objects::kubernetes_endpoints(live, place.port));
    }
    (objects::namespaces(), rest)
}

/// What to watch: each of them alone.
pub(super) fn watched(api: &Api, place: Place) -> Vec<(&'static str, &'static str, Filter)> {
    let (namespaces, rest) = wanted(api, place, &BTreeSet::from([place.advertise]));
    let one = |wanted: Wanted| {
        let text = |path: &str| value::text(&wanted.object, path);
        let key = match text("metadata.namespace") {
            "" => text("metadata.name").to_owned(),
            namespace => format!("{namespace}/{}", text("metadata.name")),
        };
        let (labels, fields) = (Default::default(), Default::default());
        (wanted.group, wanted.plural, Filter::new(Scope::Key(key.into()), labels, fields))
    };
    namespaces.into_iter().chain(rest).map(one).collect()
}

/// Makes what is missing, and lists the servers that are alive.
pub(super) async fn mend(
    api: &Api,
    loopback: &Loopback,
    place: Place,
    live: &BTreeSet<IpAddr>,
) -> Result<(), ApiError> {
    let (namespaces, mut rest) = wanted(api, place, live);
    // Servers may listen at several ports, and endpoints have one: nobody takes it from the others.
    let alone = live.len() == 1;
    for wanted in &mut rest {
        wanted.repair = match wanted.plural {
            "endpoints" | "endpointslices" if alone => Repair::Always,
            "endpoints" | "endpointslices" => Repair::Listed,
            _ => Repair::Never,
        };
    }
    super::mend(api, loopback, namespaces).await?;
    super::mend(api, loopback, rest).await
}

/// Takes the last server out of the endpoints.
pub(super) async fn nobody(api: &Api, loopback: &Loopback, place: Place) -> Result<(), ApiError> {
    let mut none = objects::kubernetes_endpoints(&BTreeSet::from([place.advertise]), place.port);
    for wanted in &mut none {
        for field in ["endpoints", "subsets"] {
            if wanted.object.get(field).is_some() {
                wanted.object[field] = Value::Array(Vec::new());
            }
        }
    }
    super::mend(api, loopback, none).await
}

/// Endpoints with just the servers of `wanted`, at the port that they have; nothing when that is so.
pub(super) fn listed(old: &Value, wanted: &Value) -> Value {
    let mut new = old.clone();
    if wanted.get("endpoints").is_some() {
        if addresses(old) != addresses(wanted) {
            new["endpoints"] = wanted["endpoints"].clone();
        }
        if value::list(old, "ports").is_empty() {
            new["ports"] = wanted["ports"].clone();
        }
        return new;
    }
    match value::list(old, "subsets") {
        [one] if !value::list(one, "ports").is_empty() => {
            if addresses(old) != addresses(wanted) {
                new["subsets"][0]["addresses"] = wanted["subsets"][0]["addresses"].clone();
            }
        }
        // Whatever that is, it lists no servers.
        _ => new["subsets"] = wanted["subsets"].clone(),
    }
    new
}

/// The addresses in Endpoints or in a slice, in whatever order.
fn addresses(object: &Value) -> BTreeSet<&str> {
    let slices = value::list(object, "endpoints").iter().flat_map(|one| value::list(one, "addresses"));
    let subsets = value::list(object, "subsets").iter().flat_map(|one| value::list(one, "addresses"));
    slices.filter_map(Value::as_str).chain(subsets.map(|address| value::text(address, "ip"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoints_list_the_servers_that_are_alive_and_keep_their_port() {
        let slice = |addresses: &[&str], port: u16| {
            let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
            json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": port}]})
        };
        let (a, b) = ("192.0.2.1", "192.0.2.2");
        for (old, wanted, expect) in [
            (slice(&[a], 6443), slice(&[a], 6443), slice(&[a], 6443)),
            (slice(&[a], 6443), slice(&[a, b], 7443), slice(&[a, b], 6443)),
            (slice(&[b, a], 6443), slice(&[a, b], 6443), slice(&[b, a], 6443)),
            (slice(&[a, b], 6443), slice(&[b], 6443), slice(&[b], 6443)),
            (slice(&[], 6443), slice(&[b], 6443), slice(&[b], 6443)),
        ] {
            assert_eq!(listed(&old, &wanted), expect, "{old}");
        }
        let subset = |addresses: &[&str], port: u16| {
            let addresses: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
            json!({"addresses": addresses, "ports": [{"port": port}]})
        };
        let endpoints = |subsets: &[Value]| json!({"subsets": subsets});
        for (old, wanted, expect) in [
            (endpoints(&[subset(&[a], 1)]), endpoints(&[subset(&[a, b], 2)]), endpoints(&[subset(&[a, b], 1)])),
            (endpoints(&[subset(&[a, b], 1)]), endpoints(&[subset(&[b], 2)]), endpoints(&[subset(&[b], 1)])),
            (endpoints(&[]), endpoints(&[subset(&[b], 2)]), endpoints(&[subset(&[b], 2)])),
            // As earlier versions of ours wrote it: a subset for each.
            (
                endpoints(&[subset(&[a], 1), subset(&[b], 1)]),
                endpoints(&[subset(&[a, b], 1)]),
                endpoints(&[subset(&[a, b], 1)]),
            ),
        ] {
            assert_eq!(listed(&old, &wanted), expect, "{old}");
        }
    }
}
