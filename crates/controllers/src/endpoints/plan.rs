//! The one Endpoints object of a Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::MetaExt;
use crate::common::services::{HEADLESS_LABEL, is_headless};
use crate::common::{pods, services};

const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// More addresses than this are cut off: larger objects hurt everybody who watches them.
const MOST: usize = 1000;

type Ports = Vec<(String, i32, String, Option<String>)>;

/// Whether this controller made it.
pub(super) fn is_managed(endpoints: &Endpoints) -> bool {
    endpoints.metadata.label(MANAGED_BY_LABEL) == Some(MANAGER)
}

/// The object to write; `None` if the present one is right.
pub(super) fn plan(service: &Service, current: Option<&Endpoints>, pods: &[Arc<Pod>]) -> Option<Endpoints> {
    let spec = service.spec.as_ref()?;
    let (subsets, cut) = truncated(subsets(service, spec, pods));
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS_LABEL);
    if is_headless(spec) {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned());
    let mut metadata = current.map_or_else(
        || ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        |current| current.metadata.clone(),
    );
    metadata.labels = Some(labels);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    if cut {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    if annotations.is_empty() {
        metadata.annotations = None;
    }
    let wanted = Endpoints { metadata, subsets: (!subsets.is_empty()).then_some(subsets) };
    let same = current.is_some_and(|current| {
        let present = current.subsets.as_deref().unwrap_or_default();
        current.metadata.labels == wanted.metadata.labels
            && current.metadata.annotations.clone().unwrap_or_default()
                == wanted.metadata.annotations.clone().unwrap_or_default()
            && present == wanted.subsets.as_deref().unwrap_or_default()
    });
    (!same).then_some(wanted)
}

/// Addresses with the same ports stand together; those of pods that are not ready stand apart.
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let family = spec.ip_families.as_ref().and_then(|families| families.first()).map_or("IPv4", String::as_str);
    let tolerant = spec.publish_not_ready_addresses == Some(true);
    let mut groups: BTreeMap<Ports, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pods::is_terminal(pod)) {
        if pod.metadata.is_deleting() && !tolerant {
            continue;
        }
        let Some(ip) = services::address_of_family(pod, family) else { continue };
        let Some(ports) = ports(spec, pod) else { continue };
        let address = EndpointAddress {
            ip: ip.to_owned(),
            hostname: services::host_name(pod, service).map(str::to_owned),
            node_name: pods::node_name(pod).map(str::to_owned),
            target_ref: Some(pods::reference(pod)),
        };
        let (ready, unready) = groups.entry(ports).or_default();
        if tolerant || pods::is_ready(pod) { ready.push(address) } else { unready.push(address) }
    }
    let subset = |(ports, (mut ready, mut unready)): (Ports, (Vec<EndpointAddress>, Vec<EndpointAddress>))| {
        ready.sort_by(|a, b| a.ip.cmp(&b.ip));
        unready.sort_by(|a, b| a.ip.cmp(&b.ip));
        let ports = ports.into_iter().map(|(name, port, protocol, app_protocol)| EndpointPort {
            name: (!name.is_empty()).then_some(name),
            port,
            protocol: Some(protocol),
            app_protocol,
        });
        let ports: Vec<EndpointPort> = ports.collect();
        EndpointSubset {
            addresses: (!ready.is_empty()).then_some(ready),
            not_ready_addresses: (!unready.is_empty()).then_some(unready),
            ports: (!ports.is_empty()).then_some(ports),
        }
    };
    groups.into_iter().map(subset).collect()
}

/// The pod's ports behind the Service's; `None` if it has none of them, unless the Service is headless and names no port.
fn ports(spec: &ServiceSpec, pod: &Pod) -> Option<Ports> {
    let wanted = spec.ports.as_deref().unwrap_or_default();
    if wanted.is_empty() {
        return is_headless(spec).then(Vec::new);
    }
    let mut ports: Ports = wanted
        .iter()
        .filter_map(|port| {
            let number = services::target_port(pod, port)?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((port.name.clone().unwrap_or_default(), number, protocol, port.app_protocol.clone()))
        })
        .collect();
    ports.sort();
    (!ports.is_empty()).then_some(ports)
}

/// Cuts the addresses to what an object may hold: unready ones go first.
fn truncated(mut subsets: Vec<EndpointSubset>) -> (Vec<EndpointSubset>, bool) {
    let count = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
    let all: usize = subsets.iter().map(|subset| count(&subset.addresses) + count(&subset.not_ready_addresses)).sum();
    if all <= MOST {
        return (subsets, false);
    }
    let mut room = MOST;
    let mut cut = |addresses: &mut Option<Vec<EndpointAddress>>| {
        if let Some(addresses) = addresses {
            addresses.truncate(room);
            room -= addresses.len();
        }
        if addresses.as_ref().is_some_and(Vec::is_empty) {
            *addresses = None;
        }
    };
    subsets.iter_mut().for_each(|subset| cut(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    (subsets, true)
}
