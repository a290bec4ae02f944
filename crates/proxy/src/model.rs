//! What the proxy knows of a Service, its endpoints and its node, reduced to what decides about packets.
//!
//! Everything a rule depends on is parsed and checked here, once, so that [`crate::plan`] only ever sees valid
//! addresses of the right family. A field the proxy cannot use (an unparsable address, a loopback endpoint) is left
//! out, never an error: one bad object must not take the others' rules with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice};
use rules::protocol::Protocol;

/// Label of an EndpointSlice naming its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label by which another proxy claims a Service.
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// Label of slices that nothing is proxied to: those of headless Services, and those that others made and marked so.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// How long a client keeps its endpoint when the Service asks for affinity without a number.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// An address family; each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Both, in the order they are written.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Whether a range is of this family.
    pub fn has(self, range: &IpNet) -> bool {
        Self::of(range.addr()) == self
    }
}

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

impl ServiceName {
    pub fn of(service: &Service) -> Option<Self> {
        let meta = &service.metadata;
        Some(Self { namespace: meta.namespace.clone()?, name: meta.name.clone()? })
    }

    /// The Service an EndpointSlice belongs to.
    pub fn of_slice(slice: &EndpointSlice) -> Option<Self> {
        let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
        Some(Self { namespace: slice.metadata.namespace.clone()?, name: name.clone() })
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One port of a Service in one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// The port's name; empty for the only port of a Service.
    pub name: String,
    pub protocol: Protocol,
    /// The Service's address inside the cluster.
    pub cluster_ip: IpAddr,
    /// The port at that address.
    pub port: u16,
    /// The port on every node, if any.
    pub node_port: Option<u16>,
    /// `spec.externalIPs` and the load balancer's addresses, in the order they were given, without repetition.
    pub external: Vec<IpAddr>,
    /// Those of `external` that belong to the load balancer, and so are subject to `sources`.
    pub load_balancer: Vec<IpAddr>,
    /// Who may reach the load balancer's addresses; empty for anyone.
    pub sources: Vec<IpNet>,
    /// Seconds a client sticks to its endpoint; absent without affinity.
    pub affinity: Option<u32>,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
}

impl ServicePort {
    /// Whether anyone outside the cluster is meant to reach it.
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || !self.external.is_empty()
    }

    /// Whether some traffic may go to endpoints on any node. External traffic of pods and of the node itself always may:
    /// it stands for going out to a load balancer and back in anywhere.
    pub fn uses_cluster_endpoints(&self) -> bool {
        !self.internal_local || self.is_external()
    }

    /// Whether some traffic must stay on this node.
    pub fn uses_local_endpoints(&self) -> bool {
        self.internal_local || (self.external_local && self.is_external())
    }

    /// The proxied ports of `service` in one family; none for headless and ExternalName Services, for those of
    /// another proxy, and for those without an address of that family.
    pub fn of(service: &Service, family: Family) -> Vec<Self> {
        let Some(spec) = &service.spec else { return Vec::new() };
        let labels = service.metadata.labels.as_ref();
        let labelled = |label: &str| labels.is_some_and(|labels| labels.contains_key(label));
        if spec.type_.as_deref() == Some("ExternalName") || labelled(PROXY_NAME_LABEL) {
            return Vec::new();
        }
        let ips = spec.cluster_ips.iter().flatten().chain(spec.cluster_ip.iter());
        let Some(cluster_ip) = ips.filter_map(|ip| parse(ip)).find(|ip| Family::of(*ip) == family) else {
            return Vec::new();
        };
        let of_family = |ips: &mut dyn Iterator<Item = &String>| -> Vec<IpAddr> {
            let mut kept = Vec::new();
            for ip in ips.filter_map(|ip| parse(ip)).filter(|ip| Family::of(*ip) == family) {
                if !kept.contains(&ip) {
                    kept.push(ip);
                }
            }
            kept
        };
        let ingress = service.status.iter().flat_map(|s| &s.load_balancer).flat_map(|lb| &lb.ingress).flatten();
        let load_balancer = of_family(
            &mut ingress
                .filter(|i| i.ip_mode.as_deref().is_none_or(|mode| mode == "VIP"))
                .filter_map(|i| i.ip.as_ref()),
        );
        let mut external = of_family(&mut spec.external_ips.iter().flatten());
        external.extend(load_balancer.iter().filter(|ip| !external.contains(ip)).copied().collect::<Vec<_>>());
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref());
            let seconds = config.and_then(|c| c.timeout_seconds).and_then(|s| u32::try_from(s).ok());
            seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_AFFINITY_SECONDS)
        });
        let external_local =
            is_externally_accessible(service) && spec.external_traffic_policy.as_deref() == Some("Local");
        let sources = source_ranges(spec.load_balancer_source_ranges.as_deref().unwrap_or_default(), family);
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            Some(Self {
                name: port.name.clone().unwrap_or_default(),
                protocol: Protocol::parse(port.protocol.as_deref())?,
                cluster_ip,
                port: usable_port(port.port)?,
                node_port: port.node_port.and_then(usable_port),
                external: external.clone(),
                load_balancer: load_balancer.clone(),
                sources: sources.clone(),
                affinity,
                external_local,
                internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            })
        });
        ports.collect()
    }
}

/// The port an external load balancer asks for this node's part of a Service, if the Service has one.
pub fn health_check_port(service: &Service) -> Option<u16> {
    let spec = service.spec.as_ref()?;
    let wanted = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local")
        && !ServicePort::of(service, Family::V4).is_empty() | !ServicePort::of(service, Family::V6).is_empty();
    wanted.then_some(spec.health_check_node_port?).and_then(usable_port)
}

fn is_externally_accessible(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    match spec.type_.as_deref() {
        Some("LoadBalancer" | "NodePort") => true,
        None | Some("ClusterIP") => spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty()),
        Some(_) => false,
    }
}

/// A range that holds every address means the same as no range at all.
fn source_ranges(ranges: &[String], family: Family) -> Vec<IpNet> {
    let parsed: Vec<IpNet> = ranges.iter().filter_map(|r| r.trim().parse().ok()).filter(|r| family.has(r)).collect();
    if parsed.iter().any(|range| range.prefix_len() == 0) { Vec::new() } else { IpNet::aggregate(&parsed) }
}

/// Who answers for a Service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
    /// Whether it runs on this node.
    pub local: bool,
    /// Whether it takes new connections.
    pub ready: bool,
    /// Whether it answers at all, even while it terminates.
    pub serving: bool,
    /// Whether it is about to end.
    pub terminating: bool,
    /// Zones it should serve; empty without hints.
    pub zones: BTreeSet<String>,
    /// Nodes it should serve; empty without hints.
    pub nodes: BTreeSet<String>,
}

impl Endpoint {
    /// Whether it still answers although it is about to end: a last resort.
    pub fn is_serving_terminating(&self) -> bool {
        self.serving && self.terminating
    }
}

/// The endpoints of every port of one Service, by the port's name and protocol, ordered by address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints(BTreeMap<(String, Protocol), BTreeMap<(IpAddr, u16), Endpoint>>);

impl Endpoints {
    /// Collects the slices of one Service.
    pub fn of<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>, node: &str) -> Self {
        let mut all = Self::default();
        let headless = |slice: &EndpointSlice| {
            slice.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(HEADLESS_LABEL))
        };
        for slice in slices.into_iter().filter(|slice| !headless(slice)) {
            for port in slice.ports.iter().flatten() {
                let Some(protocol) = Protocol::parse(port.protocol.as_deref()) else { continue };
                let Some(number) = port.port.and_then(usable_port) else { continue };
                let key = (port.name.clone().unwrap_or_default(), protocol);
                for endpoint in slice.endpoints.iter().flatten() {
                    all.add(&key, number, endpoint, node);
                }
            }
        }
        all
    }

    fn add(&mut self, key: &(String, Protocol), port: u16, endpoint: &SliceEndpoint, node: &str) {
        let Some(address) = endpoint.addresses.first().and_then(|a| parse(a)).filter(|a| is_routable(*a)) else {
            return;
        };
        let conditions = endpoint.conditions.as_ref();
        let hints = endpoint.hints.as_ref();
        let new = Endpoint {
            address,
            port,
            local: endpoint.node_name.as_deref() == Some(node),
            ready: conditions.and_then(|c| c.ready).unwrap_or(true),
            serving: conditions.and_then(|c| c.serving).unwrap_or(true),
            terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
            zones: hints.iter().flat_map(|h| &h.for_zones).flatten().map(|z| z.name.clone()).collect(),
            nodes: hints.iter().flat_map(|h| &h.for_nodes).flatten().map(|n| n.name.clone()).collect(),
        };
        self.insert(key.clone(), new);
    }

    pub(crate) fn insert(&mut self, key: (String, Protocol), new: Endpoint) {
        let (address, port) = (new.address, new.port);
        let of_port = self.0.entry(key).or_default();
        // The same address twice: it moves between two slices, or a new pod got it while the old one ends. The one that
        // is not terminating is the living one; between equals the outcome must not depend on the order of slices.
        let rank = |e: &Endpoint| (!e.terminating, e.ready, e.serving, e.local);
        match of_port.get(&(address, port)) {
            Some(known) if rank(known) >= rank(&new) => {}
            _ => drop(of_port.insert((address, port), new)),
        }
    }

    /// The endpoints of one Service port.
    pub fn of_port<'a>(&'a self, port: &ServicePort) -> impl Iterator<Item = &'a Endpoint> + use<'a> {
        let family = Family::of(port.cluster_ip);
        let known = self.0.get(&(port.name.clone(), port.protocol));
        known.into_iter().flat_map(BTreeMap::values).filter(move |e| Family::of(e.address) == family)
    }

    /// How many distinct pods on this node are ready, whatever the port.
    pub fn local_ready(&self) -> usize {
        let ready = self.0.values().flat_map(BTreeMap::values).filter(|e| e.local && e.ready);
        ready.map(|e| e.address).collect::<BTreeSet<_>>().len()
    }
}

/// What the rules depend on besides Services and endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    /// Its zone, for topology hints.
    pub zone: Option<String>,
    pub addresses: Vec<IpAddr>,
    /// Sources that are pods: their traffic to a ClusterIP keeps its source address.
    pub pod_ranges: Vec<IpNet>,
    /// Ranges ClusterIPs come from: what no Service claims there is rejected on this machine.
    pub service_ranges: Vec<IpNet>,
    /// Addresses that take NodePort traffic; a family that is absent does so at every address of the node but loopback.
    pub node_port_addresses: BTreeMap<Family, BTreeSet<IpAddr>>,
    /// Service addresses a process on this node answers itself (cluster DNS): no rule may touch them.
    pub served_here: BTreeSet<IpAddr>,
    /// Masquerade traffic to ClusterIPs whatever its source.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: u8,
}

impl NodeView {
    /// Where health checks of load balancers are answered: where node ports are; empty for everywhere.
    pub fn health_check_addresses(&self) -> Vec<IpAddr> {
        if Family::ALL.iter().all(|family| self.node_port_addresses.contains_key(family)) {
            self.node_port_addresses.values().flatten().copied().collect()
        } else {
            Vec::new()
        }
    }

    /// Takes over what the Node object says: its zone and addresses.
    pub fn observe(&mut self, node: &Node) {
        self.zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL)).cloned();
        let addresses = node.status.iter().flat_map(|s| &s.addresses).flatten();
        self.addresses = addresses.filter(|a| a.type_ == "InternalIP").filter_map(|a| parse(&a.address)).collect();
    }
}

/// An address the API accepts may have leading zeros dropped by older clients only; anything else is no address.
fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn usable_port(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Packets must not be sent to an address that means something else on every machine.
fn is_routable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slices_that_are_marked_headless_count_for_nothing() {
        let slice = |labels: serde_json::Value| -> EndpointSlice {
            serde_json::from_value(json!({"addressType": "IPv4", "metadata": {"labels": labels},
                "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.1.0.1"]}]}))
            .expect("a slice")
        };
        assert_ne!(Endpoints::of([&slice(json!({}))], "n"), Endpoints::default());
        assert_eq!(Endpoints::of([&slice(json!({HEADLESS_LABEL: ""}))], "n"), Endpoints::default());
    }

    #[test]
    fn a_service_is_proxied_unless_another_proxy_has_it() {
        let service = |labels: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"labels": labels},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}))
            .expect("a service")
        };
        for (labels, ports) in [(json!({}), 1), (json!({HEADLESS_LABEL: ""}), 1), (json!({PROXY_NAME_LABEL: "x"}), 0)] {
            assert_eq!(ServicePort::of(&service(labels.clone()), Family::V4).len(), ports, "{labels}");
        }
    }
}
