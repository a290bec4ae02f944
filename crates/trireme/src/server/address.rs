//! Under which addresses and names the server is reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use crate::cli::Server as Options;
use crate::parts::host_name;

/// The first usable address of the service range: the `kubernetes` Service's.
pub fn first_service_address(range: &str) -> Result<IpAddr, String> {
    let usage = || format!("\"{range}\" is not a range such as 10.96.0.0/16");
    let (base, bits) = range.split_once('/').ok_or_else(usage)?;
    let (base, bits): (Ipv4Addr, u32) = (base.parse().map_err(|_| usage())?, bits.parse().map_err(|_| usage())?);
    if !(8..=29).contains(&bits) {
        return Err(format!("\"{range}\" must be between /8 and /29"));
    }
    let mask = u32::MAX << (32 - bits);
    Ok(IpAddr::V4(Ipv4Addr::from((u32::from(base) & mask) + 1)))
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
    match first {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from(u32::from(first) + 9)),
        other => other,
    }
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
        let first = |range| first_service_address(range).map(|address| address.to_string());
        assert_eq!(first("10.96.0.0/16").as_deref(), Ok("10.96.0.1"));
        assert_eq!(first("10.43.7.9/24").as_deref(), Ok("10.43.7.1"));
        for range in ["", "10.96.0.0", "10.96.0.0/31", "x/16", "10.0.0.0/4"] {
            assert!(first(range).is_err(), "{range}");
        }
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_over_loopback() {
        assert_eq!(reachable(([0, 0, 0, 0], 1).into()), ([127, 0, 0, 1], 1).into());
        assert_eq!(reachable(([10, 0, 0, 1], 2).into()), ([10, 0, 0, 1], 2).into());
    }
}
