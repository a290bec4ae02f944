//! From pods to endpoints: which addresses a Service should have, grouped by family and ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone};

use crate::common::meta::MetaExt;
use crate::common::{pods, services};

pub(super) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Endpoints of one family whose pods listen on the same ports.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// `IPv4` or `IPv6`.
    pub(super) family: String,
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// The families a Service serves.
pub(super) fn families(spec: &ServiceSpec) -> Vec<String> {
    match &spec.ip_families {
        Some(families) if !families.is_empty() => families.clone(),
        _ => {
            let six = spec.cluster_ip.as_deref().is_some_and(|address| address.contains(':'));
            vec![if six { "IPv6" } else { "IPv4" }.to_owned()]
        }
    }
}

/// All endpoints that the selected pods make. Pods that are going still serve while they drain; pods that ended do not.
pub(super) fn desired(service: &Service, pods: &[Arc<Pod>], zone: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let mut groups: Vec<Group> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut pods: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !pods::is_terminal(pod)).collect();
    pods.sort_by_key(|pod| pod.metadata.name());
    for family in families(spec) {
        for pod in &pods {
            let Some(address) = services::address_of_family(pod, &family) else { continue };
            let ports = ports(spec, pod);
            let endpoint = endpoint(service, spec, pod, address, &zone);
            let id = format!("{family} {ports:?}");
            let at = *seen.entry(id).or_insert_with(|| {
                groups.push(Group { family: family.clone(), ports: ports.clone(), endpoints: Vec::new() });
                groups.len() - 1
            });
            groups[at].endpoints.push(endpoint);
        }
    }
    groups
}

fn ports(spec: &ServiceSpec, pod: &Pod) -> Vec<EndpointPort> {
    let ports = spec.ports.iter().flatten().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(services::target_port(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    ports.collect()
}

fn endpoint(
    service: &Service,
    spec: &ServiceSpec,
    pod: &Pod,
    address: &str,
    zone: impl Fn(&str) -> Option<String>,
) -> Endpoint {
    let serving = pods::is_ready(pod);
    let terminating = pod.metadata.is_deleting();
    let ready = spec.publish_not_ready_addresses == Some(true) || (serving && !terminating);
    let node = pods::node_name(pod).map(str::to_owned);
    let zone = node.as_deref().and_then(zone);
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: services::host_name(pod, service).map(str::to_owned),
        hints: ready.then(|| hints(spec, node.as_deref(), zone.as_deref())).flatten(),
        target_ref: Some(pods::reference(pod)),
        node_name: node,
        zone,
        ..Endpoint::default()
    }
}

/// Where traffic to the endpoint should come from, if the Service prefers it to stay near.
fn hints(spec: &ServiceSpec, node: Option<&str>, zone: Option<&str>) -> Option<EndpointHints> {
    let preference = spec.traffic_distribution.as_deref()?;
    let for_zones = zone.map(|name| vec![ForZone { name: name.to_owned() }]);
    let for_nodes = node.map(|name| vec![ForNode { name: name.to_owned() }]);
    match preference {
        "PreferClose" | "PreferSameZone" => {
            for_zones.map(|zones| EndpointHints { for_zones: Some(zones), for_nodes: None })
        }
        "PreferSameNode" => Some(EndpointHints { for_zones, for_nodes }),
        _ => None,
    }
}
