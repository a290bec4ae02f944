//! What this node's routes should be, from the Nodes of the cluster: pure.
//!
//! A pod range is reached by a direct route when its node is on a link of ours; otherwise, if tunnels are wanted,
//! through one VXLAN interface. Everything a tunnel needs is computed from the Node objects: the far end's link address
//! from its pod range, so nodes exchange nothing but what the API holds anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

/// How pods on other nodes are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By direct routes; nodes that share no link with this one are not reached.
    HostGw,
    /// By direct routes where a link is shared, by VXLAN elsewhere.
    Vxlan,
    /// Somebody else sees to it.
    None,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "host-gw" => Ok(Self::HostGw),
            "vxlan" => Ok(Self::Vxlan),
            "none" => Ok(Self::None),
            _ => Err(format!("pod network {text:?} is none of host-gw, vxlan, none")),
        }
    }
}

/// What a tunnelled packet carries besides itself: outer addresses, UDP, VXLAN and the inner Ethernet header.
const OVERHEAD: (u32, u32) = (50, 70);

/// The largest packet of a pod on a network whose links take `mtu`.
pub fn pod_mtu(mtu: u32, mode: Mode, outer: IpAddr) -> u32 {
    match mode {
        Mode::Vxlan => mtu.saturating_sub(if outer.is_ipv4() { OVERHEAD.0 } else { OVERHEAD.1 }),
        Mode::HostGw | Mode::None => mtu,
    }
}

/// What the plan needs to know of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    /// Its addresses inside the cluster.
    pub addresses: Vec<IpAddr>,
    pub ranges: Vec<IpNet>,
}

impl Peer {
    /// What the Node says; nothing it says is trusted to be well-formed.
    pub fn of(node: &Node) -> Option<Self> {
        let addresses = node.status.iter().flat_map(|s| &s.addresses).flatten();
        let spec = node.spec.as_ref();
        let given = spec.and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
        let ranges = if given.is_empty() { spec.and_then(|s| s.pod_cidr.clone()).into_iter().collect() } else { given };
        Some(Self {
            name: node.metadata.name.clone()?,
            addresses: addresses.filter(|a| a.type_ == "InternalIP").filter_map(|a| a.address.parse().ok()).collect(),
            ranges: ranges.iter().filter_map(|range| range.parse::<IpNet>().ok()).map(|range| range.trunc()).collect(),
        })
    }

    fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|ip| ip.is_ipv4() == other.is_ipv4())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub name: String,
    /// The networks its links are in.
    pub links: Vec<IpNet>,
    /// All pod addresses of the cluster.
    pub cluster_ranges: Vec<IpNet>,
}

/// The other end of the tunnel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tunnel {
    pub node: IpAddr,
    /// The address its tunnel interface answers for: the first of its pods' range, which no pod has.
    pub gateway: IpAddr,
    /// That interface's link address.
    pub mac: String,
}

/// The way to a pod range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Straight to its node.
    Direct(IpAddr),
    Tunnel(Tunnel),
}

/// Our end of the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// The address tunnelled packets come from.
    pub local: IpAddr,
    pub mac: String,
    /// The addresses it answers for, one per range.
    pub addresses: Vec<IpAddr>,
}

/// Everything the pod network needs on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pod ranges of other nodes.
    pub ways: BTreeMap<IpNet, Way>,
    /// Our end of the tunnel, when one is wanted.
    pub tunnel: Option<TunnelEnd>,
    /// Ranges whose unclaimed addresses are refused here.
    pub refused: BTreeSet<IpNet>,
    /// Our pods' ranges: what leaves the cluster from there takes the node's address.
    pub own: BTreeSet<IpNet>,
    /// Where no such change is made: all pods and all nodes.
    pub inside: BTreeSet<IpNet>,
    /// Nodes whose pods cannot be reached, and why.
    pub unreachable: BTreeMap<String, String>,
}

pub fn plan(here: &Here, peers: &[Peer], mode: Mode) -> Plan {
    let mut plan = Plan { refused: here.cluster_ranges.iter().copied().collect(), ..Plan::default() };
    plan.inside.extend(&here.cluster_ranges);
    for peer in peers {
        plan.inside.extend(peer.addresses.iter().map(|ip| IpNet::from(*ip)));
        plan.inside.extend(&peer.ranges);
    }
    let Some(own) = peers.iter().find(|peer| peer.name == here.name) else { return plan };
    plan.own = own.ranges.iter().copied().collect();
    if mode == Mode::None {
        return plan;
    }
    // Tunnelled packets of both families travel between addresses of one: that of our end.
    let tunnel_end = own.addresses.first().copied().filter(|_| mode == Mode::Vxlan);
    for peer in peers.iter().filter(|peer| peer.name != here.name) {
        for range in &peer.ranges {
            // A range given twice, or ours in another's name, would take packets away from their pods.
            if plan.ways.contains_key(range) || own.ranges.iter().any(|o| o.contains(range) || range.contains(o)) {
                plan.unreachable.insert(peer.name.clone(), format!("its pod range {range} is another node's"));
                continue;
            }
            match way(here, peer, range, tunnel_end) {
                Ok(way) => drop(plan.ways.insert(*range, way)),
                Err(why) => drop(plan.unreachable.insert(peer.name.clone(), why)),
            }
        }
    }
    if let (Some(first), Some(local)) = (own.ranges.first(), tunnel_end) {
        let addresses = own.ranges.iter().map(IpNet::network).collect();
        plan.tunnel = Some(TunnelEnd { local, mac: mac(first), addresses });
    }
    plan
}

fn way(here: &Here, peer: &Peer, range: &IpNet, tunnel_end: Option<IpAddr>) -> Result<Way, String> {
    let same_family = peer.address_like(range.addr());
    if let Some(address) = same_family.filter(|ip| here.links.iter().any(|link| link.contains(ip))) {
        return Ok(Way::Direct(address));
    }
    let Some(local) = tunnel_end else {
        let known = !peer.addresses.is_empty();
        return Err(if known { "it shares no link with this node" } else { "it has no address" }.to_owned());
    };
    match (peer.address_like(local), peer.ranges.first()) {
        (Some(node), Some(first)) => Ok(Way::Tunnel(Tunnel { node, gateway: range.network(), mac: mac(first) })),
        _ => Err(format!("it has no address that {local} reaches")),
    }
}

/// A link address of local administration that nobody else derives from the same range.
fn mac(range: &IpNet) -> String {
    let tail: [u8; 4] = match range.network() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let o = ip.octets();
            [o[4] ^ o[8] ^ o[12], o[5] ^ o[9] ^ o[13], o[6] ^ o[10] ^ o[14], o[7] ^ o[11] ^ o[15]]
        }
    };
    format!("0e:58:{:02x}:{:02x}:{:02x}:{:02x}", tail[0], tail[1], tail[2], tail[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, address: &str, range: &str) -> Peer {
        Peer { name: name.into(), addresses: vec![address.parse().unwrap()], ranges: vec![range.parse().unwrap()] }
    }

    fn here() -> Here {
        let links = vec!["192.0.2.1/24".parse().unwrap()];
        Here { name: "a".into(), links, cluster_ranges: vec!["10.1.0.0/16".parse().unwrap()] }
    }

    fn ways(plan: &Plan) -> Vec<String> {
        let show = |(range, way): (&IpNet, &Way)| match way {
            Way::Direct(via) => format!("{range} via {via}"),
            Way::Tunnel(t) => format!("{range} via {} at {} through {}", t.gateway, t.mac, t.node),
        };
        plan.ways.iter().map(show).collect()
    }

    #[test]
    fn neighbours_are_reached_directly_and_others_by_tunnel() {
        let peers = [
            peer("a", "192.0.2.1", "10.1.0.0/24"),
            peer("b", "192.0.2.2", "10.1.1.0/24"),
            peer("c", "203.0.113.3", "10.1.2.0/24"),
        ];
        let tunnelled = plan(&here(), &peers, Mode::Vxlan);
        let c = "10.1.2.0/24 via 10.1.2.0 at 0e:58:0a:01:02:00 through 203.0.113.3";
        assert_eq!(ways(&tunnelled), ["10.1.1.0/24 via 192.0.2.2", c]);
        assert_eq!(tunnelled.tunnel.unwrap().mac, "0e:58:0a:01:00:00");
        let direct = plan(&here(), &peers, Mode::HostGw);
        assert_eq!(ways(&direct), ["10.1.1.0/24 via 192.0.2.2"]);
        assert_eq!(direct.unreachable["c"], "it shares no link with this node");
        assert_eq!(direct.tunnel, None);
        let none = plan(&here(), &peers, Mode::None);
        assert!(none.ways.is_empty() && none.own.len() == 1);
    }

    #[test]
    fn a_tunnel_has_both_ends_in_one_family() {
        let both = |name: &str, v4: &str, v6: &str, number: u8| Peer {
            name: name.into(),
            addresses: [v4, v6].map(|ip| ip.parse().unwrap()).into(),
            ranges: vec![
                format!("10.1.{number}.0/24").parse().unwrap(),
                format!("fd01:{number}::/64").parse().unwrap(),
            ],
        };
        let peers = [
            both("a", "192.0.2.1", "2001:db8::1", 0),
            both("c", "203.0.113.3", "2001:db8:1::3", 2),
            peer("d", "2001:db8:1::4", "10.1.3.0/24"),
        ];
        let plan = plan(&here(), &peers, Mode::Vxlan);
        let far = "at 0e:58:0a:01:02:00 through 203.0.113.3";
        assert_eq!(ways(&plan), [format!("10.1.2.0/24 via 10.1.2.0 {far}"), format!("fd01:2::/64 via fd01:2:: {far}")]);
        assert_eq!(plan.unreachable["d"], "it has no address that 192.0.2.1 reaches");
    }

    #[test]
    fn a_range_that_is_not_its_nodes_is_left_alone() {
        let peers = [
            peer("a", "192.0.2.1", "10.1.0.0/24"),
            peer("b", "192.0.2.2", "10.1.0.0/16"),
            peer("c", "192.0.2.3", "10.1.2.0/24"),
            peer("d", "192.0.2.4", "10.1.2.0/24"),
        ];
        let plan = plan(&here(), &peers, Mode::HostGw);
        assert_eq!(ways(&plan), ["10.1.2.0/24 via 192.0.2.3"]);
        assert_eq!(plan.unreachable.keys().collect::<Vec<_>>(), ["b", "d"]);
    }

    #[test]
    fn tunnels_cost_part_of_every_packet() {
        let v4: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(pod_mtu(1500, Mode::HostGw, v4), 1500);
        assert_eq!(pod_mtu(1500, Mode::Vxlan, v4), 1450);
        assert_eq!(pod_mtu(1500, Mode::Vxlan, "2001:db8::1".parse().unwrap()), 1430);
    }
}
