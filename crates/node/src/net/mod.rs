//! Links, addresses and routes of the machine, by netlink.
//!
//! The first thing a node does is [`Net::refuse`]: packets to pod and service addresses that no more specific route or
//! rule claims are answered "unreachable" here instead of leaving by the default route.

mod alone;
mod changes;
pub mod conntrack;

use std::net::IpAddr;

use futures::TryStreamExt;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};

pub use alone::alone;
pub use changes::Changes;

/// Worse than every metric anybody gives a route on purpose.
const LAST_RESORT: u32 = u32::MAX - 1;

/// Why the machine's network is not as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("open netlink: {0}")]
    Open(#[source] std::io::Error),
    #[error("{operation} {what}: {source}")]
    Refused {
        operation: &'static str,
        what: String,
        /// What the kernel said.
        source: Box<rtnetlink::Error>,
    },
    /// Not a network in CIDR notation.
    #[error("{0:?} is not a network in CIDR notation")]
    Network(String),
    /// There is no such link.
    #[error("no link {0:?}")]
    NoLink(String),
}

fn refused(operation: &'static str, what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Error {
    let what = what.into();
    move |source| Error::Refused { operation, what, source: Box::new(source) }
}

/// A network: an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address, with its other bits zero.
    pub address: IpAddr,
    /// The bits that count.
    pub prefix: u8,
}

impl std::str::FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Network(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let prefix: u8 = prefix.parse().map_err(|_| bad())?;
        let masked = match address {
            IpAddr::V4(v4) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) if prefix <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
            _ => return Err(bad()),
        };
        Ok(Self { address: masked, prefix })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// Bytes received and sent.
    pub bytes: (u64, u64),
}

/// The kernel's network, in the namespace of the calling thread at the time it was opened.
#[derive(Debug, Clone)]
pub struct Net {
    handle: Handle,
}

impl Net {
    /// Opens a netlink socket. Must be called inside a tokio runtime, which drives it.
    pub fn open() -> Result<Self, Error> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(Error::Open)?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    pub async fn links(&self) -> Result<Vec<Link>, Error> {
        let mut stream = self.handle.link().get().execute();
        let mut links = Vec::new();
        while let Some(message) = stream.try_next().await.map_err(refused("list", "links"))? {
            let mut link = Link {
                index: message.header.index,
                name: String::new(),
                mtu: 0,
                up: message.header.flags.contains(LinkFlags::Up),
                loopback: message.header.flags.contains(LinkFlags::Loopback),
                bytes: (0, 0),
            };
            for attribute in message.attributes {
                match attribute {
                    LinkAttribute::IfName(name) => link.name = name,
                    LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                    LinkAttribute::Stats64(stats) => link.bytes = (stats.rx_bytes, stats.tx_bytes),
                    _ => {}
                }
            }
            links.push(link);
        }
        Ok(links)
    }

    /// The link with this name.
    pub async fn link(&self, name: &str) -> Result<Link, Error> {
        self.links().await?.into_iter().find(|link| link.name == name).ok_or_else(|| Error::NoLink(name.to_owned()))
    }

    /// All addresses, with the index of their link.
    pub async fn addresses(&self) -> Result<Vec<(u32, IpAddr)>, Error> {
        let mut stream = self.handle.address().get().execute();
        let mut found = Vec::new();
        while let Some(message) = stream.try_next().await.map_err(refused("list", "addresses"))? {
            // On a point-to-point link Address is the other end's; Local is ours wherever it is given.
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(ip) => Some(*ip),
                _ => None,
            });
            let address = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            });
            found.extend(local.or(address).map(|ip| (message.header.index, ip)));
        }
        Ok(found)
    }

    /// The address this machine is known by: the first global one of the link its default route leaves by, else of any
    /// link that is not the loopback.
    pub async fn main_address(&self) -> Result<Option<IpAddr>, Error> {
        let links = self.links().await?;
        let default = self.default_link().await?;
        let addresses = self.addresses().await?;
        let usable = |index: u32, ip: &IpAddr| {
            let link = links.iter().find(|link| link.index == index);
            link.is_some_and(|link| link.up && !link.loopback) && is_global(ip)
        };
        let of_default = addresses.iter().find(|(index, ip)| Some(*index) == default && is_global(ip));
        Ok(of_default.or_else(|| addresses.iter().find(|(index, ip)| usable(*index, ip))).map(|(_, ip)| *ip))
    }

    async fn default_link(&self) -> Result<Option<u32>, Error> {
        let mut stream = self.handle.route().get(RouteMessageBuilder::<std::net::Ipv4Addr>::new().build()).execute();
        let mut best: Option<(u32, u32)> = None;
        while let Some(route) = stream.try_next().await.map_err(refused("list", "routes"))? {
            if route.header.destination_prefix_length != 0 || route.header.kind != RouteType::Unicast {
                continue;
            }
            let metric = route.attributes.iter().find_map(|a| match a {
                RouteAttribute::Priority(metric) => Some(*metric),
                _ => None,
            });
            let link = route.attributes.iter().find_map(|a| match a {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
            if let Some(link) = link {
                let candidate = (metric.unwrap_or(0), link);
                best = Some(best.map_or(candidate, |present| present.min(candidate)));
            }
        }
        Ok(best.map(|(_, link)| link))
    }

    /// Answers "unreachable" to packets for a network that nothing more specific claims. There already is no error.
    pub async fn refuse(&self, network: Network) -> Result<(), Error> {
        let mut message = destination(network)?;
        message.header.kind = RouteType::Unreachable;
        message.attributes.push(RouteAttribute::Priority(LAST_RESORT));
        self.handle.route().add(message).replace().execute().await.map_err(refused("refuse", network.to_string()))
    }

    /// Takes back [`Net::refuse`]. Not there is no error.
    pub async fn accept(&self, network: Network) -> Result<(), Error> {
        let mut message = destination(network)?;
        message.header.kind = RouteType::Unreachable;
        message.attributes.push(RouteAttribute::Priority(LAST_RESORT));
        absent_is_fine(self.handle.route().del(message).execute().await).map_err(refused("accept", network.to_string()))
    }

    /// Sends packets for a network to a neighbour, in place of any route to it.
    pub async fn route(&self, network: Network, gateway: IpAddr) -> Result<(), Error> {
        let mut message = destination(network)?;
        let gateway = match gateway {
            IpAddr::V4(ip) => rtnetlink::packet_route::route::RouteAddress::Inet(ip),
            IpAddr::V6(ip) => rtnetlink::packet_route::route::RouteAddress::Inet6(ip),
        };
        message.attributes.push(RouteAttribute::Gateway(gateway));
        self.handle.route().add(message).replace().execute().await.map_err(refused("route", network.to_string()))
    }

    /// Removes the route to a network. Not there is no error.
    pub async fn unroute(&self, network: Network) -> Result<(), Error> {
        let message = destination(network)?;
        absent_is_fine(self.handle.route().del(message).execute().await)
            .map_err(refused("unroute", network.to_string()))
    }

    /// Removes a link. Not there is no error.
    pub async fn remove_link(&self, name: &str) -> Result<(), Error> {
        match self.link(name).await {
            Ok(link) => {
                absent_is_fine(self.handle.link().del(link.index).execute().await).map_err(refused("remove", name))
            }
            Err(Error::NoLink(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

fn destination(network: Network) -> Result<RouteMessage, Error> {
    RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(network.address, network.prefix)
        .map(RouteMessageBuilder::build)
        .map_err(|_| Error::Network(network.to_string()))
}

fn absent_is_fine(result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    match result {
        Err(rtnetlink::Error::NetlinkError(e))
            if matches!(-e.raw_code(), libc::ESRCH | libc::ENODEV | libc::ENOENT) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn is_global(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unspecified() && ip.segments()[0] & 0xffc0 != 0xfe80,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_with_their_host_bits_cleared() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(text.parse::<Network>().ok().map(|n| n.to_string()).as_deref(), expect, "{text}");
        };
        check("10.88.3.7/24", Some("10.88.3.0/24"));
        check("0.0.0.0/0", Some("0.0.0.0/0"));
        check("fd00:1::5/64", Some("fd00:1::/64"));
        check("10.88.0.0/33", None);
        check("10.88.0.0", None);
        check("nothing/8", None);
    }

    #[tokio::test]
    async fn a_refused_network_is_unreachable_until_it_is_accepted() {
        let net = Net::open().unwrap();
        let network: Network = "198.19.255.240/28".parse().unwrap();
        net.refuse(network).await.unwrap();
        net.refuse(network).await.unwrap();
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        // Connecting a datagram socket looks the route up and sends nothing.
        let refused = socket.connect("198.19.255.241:9").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EHOSTUNREACH));
        net.accept(network).await.unwrap();
        net.accept(network).await.unwrap();
    }

    #[tokio::test]
    async fn the_loopback_is_there() {
        let net = Net::open().unwrap();
        let lo = net.link("lo").await.unwrap();
        assert!(lo.loopback && lo.up);
        assert!(net.addresses().await.unwrap().contains(&(lo.index, IpAddr::from([127, 0, 0, 1]))));
        assert!(matches!(net.link("no-such-link").await, Err(Error::NoLink(_))));
    }
}
