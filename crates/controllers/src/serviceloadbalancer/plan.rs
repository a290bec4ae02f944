//! Which Service of type LoadBalancer gets which addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use informer::Key;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use rules::pods::is_node_ready;

use crate::common::meta::MetaExt;
use crate::common::slices::SERVICE_LABEL;

/// Nodes with this label take no traffic from outside.
pub(super) const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Everything: who gets which port is one decision about all Services.
pub(super) struct Observed {
    pub(super) services: Vec<Arc<Service>>,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) slices: Vec<Arc<EndpointSlice>>,
}

/// What is done for one Service.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) service: Arc<Service>,
    /// The addresses to write, if they are others.
    pub(super) addresses: Option<Vec<IpAddr>>,
    /// Why it gets none.
    pub(super) waits: Option<String>,
}

/// A port as the API writes its protocol.
type Port = (&'static str, u16);

/// `reserved` are the TCP ports that nodes need themselves.
pub(super) fn plan(observed: &Observed, reserved: &BTreeSet<u16>) -> Vec<Step> {
    let nodes: Vec<(&str, Vec<IpAddr>)> = observed.nodes.iter().filter_map(|node| addresses(node)).collect();
    let hosts = hosts(&observed.slices);
    let mut wanting: Vec<&Arc<Service>> = observed.services.iter().filter(|service| wants(service)).collect();
    wanting.sort_by_key(|service| {
        let created = service.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
        (created, service.metadata.key())
    });
    let mut taken = BTreeMap::<Port, Key>::new();
    let mut steps = Vec::new();
    for service in wanting {
        let (key, ports) = (service.metadata.key(), ports(service));
        let waits = conflict(&ports, &taken, reserved);
        let wanted = if waits.is_some() {
            Vec::new()
        } else {
            taken.extend(ports.into_iter().map(|port| (port, key.clone())));
            assigned(service, &nodes, hosts.get(&key))
        };
        let addresses = (present(service) != wanted).then_some(wanted);
        steps.push(Step { service: service.clone(), addresses, waits });
    }
    steps
}

fn conflict(ports: &[Port], taken: &BTreeMap<Port, Key>, reserved: &BTreeSet<u16>) -> Option<String> {
    let text = |(protocol, port): &Port| format!("port {port}/{}", protocol.to_lowercase());
    if let Some(port) = ports.iter().find(|(protocol, port)| *protocol == "TCP" && reserved.contains(port)) {
        return Some(format!("{} is the node's own", text(port)));
    }
    let (port, owner) = ports.iter().find_map(|port| Some((port, taken.get(port)?)))?;
    Some(format!("{} is taken by {owner}", text(port)))
}

/// The nodes that have a ready endpoint of each Service.
fn hosts(slices: &[Arc<EndpointSlice>]) -> HashMap<Key, HashSet<&str>> {
    let mut hosts = HashMap::<Key, HashSet<&str>>::new();
    for slice in slices {
        let Some(service) = slice.metadata.label(SERVICE_LABEL).filter(|name| !name.is_empty()) else { continue };
        let endpoints = slice.endpoints.iter().flatten();
        let ready = endpoints
            .filter(|endpoint| endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false)));
        let key = Key::new(slice.metadata.namespace(), service);
        hosts.entry(key).or_default().extend(ready.filter_map(|endpoint| endpoint.node_name.as_deref()));
    }
    hosts
}

fn assigned(service: &Service, nodes: &[(&str, Vec<IpAddr>)], hosts: Option<&HashSet<&str>>) -> Vec<IpAddr> {
    let spec = service.spec.as_ref();
    let local = spec.is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local"));
    let is_named = |node: &str| !local || hosts.is_some_and(|hosts| hosts.contains(node));
    let families = spec.and_then(|spec| spec.ip_families.clone()).unwrap_or_else(|| vec!["IPv4".to_owned()]);
    let of_family = |family: String| {
        let usable = nodes.iter().filter(|(node, _)| is_named(node)).flat_map(|(_, addresses)| addresses.iter());
        usable.copied().filter(|address| address.is_ipv6() == (family == "IPv6")).collect::<BTreeSet<_>>()
    };
    families.into_iter().flat_map(of_family).collect()
}

pub(super) fn wants(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    !service.metadata.is_deleting()
        && spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

fn ports(service: &Service) -> Vec<Port> {
    let protocol = |text: Option<&str>| match text {
        None | Some("" | "TCP") => Some("TCP"),
        Some("UDP") => Some("UDP"),
        Some("SCTP") => Some("SCTP"),
        Some(_) => None,
    };
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    ports.filter_map(|port| Some((protocol(port.protocol.as_deref())?, u16::try_from(port.port).ok()?))).collect()
}

/// A ready node's addresses for the outside: its external ones, in families that have any, else its internal ones.
pub(super) fn addresses(node: &Node) -> Option<(&str, Vec<IpAddr>)> {
    if node.metadata.label(EXCLUDED_LABEL).is_some() || !is_node_ready(node) {
        return None;
    }
    let of = |kind: &str, v6: bool| -> Vec<IpAddr> {
        let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let parsed = all.filter(|address| address.type_ == kind).filter_map(|address| address.address.parse().ok());
        parsed.filter(|address: &IpAddr| address.is_ipv6() == v6).collect()
    };
    let best =
        |v6| Some(of("ExternalIP", v6)).filter(|found| !found.is_empty()).unwrap_or_else(|| of("InternalIP", v6));
    Some((node.metadata.name.as_deref()?, [false, true].into_iter().flat_map(best).collect()))
}

fn present(service: &Service) -> Vec<IpAddr> {
    let balancer = service.status.iter().filter_map(|status| status.load_balancer.as_ref());
    let ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress.filter_map(|point| point.ip.as_ref()?.parse().ok()).collect()
}
