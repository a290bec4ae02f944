//! What the cluster stands on is there for as long as the server runs, and not only when it starts: the system's namespaces,
//! the `kubernetes` Service with its address and its endpoints, the first range of cluster IPs.
//!
//! What somebody deletes comes back. What somebody changes is theirs until the next start, except for the endpoints, in
//! which this server must be found: another one of the same cluster adds itself in the same way, and neither takes the
//! other out.

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

/// Everything there has to be, namespaces first.
pub(super) fn wanted(api: &Api, place: Place) -> (Vec<Wanted>, Vec<Wanted>) {
    let ranges = &api.allocator.service_ranges;
    let mut rest = vec![objects::token_tracking(&api.now()), objects::service_cidr(ranges, &api.now())];
    let service =
        |range: &rest::allocation::Cidr| objects::kubernetes_service(range.at(1), place.advertise, place.port);
    rest.extend(ranges.first().into_iter().flat_map(service));
    (objects::namespaces(), rest)
}

/// What to watch: each of them alone.
pub(super) fn watched(api: &Api, place: Place) -> Vec<(&'static str, &'static str, Filter)> {
    let (namespaces, rest) = wanted(api, place);
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

/// Makes what is missing.
pub(super) async fn mend(api: &Api, loopback: &Loopback, place: Place) -> Result<(), ApiError> {
    let (namespaces, mut rest) = wanted(api, place);
    for wanted in &mut rest {
        wanted.repair = match wanted.plural {
            "endpoints" | "endpointslices" => Repair::Present(place.advertise),
            _ => Repair::Never,
        };
    }
    super::mend(api, loopback, namespaces).await?;
    super::mend(api, loopback, rest).await
}

/// Endpoints with those of ours among them; nothing when they are there already.
pub(super) fn joined(old: &Value, ours: &Value, advertise: IpAddr) -> Option<Value> {
    let mut new = old.clone();
    let advertise = advertise.to_string();
    let same = |field: &str| old.get(field).is_none_or(|known| known.is_null() || ours.get(field) == Some(known));
    match ours.get("endpoints") {
        Some(endpoints) => {
            let known = value::list(old, "endpoints");
            let has =
                |endpoint: &Value| value::list(endpoint, "addresses").iter().any(|address| *address == *advertise);
            if known.iter().any(has) && same("addressType") {
                return None;
            }
            let others = known.iter().filter(|_| same("addressType") && same("ports")).cloned();
            let together: Vec<Value> = others.chain(endpoints.as_array().into_iter().flatten().cloned()).collect();
            value::set(&mut new, "endpoints", together);
            for field in ["addressType", "ports"] {
                value::set(&mut new, field, ours[field].clone());
            }
        }
        None => {
            let known = value::list(old, "subsets");
            let addresses = |subset: &Value| value::list(subset, "addresses").to_vec();
            if known.iter().flat_map(addresses).any(|address| value::text(&address, "ip") == advertise) {
                return None;
            }
            let mut together = known.to_vec();
            together.extend(value::list(ours, "subsets").iter().cloned());
            value::set(&mut new, "subsets", together);
        }
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_of_one_cluster_stand_beside_each_other() {
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let slice = |addresses: &[IpAddr]| {
            let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
            json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 6443}]})
        };
        let [a, b] = [address(1), address(2)];
        assert_eq!(joined(&slice(&[a]), &slice(&[a]), a), None);
        assert_eq!(joined(&slice(&[a]), &slice(&[b]), b), Some(slice(&[a, b])));
        assert_eq!(joined(&slice(&[a, b]), &slice(&[a]), a), None);
        assert_eq!(joined(&slice(&[]), &slice(&[a]), a), Some(slice(&[a])));
        let foreign = json!({"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}], "ports": null});
        assert_eq!(joined(&foreign, &slice(&[a]), a), Some(slice(&[a])));
        let endpoints = |addresses: &[IpAddr]| {
            let subset = |address: &IpAddr| json!({"addresses": [{"ip": address}], "ports": [{"port": 6443}]});
            json!({"subsets": addresses.iter().map(subset).collect::<Vec<_>>()})
        };
        assert_eq!(joined(&endpoints(&[a]), &endpoints(&[b]), b), Some(endpoints(&[a, b])));
        assert_eq!(joined(&endpoints(&[a, b]), &endpoints(&[b]), b), None);
        assert_eq!(joined(&json!({}), &endpoints(&[b]), b), Some(endpoints(&[b])));
    }
}
