//! What decisions depend on: policies, pods and namespaces, read from the API's objects once.
//!
//! Nothing the objects say is trusted to be well-formed. What cannot be read allows nothing: a peer with a bad block is nobody,
//! and a policy whose selector cannot be read selects every pod of its namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rules::protocol::Protocol;
use rules::selectors::LabelSelector;

use crate::ports::{NamedPorts, Ports, Range};

pub type Labels = BTreeMap<String, String>;

/// Seen from the pod that a policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
    /// What goes out to the very node that the pod is on. NetworkPolicies do not speak of it, policies of the cluster do.
    Node,
}

impl Direction {
    /// Those that policies speak of.
    pub const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];
    /// Those that are judged.
    pub const ALL: [Self; 3] = [Self::Ingress, Self::Egress, Self::Node];
}

/// A policy's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyName {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for PolicyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.is_empty() {
            // A policy of the cluster.
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

/// A NetworkPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub name: PolicyName,
    /// The pods it is about; those of its namespace only.
    pub pods: LabelSelector,
    /// What may come in; absent if it does not isolate pods from what comes in.
    pub ingress: Option<Vec<Rule>>,
    /// What may go out; absent if it does not isolate pods from what they may reach.
    pub egress: Option<Vec<Rule>>,
}

/// Peers and ports that are allowed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Who may be at the other end; absent for anybody.
    pub peers: Option<Vec<Peer>>,
    pub ports: Ports,
    /// Ports by name: those of the pod that is connected to.
    pub named: Vec<(String, Protocol)>,
}

/// One end of an allowed connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Peer {
    Pods(PeerPods),
    Block(Block),
    /// The addresses of nodes with these labels.
    Nodes(LabelSelector),
}

/// Pods by labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerPods {
    pub namespaces: Namespaces,
    pub pods: LabelSelector,
}

/// The namespaces of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Namespaces {
    /// That of the policy.
    Own(String),
    Selected(LabelSelector),
    /// All, even those that are not known.
    Any,
}

/// Addresses, but for some of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    pub range: IpNet,
    pub except: Vec<IpNet>,
}

impl Block {
    pub fn contains(&self, part: &IpNet) -> bool {
        self.range.contains(part) && !self.except.iter().any(|except| except.contains(part))
    }

    /// The ranges that it makes differences between.
    pub fn borders(&self) -> impl Iterator<Item = IpNet> + '_ {
        std::iter::once(self.range).chain(self.except.iter().copied())
    }
}

impl Policy {
    /// Reads a policy; nothing if it has no name.
    pub fn of(policy: &NetworkPolicy) -> Option<Self> {
        let name = PolicyName {
            namespace: policy.metadata.namespace.clone().unwrap_or_default(),
            name: policy.metadata.name.clone()?,
        };
        let spec = policy.spec.clone().unwrap_or_default();
        let pods = spec.pod_selector.unwrap_or_default();
        let types = spec.policy_types.unwrap_or_default();
        let egress = spec.egress.unwrap_or_default();
        let is = |wanted: &str| types.iter().any(|kind| kind == wanted);
        let (in_force, out_force) =
            if types.is_empty() { (true, !egress.is_empty()) } else { (is("Ingress"), is("Egress")) };
        let rule = |peers: Option<Vec<NetworkPolicyPeer>>, ports: Option<Vec<NetworkPolicyPort>>| {
            let (ports, named) = read_ports(ports.unwrap_or_default());
            let peers = peers.filter(|peers| !peers.is_empty());
            let read = |peers: Vec<NetworkPolicyPeer>| {
                peers.iter().filter_map(|peer| Peer::of(peer, &name.namespace)).collect()
            };
            Rule { peers: peers.map(read), ports, named }
        };
        let ingress = spec.ingress.unwrap_or_default().into_iter().map(|r| rule(r.from, r.ports)).collect();
        let egress = egress.into_iter().map(|r| rule(r.to, r.ports)).collect();
        Some(Self {
            pods: LabelSelector::parse(Some(&pods)).unwrap_or_default(),
            ingress: in_force.then_some(ingress),
            egress: out_force.then_some(egress),
            name,
        })
    }

    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress | Direction::Node => self.egress.as_deref(),
        }
    }

    /// Whether a pod of a namespace is one of those that it is about.
    pub fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        self.name.namespace == namespace && self.pods.matches(Some(labels))
    }
}

/// No ports at all in the API are all of them.
fn read_ports(ports: Vec<NetworkPolicyPort>) -> (Ports, Vec<(String, Protocol)>) {
    if ports.is_empty() {
        return (Ports::all(), Vec::new());
    }
    let (mut numbers, mut names) = (Vec::new(), BTreeSet::new());
    for port in ports {
        let Some(protocol) = Protocol::parse(port.protocol.as_deref()) else { continue };
        match port.port {
            None => numbers.push(Range { protocol, first: 0, last: u16::MAX }),
            Some(IntOrString::Int(first)) => {
                let last = port.end_port.unwrap_or(first);
                if let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) {
                    numbers.push(Range { protocol, first, last });
                }
            }
            Some(IntOrString::String(name)) => {
                names.insert((name, protocol));
            }
        }
    }
    (Ports::of(numbers), names.into_iter().collect())
}

impl Peer {
    fn of(peer: &NetworkPolicyPeer, own: &str) -> Option<Self> {
        if let Some(block) = &peer.ip_block {
            let except = block.except.iter().flatten().map(|range| range.parse::<IpNet>());
            let except = except.collect::<Result<Vec<_>, _>>().ok()?;
            let range = block.cidr.parse::<IpNet>().ok()?.trunc();
            return Some(Self::Block(Block { range, except: except.iter().map(IpNet::trunc).collect() }));
        }
        let namespaces = match &peer.namespace_selector {
            Some(selector) => Namespaces::Selected(LabelSelector::parse(Some(selector)).ok()?),
            None => Namespaces::Own(own.to_owned()),
        };
        let pods = peer.pod_selector.as_ref();
        if peer.namespace_selector.is_none() && pods.is_none() {
            return None;
        }
        // Without a selector all pods of the namespaces are meant.
        let pods = pods.map_or_else(|| Ok(LabelSelector::default()), |pods| LabelSelector::parse(Some(pods))).ok()?;
        Some(Self::Pods(PeerPods { namespaces, pods }))
    }
}

impl PeerPods {
    /// Whether a pod with these labels is meant, in a namespace with those; a namespace that is not known is not selected.
    pub fn matches(&self, namespace: &str, namespace_labels: Option<&Labels>, labels: &Labels) -> bool {
        let at_home = match &self.namespaces {
            Namespaces::Own(own) => own == namespace,
            Namespaces::Any => true,
            Namespaces::Selected(selector) => namespace_labels.is_some_and(|labels| selector.matches(Some(labels))),
        };
        at_home && self.pods.matches(Some(labels))
    }
}

/// What pods have in common that no policy can tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alike {
    pub namespace: String,
    pub labels: Labels,
    pub ports: NamedPorts,
}

/// A pod that has addresses of its own and has not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    pub name: String,
    pub alike: Arc<Alike>,
    pub addresses: BTreeSet<IpAddr>,
    /// The node it runs on.
    pub node: String,
    /// When it was made, in seconds since 1970: the younger of two has an address that both claim.
    pub created: i64,
}

impl PodFacts {
    /// Reads a pod; nothing if policies are not about it: it shares its node's addresses, or has given its own back.
    /// Addresses may be known before the API shows them.
    pub fn of(pod: &Pod, known: &[IpAddr]) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref();
        if spec.host_network == Some(true)
            || matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
        {
            return None;
        }
        let shown = status.and_then(|s| s.pod_ips.as_ref()).into_iter().flatten().map(|ip| ip.ip.as_str());
        let shown = shown.chain(status.and_then(|s| s.pod_ip.as_deref())).filter_map(|ip| ip.parse().ok());
        let addresses: BTreeSet<IpAddr> =
            if known.is_empty() { shown.collect() } else { known.iter().copied().collect() };
        let mut ports = NamedPorts::new();
        // Sidecars are init containers that go on running.
        let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
        for port in spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten()) {
            let read =
                (port.name.clone(), Protocol::parse(port.protocol.as_deref()), u16::try_from(port.container_port));
            if let (Some(name), Some(protocol), Ok(number)) = read {
                ports.entry((name, protocol)).or_default().push(number);
            }
        }
        Some(Self {
            name: pod.metadata.name.clone()?,
            alike: Arc::new(Alike {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                labels: pod.metadata.labels.clone().unwrap_or_default(),
                ports,
            }),
            addresses,
            node: spec.node_name.clone().unwrap_or_default(),
            created: pod.metadata.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second()),
        })
    }
}

/// A node's labels and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub labels: Labels,
    pub addresses: BTreeSet<IpAddr>,
}

impl NodeFacts {
    pub fn of(node: &Node) -> Self {
        let shown = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            addresses: shown.filter_map(|address| address.address.parse().ok()).collect(),
        }
    }
}

/// The addresses of the nodes that a selector means.
pub fn addresses_of(selector: &LabelSelector, nodes: &BTreeMap<String, NodeFacts>) -> BTreeSet<IpAddr> {
    let meant = nodes.values().filter(|node| selector.matches(Some(&node.labels)));
    meant.flat_map(|node| node.addresses.iter().copied()).collect()
}

/// The labels of a namespace, with its name.
pub fn namespace(namespace: &Namespace) -> Option<(String, Labels)> {
    Some((namespace.metadata.name.clone()?, namespace.metadata.labels.clone().unwrap_or_default()))
}
