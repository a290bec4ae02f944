//! Under which addresses and names the server is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use crate::cli::Server as Options;
use crate::parts::host_name;

/// The first usable address of the first service range: the `kubernetes` Service's.
pub fn first_service_address(ranges: &[IpNet]) -> Result<IpAddr, String> {
    one_of_each_family(ranges)?;
    for range in ranges {
        let (least, most) = if range.addr().is_ipv4() { (8, 29) } else { (64, 125) };
        if !(least..=most).contains(&range.prefix_len()) {
            return Err(format!("\"{range}\" must be between /{least} and /{most}"));
        }
    }
    let first = ranges.first().map(|range| counted(range.network(), 1));
    first.ok_or_else(|| "give a range such as 10.96.0.0/16".to_owned())
}

/// Whether there is at most one range of each IP family.
pub fn one_of_each_family(ranges: &[IpNet]) -> Result<(), String> {
    match ranges {
        [] | [_] => Ok(()),
        [first, second] if first.addr().is_ipv4() != second.addr().is_ipv4() => Ok(()),
        _ => Err("give one range, or one of each IP family".to_owned()),
    }
}

fn counted(address: IpAddr, by: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) + u32::from(by)).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) + u128::from(by)).into(),
    }
}

/// Where others reach a server that listens here: there, or at the host's own address if it listens everywhere.
pub fn advertised(bind: IpAddr) -> IpAddr {
    if bind.is_unspecified() { host_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { bind }
}

/// The address of a node on this machine: where others reach it, or, where nobody does, where pods can.
pub fn of_node(advertised: IpAddr) -> IpAddr {
    if advertised.is_loopback() { host_address().unwrap_or(advertised) } else { advertised }
}

/// The address of cluster DNS, counted from the first usable address for Services.
pub fn tenth_service_address(first: IpAddr) -> IpAddr {
    counted(first, 9)
}

/// The address the kernel would send from. Connecting a datagram socket asks the routing table and sends nothing.
fn host_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // A documentation address: never local, so the default route decides.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

/// Where clients on this machine reach a server that listens here.
pub fn reachable(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        IpAddr::V4(address) if address.is_unspecified() => {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listening.port())
        }
        IpAddr::V6(address) if address.is_unspecified() => {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listening.port())
        }
        _ => listening,
    }
}

/// Names for the serving certificate besides those that every server has.
pub fn host_names(options: &Options, advertise: IpAddr) -> Vec<String> {
    let mut names = options.tls_san.clone();
    names.push(advertise.to_string());
    if !options.bind_address.is_unspecified() {
        names.push(options.bind_address.to_string());
    }
    names.extend(host_name());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_service_has_the_first_address() {
        let first = |ranges: &str| {
            let ranges: Vec<IpNet> = ranges.split(',').map(|range| range.parse().expect(range)).collect();
            first_service_address(&ranges)
                .map(|address| (address.to_string(), tenth_service_address(address).to_string()))
        };
        assert_eq!(first("10.96.0.0/16"), Ok(("10.96.0.1".into(), "10.96.0.10".into())));
        assert_eq!(first("10.43.7.9/24,fd96::/108"), Ok(("10.43.7.1".into(), "10.43.7.10".into())));
        assert_eq!(first("fd96::/108,10.43.7.9/24"), Ok(("fd96::1".into(), "fd96::a".into())));
        for range in
            ["10.96.0.0/31", "10.0.0.0/4", "fd00::/48", "10.1.0.0/16,10.2.0.0/16", "10.1.0.0/16,10.2.0.0/16,fd00::/108"]
        {
            assert!(first(range).is_err(), "{range}");
        }
        assert!(first_service_address(&[]).is_err());
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_over_loopback() {
        assert_eq!(reachable(([0, 0, 0, 0], 1).into()), ([127, 0, 0, 1], 1).into());
        assert_eq!(reachable(([10, 0, 0, 1], 2).into()), ([10, 0, 0, 1], 2).into());
    }
}
