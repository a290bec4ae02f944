//! The cluster's names: an index of Services by namespace and name, and of addresses back to names.
//!
//! Built one Service at a time from the objects, so that answering a question touches nothing but this. What a name
//! means is decided in [`crate::answer`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::rr::Name;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name; a port without one has no SRV name of its own.
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: &'static str,
    pub number: u16,
}

/// One pod behind a headless Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its hostname, or one made of its address.
    pub hostname: String,
    pub address: IpAddr,
    pub ports: Arc<[Port]>,
}

/// What a Service is to DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// It has addresses of its own.
    Addresses { addresses: Vec<IpAddr>, ports: Vec<Port> },
    /// Its name stands for its pods.
    Headless(Vec<Member>),
    /// Its name stands for another name.
    External(Name),
}

impl Entry {
    /// What a Service with these slices is; nothing if it has no name to give (an invalid external name, no address yet).
    pub fn of<'a>(service: &Service, slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            let mut name = Name::from_ascii(spec.external_name.as_deref()?).ok()?;
            name.set_fqdn(true);
            return Some(Self::External(name.to_lowercase()));
        }
        if spec.cluster_ip.as_deref() == Some("None") {
            return Some(Self::Headless(members(slices)));
        }
        let given = spec.cluster_ips.as_ref().filter(|ips| !ips.is_empty());
        let texts: Vec<&String> = given.map_or_else(|| spec.cluster_ip.iter().collect(), |ips| ips.iter().collect());
        let addresses: Vec<IpAddr> = texts.into_iter().filter_map(|ip| ip.parse().ok()).collect();
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let (protocol, number) = (protocol(port.protocol.as_deref())?, u16::try_from(port.port).ok()?);
            Some(Port { name: port.name.clone().unwrap_or_default(), protocol, number })
        });
        (!addresses.is_empty()).then(|| Self::Addresses { addresses, ports: ports.collect() })
    }
}

/// The ready endpoints of all slices, each address and hostname once, in a stable order.
fn members<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Vec<Member> {
    let mut members = Vec::new();
    let mut seen = HashSet::new();
    for slice in slices.into_iter().filter(|slice| slice.address_type != "FQDN") {
        let ports: Arc<[Port]> = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| {
                let (protocol, number) = (protocol(port.protocol.as_deref())?, u16::try_from(port.port?).ok()?);
                Some(Port { name: port.name.clone().unwrap_or_default(), protocol, number })
            })
            .collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
            let address = endpoint.addresses.first().and_then(|a| a.parse::<IpAddr>().ok());
            let Some(address) = address.filter(|_| ready) else { continue };
            let hostname = endpoint.hostname.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| dashed(address));
            if seen.insert((address, hostname.clone())) {
                members.push(Member { hostname: hostname.to_ascii_lowercase(), address, ports: ports.clone() });
            }
        }
    }
    members.sort_by(|a, b| (a.address, &a.hostname).cmp(&(b.address, &b.hostname)));
    members
}

fn protocol(text: Option<&str>) -> Option<&'static str> {
    match text {
        None | Some("" | "TCP") => Some("tcp"),
        Some("UDP") => Some("udp"),
        Some("SCTP") => Some("sctp"),
        Some(_) => None,
    }
}

/// An address as a label: `10-1-0-2`, `fd01--2`.
fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// The address a label stands for: dots if it can be one of IPv4, else colons.
pub fn undashed(label: &str) -> Option<IpAddr> {
    let (v4, v6) = (label.replace('-', "."), label.replace('-', ":"));
    v4.parse().ok().map(IpAddr::V4).or_else(|| v6.parse().ok().map(IpAddr::V6))
}

/// The names of a namespace.
#[derive(Debug, Default)]
struct Namespace {
    /// The object itself was seen; Services may be known before it is.
    exists: bool,
    services: HashMap<String, Entry>,
}

/// All names of the cluster.
#[derive(Debug)]
pub struct Zone {
    /// Where the cluster's names end, in lower case: `cluster.local.`
    pub origin: Name,
    /// How long an answer may be remembered, in seconds.
    pub ttl: u32,
    /// Where this server answers.
    pub servers: Vec<IpAddr>,
    pub serial: u32,
    /// Ranges whose reverse names nobody else knows better.
    pub ranges: Vec<ipnet::IpNet>,
    namespaces: HashMap<String, Namespace>,
    reverse: HashMap<IpAddr, BTreeSet<Name>>,
}

impl Zone {
    /// A zone without names.
    pub fn new(origin: &Name, ttl: u32, servers: Vec<IpAddr>, ranges: Vec<ipnet::IpNet>) -> Self {
        let mut origin = origin.to_lowercase();
        origin.set_fqdn(true);
        Self { origin, ttl, servers, serial: 1, ranges, namespaces: HashMap::new(), reverse: HashMap::new() }
    }

    /// Whether there is a namespace of this name, or a Service in it.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.namespaces.get(namespace)?.services.get(name)
    }

    /// The names an address belongs to.
    pub fn names_of(&self, address: IpAddr) -> impl Iterator<Item = &Name> {
        self.reverse.get(&address).into_iter().flatten()
    }

    /// A namespace came or went.
    pub fn set_namespace(&mut self, name: &str, exists: bool) {
        self.serial = self.serial.wrapping_add(1);
        self.namespaces.entry(name.to_owned()).or_default().exists = exists;
        self.forget_if_empty(name);
    }

    /// A Service is now this, or gone.
    pub fn set_service(&mut self, namespace: &str, name: &str, entry: Option<Entry>) {
        let known = self.namespaces.entry(namespace.to_owned()).or_default();
        let old = match &entry {
            Some(entry) => known.services.insert(name.to_owned(), entry.clone()),
            None => known.services.remove(name),
        };
        if old != entry {
            self.serial = self.serial.wrapping_add(1);
            for (address, name) in self.reverse_of(namespace, name, old.as_ref()) {
                if let Some(names) = self.reverse.get_mut(&address) {
                    names.remove(&name);
                    if names.is_empty() {
                        self.reverse.remove(&address);
                    }
                }
            }
            for (address, name) in self.reverse_of(namespace, name, entry.as_ref()) {
                self.reverse.entry(address).or_default().insert(name);
            }
        }
        self.forget_if_empty(namespace);
    }

    fn forget_if_empty(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(|n| !n.exists && n.services.is_empty()) {
            self.namespaces.remove(namespace);
        }
    }

    /// The name of a Service; none if it would be too long to be one.
    pub fn service_name(&self, namespace: &str, name: &str) -> Option<Name> {
        let labels = [name, namespace, "svc"].map(str::as_bytes);
        Name::from_labels(labels).ok()?.append_domain(&self.origin).ok()
    }

    fn reverse_of(&self, namespace: &str, name: &str, entry: Option<&Entry>) -> Vec<(IpAddr, Name)> {
        let Some(service) = self.service_name(namespace, name) else { return Vec::new() };
        match entry {
            Some(Entry::Addresses { addresses, .. }) => addresses.iter().map(|ip| (*ip, service.clone())).collect(),
            Some(Entry::Headless(members)) => members
                .iter()
                .filter_map(|m| Some((m.address, service.prepend_label(m.hostname.as_str()).ok()?)))
                .collect(),
            Some(Entry::External(_)) | None => Vec::new(),
        }
    }
}
