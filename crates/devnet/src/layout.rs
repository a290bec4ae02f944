//! Names, addresses and commands of the machines of a development cluster: pure.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::Loss;

/// So many machines fit: the first address of the range is the host's, the last one nobody's.
pub const MOST: u8 = 100;
/// The first machine's place in the range; before it is room for the host and for what users put there.
const FIRST: u32 = 10;

/// Why there can be no such cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Names become part of interface names, which are short.
    #[error("cluster name {0:?} is not one to seven lower-case letters or digits")]
    Name(String),
    /// Too many or none.
    #[error("{0} nodes: a development cluster has 1 to {MOST}")]
    Nodes(u8),
    #[error("{0} is too small a range for a development cluster")]
    Range(Ipv4Net),
}

/// One machine: a network namespace with one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    pub namespace: String,
    /// The namespace of the bridge that it is on.
    pub switch: String,
    /// The bridge's end of its link; inside it is `eth0`.
    pub link: String,
    pub address: Ipv4Addr,
}

/// All machines of a cluster, on one bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub name: String,
    /// The namespace of the bridge. The host would show bridged frames to its own packet filter, and where Docker is, that drops
    /// what it forwards.
    pub switch: String,
    /// The host's end of its own link to the bridge.
    pub link: String,
    /// The range of the machines' addresses.
    pub range: Ipv4Net,
    pub machines: Vec<Machine>,
    /// Whether they may reach what is outside this host, by the host's own address.
    pub outside: bool,
    /// Whether the machines know of no network that they share, as in many clouds: each has a single address, and only a
    /// tunnel leads to what is behind another.
    pub apart: bool,
    /// Further ranges of the cluster, such as its pods': nothing for them leaves the host.
    pub inside: Vec<Ipv4Net>,
}

impl Layout {
    /// Lays out a cluster.
    pub fn new(name: &str, nodes: u8, range: Ipv4Net, outside: bool) -> Result<Self, Error> {
        let sound = (1..=7).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !sound {
            return Err(Error::Name(name.to_owned()));
        }
        if !(1..=MOST).contains(&nodes) {
            return Err(Error::Nodes(nodes));
        }
        if range.prefix_len() > 24 {
            return Err(Error::Range(range));
        }
        let machine = |number: u8| Machine {
            name: format!("{name}-{number}"),
            namespace: format!("{}{number}", namespace_prefix(name)),
            switch: switch(name),
            link: format!("{}-{number}", link(name)),
            address: Ipv4Addr::from_bits(range.network().to_bits() + FIRST + u32::from(number)),
        };
        let machines = (1..=nodes).map(machine).collect();
        Ok(Self {
            name: name.to_owned(),
            switch: switch(name),
            link: link(name),
            range: range.trunc(),
            machines,
            outside,
            apart: false,
            inside: Vec::new(),
        })
    }

    /// The host's address among the machines.
    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.range.network().to_bits() + 1)
    }

    /// Makes namespaces and the host's link; for `ip -batch`.
    pub(crate) fn make(&self) -> String {
        let (switch, link, prefix) = (&self.switch, &self.link, self.range.prefix_len());
        let mut out = format!("netns add {switch}\n");
        for Machine { namespace, .. } in &self.machines {
            let _ = writeln!(out, "netns add {namespace}");
        }
        let _ = writeln!(
            out,
            "link add {link} type veth peer name host netns {switch}\naddr add {}/{prefix} dev {link}\nlink set {link} up",
            self.host()
        );
        for range in &self.inside {
            let _ = writeln!(out, "route replace unreachable {} metric {}", range.trunc(), metric(&self.name));
        }
        out
    }

    /// Makes the bridge and the machines' links; for `ip -netns … -batch`.
    pub(crate) fn bridge(&self) -> String {
        let mut out = "link add bridge type bridge\nlink set bridge up\nlink set host master bridge up\n".to_owned();
        for Machine { namespace, link, .. } in &self.machines {
            let _ = writeln!(
                out,
                "link add {link} type veth peer name eth0 netns {namespace}\nlink set {link} master bridge up"
            );
        }
        out
    }

    /// Sets up a machine from inside; for `ip -netns … -batch`.
    pub(crate) fn furnish(&self, machine: &Machine) -> String {
        let prefix = if self.apart { 32 } else { self.range.prefix_len() };
        let mut out = format!("link set lo up\nlink set eth0 up\naddr add {}/{prefix} dev eth0\n", machine.address);
        if self.apart {
            let _ = writeln!(out, "route add {} dev eth0 src {}", self.range, machine.address);
        }
        if self.outside {
            let _ = writeln!(out, "route add default via {}", self.host());
        }
        out
    }

    /// The host's rules: machines reach what is outside by the host's address, if they may.
    pub(crate) fn rules(&self) -> String {
        let table = rules_table(&self.name);
        let mut out = format!("add table ip {table}\ndelete table ip {table}\n");
        if self.outside {
            let (link, range) = (&self.link, self.range);
            let _ = writeln!(
                out,
                "table ip {table} {{\nchain postrouting {{\ntype nat hook postrouting priority 100; policy accept;\n\
                 ip saddr {range} oifname != \"{link}\" masquerade\n}}\n}}"
            );
        }
        out
    }
}

/// Worse than every metric anybody gives a route on purpose, and a cluster's own, so that it can be taken away again.
pub(crate) fn metric(cluster: &str) -> u32 {
    let hash = cluster.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    0xf000_0000 | hash >> 8
}

/// The host's link to a cluster. Those of its machines begin with its name.
pub(crate) fn link(cluster: &str) -> String {
    format!("tri-{cluster}")
}

/// The namespace of a cluster's bridge.
pub(crate) fn switch(cluster: &str) -> String {
    format!("{}switch", namespace_prefix(cluster))
}

/// The namespaces of a cluster begin with this.
pub(crate) fn namespace_prefix(cluster: &str) -> String {
    format!("trireme-{cluster}-")
}

/// The host's table for a cluster.
pub(crate) fn rules_table(cluster: &str) -> String {
    format!("trireme-devnet-{cluster}")
}

/// Rules that lose what a machine sends or gets; what it says to itself stays.
pub(crate) fn losing(loss: Loss) -> String {
    const TABLE: &str = "trireme-loss";
    let (hook, link) = match loss {
        Loss::Nothing => return format!("add table inet {TABLE}\ndelete table inet {TABLE}\n"),
        Loss::Incoming => ("input", "iifname"),
        Loss::Outgoing => ("output", "oifname"),
    };
    let clean = losing(Loss::Nothing);
    let chain = format!("type filter hook {hook} priority -400; {link} != \"lo\" drop;");
    format!("{clean}table inet {TABLE} {{\n  chain lost {{ {chain} }}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_names_and_addresses_of_their_own() {
        let layout = Layout::new("dev", 2, "198.18.7.0/24".parse().unwrap(), false).unwrap();
        assert_eq!(layout.host().to_string(), "198.18.7.1");
        let second = &layout.machines[1];
        assert_eq!((second.name.as_str(), second.address.to_string().as_str()), ("dev-2", "198.18.7.12"));
        assert!(
            Layout::new("abcdefg", 100, "198.18.0.0/24".parse().unwrap(), false)
                .unwrap()
                .machines
                .iter()
                .all(|m| m.link.len() <= 15)
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let check =
            |name: &str, nodes, range: &str| Layout::new(name, nodes, range.parse().unwrap(), false).unwrap_err();
        assert_eq!(check("", 1, "198.18.0.0/24"), Error::Name(String::new()));
        assert_eq!(check("too-long!", 1, "198.18.0.0/24"), Error::Name("too-long!".into()));
        assert_eq!(check("dev", 0, "198.18.0.0/24"), Error::Nodes(0));
        assert_eq!(check("dev", 101, "198.18.0.0/24"), Error::Nodes(101));
        assert!(matches!(check("dev", 1, "198.18.0.0/25"), Error::Range(_)));
    }

    #[test]
    fn a_clusters_own_ranges_do_not_leave_the_host() {
        let mut layout = Layout::new("dev", 1, "198.18.0.0/24".parse().unwrap(), false).unwrap();
        assert!(!layout.make().contains("unreachable"));
        layout.inside.push("10.244.0.0/16".parse().unwrap());
        assert!(layout.make().contains(&format!("route replace unreachable 10.244.0.0/16 metric {}\n", metric("dev"))));
        assert_ne!(metric("dev"), metric("test"));
    }

    #[test]
    fn machines_that_are_apart_share_no_network_but_reach_each_other() {
        let mut layout = Layout::new("dev", 2, "198.18.0.0/24".parse().unwrap(), false).unwrap();
        assert!(layout.furnish(&layout.machines[0]).contains("addr add 198.18.0.11/24 dev eth0\n"));
        layout.apart = true;
        let furnished = layout.furnish(&layout.machines[0]);
        assert!(furnished.contains("addr add 198.18.0.11/32 dev eth0\n"), "{furnished}");
        assert!(furnished.contains("route add 198.18.0.0/24 dev eth0 src 198.18.0.11\n"), "{furnished}");
    }

    #[test]
    fn nothing_leads_outside_unless_it_may() {
        let layout = |outside| Layout::new("dev", 1, "198.18.0.0/24".parse().unwrap(), outside).unwrap();
        let closed = layout(false);
        assert!(!closed.furnish(&closed.machines[0]).contains("default") && !closed.rules().contains("masquerade"));
        let open = layout(true);
        assert!(open.furnish(&open.machines[0]).contains("default via 198.18.0.1"));
        assert!(open.rules().contains("masquerade"));
    }
}
