//! What the rules depend on besides Services and endpoints: what the administrator said, what the Node says, and which
//! addresses the machine has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use crate::model::{Family, NodeView};
use crate::{Config, Error};

/// Which of a node's addresses take NodePort traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortAddress {
    All,
    /// Those that the Node object names first, one of each family.
    Primary,
    /// Those in a range.
    Range(IpNet),
}

/// No such choice of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodePortAddressError {
    /// Neither a range nor a keyword.
    #[error("must be a valid CIDR or one of the keywords 'primary', 'all'")]
    Unknown,
    /// Answering there would need `route_localnet`, which opens loopback to the network.
    #[error("node ports do not answer on loopback addresses")]
    Loopback,
}

impl FromStr for NodePortAddress {
    type Err = NodePortAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "primary" => Ok(Self::Primary),
            "localhost" => Err(NodePortAddressError::Loopback),
            _ => match text.parse::<IpNet>() {
                Ok(range) if range.addr().is_loopback() => Err(NodePortAddressError::Loopback),
                Ok(range) => Ok(Self::Range(range)),
                Err(_) => Err(NodePortAddressError::Unknown),
            },
        }
    }
}

/// The addresses of each family that node ports answer at. A family that nothing was said about answers at all of its own.
fn node_ports(
    wanted: &[NodePortAddress],
    primary: &[IpAddr],
    present: &BTreeSet<IpAddr>,
) -> BTreeMap<Family, BTreeSet<IpAddr>> {
    let mut chosen = BTreeMap::<Family, BTreeSet<IpAddr>>::new();
    for wanted in wanted {
        match wanted {
            NodePortAddress::All => return BTreeMap::new(),
            NodePortAddress::Primary => {
                for family in Family::ALL {
                    if let Some(ip) = primary.iter().find(|ip| Family::of(**ip) == family && !ip.is_loopback()) {
                        chosen.entry(family).or_default().insert(*ip);
                    }
                }
            }
            NodePortAddress::Range(range) => {
                let family = Family::of(range.addr());
                chosen.entry(family).or_default().extend(present.iter().filter(|ip| range.contains(*ip)));
            }
        }
    }
    // A range of everything is all of its family, also what comes later.
    chosen.retain(|family, _| {
        !wanted
            .iter()
            .any(|w| matches!(w, NodePortAddress::Range(range) if range.prefix_len() == 0 && family.has(range)))
    });
    chosen
}

/// Configuration and observation as the rules see them.
pub async fn view(config: &Config, node: Option<&Node>, ranges: &[IpNet]) -> Result<NodeView, Error> {
    let mut view = NodeView {
        name: config.node_name.clone(),
        pod_ranges: config.cluster_cidrs.clone(),
        service_ranges: config.service_cidrs.iter().chain(ranges).copied().collect(),
        served_here: config.served_here.clone(),
        masquerade_all: config.masquerade_all,
        masquerade_bit: config.masquerade_bit,
        ..NodeView::default()
    };
    view.service_ranges.sort();
    view.service_ranges.dedup();
    if let Some(node) = node {
        view.observe(node);
        if view.pod_ranges.is_empty() {
            let own = node.spec.iter().flat_map(|spec| &spec.pod_cidrs).flatten();
            view.pod_ranges = own.filter_map(|range| range.parse().ok()).collect();
        }
    }
    if !config.node_port_addresses.is_empty() {
        let present = node::net::Net::open()?.addresses().await?.into_iter().map(|(_, ip)| ip).collect();
        view.node_port_addresses = node_ports(&config.node_port_addresses, &view.addresses, &present);
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_chosen_by_range_and_by_keyword_and_each_family_by_itself() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let present = ["127.0.0.1", "192.0.2.1", "10.0.0.1", "::1", "fd02::1"].map(ip).into();
        let check = |wanted: &str, want: &str| {
            let wanted: Vec<NodePortAddress> = wanted.split(',').map(|w| w.parse().unwrap()).collect();
            let chosen = node_ports(&wanted, &["192.0.2.1", "fd02::1", "10.0.0.1"].map(ip), &present);
            let shown: Vec<String> = chosen
                .iter()
                .map(|(family, ips)| {
                    let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
                    format!("{family:?}: {}", ips.join(" "))
                })
                .collect();
            assert_eq!(shown.join(", "), want, "{wanted:?}");
        };
        check("192.0.2.0/24", "V4: 192.0.2.1");
        check("192.0.2.0/24,10.0.0.0/8", "V4: 10.0.0.1 192.0.2.1");
        check("203.0.113.0/24", "V4: ");
        check("primary", "V4: 192.0.2.1, V6: fd02::1");
        check("primary,10.0.0.0/8", "V4: 10.0.0.1 192.0.2.1, V6: fd02::1");
        for everything in ["all", "192.0.2.0/24,all", "0.0.0.0/0", "0.0.0.0/0,::/0"] {
            check(everything, "");
        }
        check("192.0.2.0/24,::/0", "V4: 192.0.2.1");
        check("primary,0.0.0.0/0", "V6: fd02::1");
    }

    #[test]
    fn what_is_no_choice_of_addresses_is_refused() {
        for (text, error) in [
            ("", NodePortAddressError::Unknown),
            ("192.0.2.1", NodePortAddressError::Unknown),
            ("Primary", NodePortAddressError::Unknown),
            ("localhost", NodePortAddressError::Loopback),
            ("127.0.0.0/8", NodePortAddressError::Loopback),
            ("::1/128", NodePortAddressError::Loopback),
        ] {
            assert_eq!(text.parse::<NodePortAddress>(), Err(error), "{text}");
        }
    }
}
