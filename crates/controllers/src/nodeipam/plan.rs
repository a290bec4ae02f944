//! A cluster's range cut into ranges of nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::Cidr;

/// No more ranges than this are looked through.
const MOST: u128 = 1 << 16;

/// The ranges of nodes in the range of a cluster.
#[derive(Debug)]
pub(super) struct Ranges {
    cluster: Cidr,
    bits: u8,
}

impl Ranges {
    pub(super) fn new(cluster: Cidr, bits: u8) -> Self {
        Self { cluster, bits: bits.max(cluster.bits) }
    }

    /// The first range that overlaps none of these.
    pub(super) fn free<'a>(&self, used: impl Iterator<Item = &'a Cidr>) -> Option<Cidr> {
        let width = width(self.cluster.address);
        let step = 1_u128 << (width - self.bits).min(127);
        let first = number(self.cluster.address) & !mask(width - self.cluster.bits);
        let count = 1_u128.checked_shl(u32::from(self.bits - self.cluster.bits)).unwrap_or(MOST).min(MOST);
        let same_family = used.filter(|cidr| cidr.address.is_ipv4() == self.cluster.address.is_ipv4());
        let mut taken: Vec<(u128, u128)> = same_family
            .map(|cidr| {
                let host = mask(width - cidr.bits.min(width));
                let start = number(cidr.address) & !host;
                (start, start | host)
            })
            .collect();
        taken.sort_unstable();
        let mut at = first;
        let end = first + step * (count - 1);
        for (start, last) in taken {
            if last < at {
                continue;
            }
            if start > at + (step - 1) {
                break;
            }
            // Past the taken range, at the next border.
            at = first + ((last - first) / step + 1) * step;
        }
        (at <= end).then(|| Cidr { address: address(at, self.cluster.address), bits: self.bits })
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// So many low bits set.
fn mask(bits: u8) -> u128 {
    1_u128.checked_shl(u32::from(bits)).map_or(u128::MAX, |bit| bit - 1)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        // The number came from an address of 32 bits and stays in its range.
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}
