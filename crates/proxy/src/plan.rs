//! What one Service adds to the packet rules of this node: pure, one Service and one family at a time.
//!
//! Nearly everything is an element of a map whose key is what the packet is addressed to; the chains that look the
//! maps up are the same for all Services ([`crate::render`]). The way of a new connection:
//!
//! ```text
//! service-ips[address . protocol . port] ─► cluster-tcp-N ─► endpoints-tcp[address . port . random below N] ─► dnat
//!                                       └─► external / external-local: masquerade, short cuts, then via-cluster or
//!                                           via-local with the same key ─► cluster-tcp-N / local-tcp-N
//! ```
//!
//! So a packet costs the same few look-ups however many Services there are, and a new endpoint is one new element and
//! one changed verdict. Only client affinity, which needs a set of remembered clients per endpoint, and source ranges
//! have chains of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use rules::protocol::Protocol;

use crate::choose::{Chosen, choose};
use crate::model::{Endpoint, Endpoints, Family, NodeView, ServiceName, ServicePort};

/// What a packet is addressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frontend {
    /// An address of the Service.
    Address(IpAddr, Protocol, u16),
    /// A port on any address of the node.
    NodePort(Protocol, u16),
}

impl Frontend {
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Address(_, protocol, _) | Self::NodePort(protocol, _) => *protocol,
        }
    }

    /// Whether it is a node port.
    pub fn is_node_port(&self) -> bool {
        matches!(self, Self::NodePort(..))
    }
}

/// Which list of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Cluster,
    Local,
}

/// The maps from a frontend to a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dispatch {
    /// Where every packet begins.
    Entry,
    /// Where external traffic goes that may use any node's endpoints.
    ViaCluster,
    /// Where external traffic goes that must stay here.
    ViaLocal,
    /// Traffic nobody here answers.
    Refused,
    /// Traffic whose source is checked first.
    Firewall,
}

/// The key of an element: which map or set, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An address some Service has as its ClusterIP.
    ClusterIp(IpAddr),
    /// An endpoint on this node that may reach itself through a Service.
    Hairpin(IpAddr),
    /// A frontend in one of the dispatch maps.
    Dispatch(Dispatch, Frontend),
    /// The endpoint with this number behind a frontend.
    Endpoint(Scope, Frontend, u32),
}

/// Where a dispatch map sends a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// To one of that many endpoints.
    Pick(Scope, u32),
    /// To the external chain; `true` for the one of local policy.
    External(bool),
    /// To a chain of the Service's own.
    Chain(String),
    /// Refused, so that the client knows at once.
    Reject,
    /// Dropped in silence: a load balancer is expected to try another node.
    Drop,
}

/// The value of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In a set, being there is all.
    Member,
    /// In a dispatch map.
    Verdict(Verdict),
    /// In an endpoint map.
    Target(IpAddr, u16),
}

/// Everything one Service adds to one family's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contribution {
    pub elements: BTreeMap<Key, Value>,
    /// Chains of its own, with their rules.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Sets of remembered clients, with the seconds they are remembered.
    pub clients: BTreeMap<String, u32>,
}

impl Contribution {
    /// Whether the Service adds nothing.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.chains.is_empty()
    }

    /// The first claim on a key within one Service stands: ClusterIP before external addresses, earlier ports first.
    fn add(&mut self, key: Key, value: Value) {
        self.elements.entry(key).or_insert(value);
    }

    fn dispatch(&mut self, map: Dispatch, frontend: Frontend, verdict: Verdict) {
        self.add(Key::Dispatch(map, frontend), Value::Verdict(verdict));
    }
}

/// Computes what a Service with these ports and endpoints adds on this node.
pub fn plan(
    name: &ServiceName,
    ports: &[ServicePort],
    endpoints: &Endpoints,
    node: &NodeView,
    family: Family,
) -> Contribution {
    let mut out = Contribution::default();
    for port in ports.iter().filter(|port| !node.served_here.contains(&port.cluster_ip)) {
        let chosen = choose(port, endpoints.of_port(port), node);
        Port { name, port, chosen: &chosen, node, family }.plan(&mut out);
    }
    out
}

/// One port on its way into the rules.
struct Port<'a> {
    name: &'a ServiceName,
    port: &'a ServicePort,
    chosen: &'a Chosen<'a>,
    node: &'a NodeView,
    family: Family,
}

impl Port<'_> {
    fn plan(&self, out: &mut Contribution) {
        let port = self.port;
        for endpoint in self.chosen.reachable().filter(|e| e.local) {
            out.add(Key::Hairpin(endpoint.address), Value::Member);
        }
        if port.affinity.is_some() {
            self.affinity(out);
        }
        out.add(Key::ClusterIp(port.cluster_ip), Value::Member);
        self.internal(out);
        for ip in &port.external {
            self.external(out, Frontend::Address(*ip, port.protocol, port.port));
        }
        if let Some(number) = port.node_port {
            self.external(out, Frontend::NodePort(port.protocol, number));
        }
        self.firewall(out);
    }

    fn internal(&self, out: &mut Contribution) {
        let frontend = Frontend::Address(self.port.cluster_ip, self.port.protocol, self.port.port);
        let scope = if self.port.internal_local { Scope::Local } else { Scope::Cluster };
        match self.pick(out, scope, frontend) {
            Some(verdict) => out.dispatch(Dispatch::Entry, frontend, verdict),
            None => out.dispatch(Dispatch::Refused, frontend, self.refusal()),
        }
    }

    /// NodePorts, external addresses and those of load balancers.
    fn external(&self, out: &mut Contribution, frontend: Frontend) {
        let local_policy = self.port.external_local;
        if self.chosen.anywhere {
            out.dispatch(Dispatch::Entry, frontend, Verdict::External(local_policy));
            if let Some(verdict) = self.pick(out, Scope::Cluster, frontend) {
                out.dispatch(Dispatch::ViaCluster, frontend, verdict);
            }
        }
        let wanted = if local_policy { Scope::Local } else { Scope::Cluster };
        if self.list(wanted).is_empty() {
            out.dispatch(Dispatch::Refused, frontend, self.refusal());
        } else if local_policy && let Some(verdict) = self.pick(out, Scope::Local, frontend) {
            out.dispatch(Dispatch::ViaLocal, frontend, verdict);
        }
    }

    /// Where a frontend's traffic goes, with the endpoints it chooses among; nowhere if there are none.
    fn pick(&self, out: &mut Contribution, scope: Scope, frontend: Frontend) -> Option<Verdict> {
        let list = self.list(scope);
        let count = u32::try_from(list.len()).ok().filter(|count| *count > 0)?;
        if self.port.affinity.is_some() {
            return Some(Verdict::Chain(self.chain(scope)));
        }
        for (number, endpoint) in (0..).zip(list) {
            out.add(Key::Endpoint(scope, frontend, number), Value::Target(endpoint.address, endpoint.port));
        }
        Some(Verdict::Pick(scope, count))
    }

    fn refusal(&self) -> Verdict {
        if self.chosen.anywhere { Verdict::Drop } else { Verdict::Reject }
    }

    fn list(&self, scope: Scope) -> &[&Endpoint] {
        match scope {
            Scope::Cluster => &self.chosen.cluster,
            Scope::Local => &self.chosen.local,
        }
    }

    /// A chain per list: known clients go to their endpoint, others to any; a chain and a set of clients per endpoint.
    fn affinity(&self, out: &mut Contribution) {
        let seconds = self.port.affinity.expect("only called for ports with affinity");
        let ip = family_word(self.family);
        for scope in [Scope::Cluster, Scope::Local] {
            let list = self.list(scope);
            if list.is_empty() {
                continue;
            }
            let known = list.iter().map(|e| format!("{ip} saddr @{} goto {}", self.clients(e), self.endpoint(e)));
            let numbered = (0..).zip(list).map(|(n, e): (u32, _)| format!("{n} : goto {}", self.endpoint(e)));
            let any =
                format!("numgen random mod {} vmap {{ {} }}", list.len(), numbered.collect::<Vec<_>>().join(", "));
            out.chains.insert(self.chain(scope), known.chain([any]).collect());
        }
        for endpoint in self.chosen.reachable() {
            let clients = self.clients(endpoint);
            let target = Target(endpoint.address, endpoint.port);
            let rules = vec![
                format!("update @{clients} {{ {ip} saddr }}"),
                format!("meta l4proto {} dnat to {target}", self.port.protocol),
            ];
            out.chains.insert(self.endpoint(endpoint), rules);
            out.clients.insert(clients, seconds);
        }
    }

    /// Source ranges of the load balancer's addresses. A node inside the ranges may also come with the load balancer's own
    /// address as its source, because that address is often local to the node.
    fn firewall(&self, out: &mut Contribution) {
        let port = self.port;
        if port.sources.is_empty() || port.load_balancer.is_empty() {
            return;
        }
        let chain = self.own("firewall");
        for ip in &port.load_balancer {
            let frontend = Frontend::Address(*ip, port.protocol, port.port);
            out.dispatch(Dispatch::Firewall, frontend, Verdict::Chain(chain.clone()));
        }
        let mut sources: BTreeSet<String> = port.sources.iter().map(ToString::to_string).collect();
        if self.node.addresses.iter().any(|ip| port.sources.iter().any(|range| range.contains(ip))) {
            let outside = |ip: &&IpAddr| !port.sources.iter().any(|range| range.contains(*ip));
            sources.extend(port.load_balancer.iter().filter(outside).map(ToString::to_string));
        }
        let sources: Vec<String> = sources.into_iter().collect();
        let rule = format!("{} saddr != {{ {} }} drop", family_word(self.family), sources.join(", "));
        out.chains.insert(chain, vec![rule]);
    }

    fn chain(&self, scope: Scope) -> String {
        self.own(match scope {
            Scope::Cluster => "service",
            Scope::Local => "local",
        })
    }

    fn endpoint(&self, endpoint: &Endpoint) -> String {
        self.own_of("endpoint", endpoint)
    }

    fn clients(&self, endpoint: &Endpoint) -> String {
        self.own_of("affinity", endpoint)
    }

    /// A name nobody else's chain can have: Kubernetes names have no slash. The longest one has 205 characters, and 251 with
    /// an endpoint's address; the kernel takes 255.
    fn own(&self, kind: &str) -> String {
        format!("{kind}/{}/{}/{}", self.name, self.port.protocol, self.port.name)
    }

    fn own_of(&self, kind: &str, endpoint: &Endpoint) -> String {
        // Colons are not allowed in a name.
        let address = endpoint.address.to_string().replace(':', ".");
        format!("{}/{address}/{}", self.own(kind), endpoint.port)
    }
}

/// The word for a family in a rule.
pub fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// `address:port` as `dnat to` takes it.
struct Target(IpAddr, u16);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => write!(f, "{ip}:{}", self.1),
            IpAddr::V6(ip) => write!(f, "[{ip}]:{}", self.1),
        }
    }
}
