//! Ranges of Service addresses, and which address comes next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kinds::service::families::Family;
use machinery::names;

/// How many addresses are tried at random before the range is walked.
const RANDOM_TRIES: usize = 16;
/// So many addresses of a range are walked at most: one of IPv6 has more than anybody can look at.
const WALKED: u128 = 1 << 20;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    family: Family,
    base: u128,
    bits: u8,
}

impl Cidr {
    /// Reads `10.96.0.0/16` or `fd96::/108`: of a size that leaves room, and that can be counted.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = names::ip::parse_cidr_sloppy(text)?;
        let (width, allowed) = if address.is_ipv4() { (32, 8..=30) } else { (128, 64..=126) };
        let base = || number(address) >> (width - bits) << (width - bits);
        allowed.contains(&bits).then(|| Self { family: Family::of(address), base: base(), bits })
    }

    /// The family of its addresses.
    pub fn family(self) -> Family {
        self.family
    }

    /// How many addresses it has.
    fn size(self) -> u128 {
        let width = if self.family == Family::V4 { 32 } else { 128 };
        1 << (width - self.bits)
    }

    /// The address at an offset.
    pub fn at(self, offset: u128) -> IpAddr {
        let number = self.base + offset;
        match self.family {
            Family::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            Family::V6 => Ipv6Addr::from(number).into(),
        }
    }

    /// The first and the last address that a Service may have: not the network's, and of IPv4 not the broadcast's.
    fn usable(self) -> (u128, u128) {
        (1, self.size() - if self.family == Family::V4 { 2 } else { 1 })
    }

    /// Whether a Service may have this address out of it.
    pub fn has(self, address: IpAddr) -> bool {
        let (first, last) = self.usable();
        let offset = number(address).wrapping_sub(self.base);
        Family::of(address) == self.family && (first..=last).contains(&offset)
    }

    /// Addresses in the order they are tried: at random from the upper part of the range, then all of that part, then the
    /// lower part, which is left to users who choose.
    pub fn candidates(self) -> impl Iterator<Item = IpAddr> {
        let (first, last) = self.usable();
        let reserved = if self.size() <= 16 { 0 } else { (self.size() / 16).clamp(16, 256) };
        let dynamic = first + reserved;
        let random = (0..RANDOM_TRIES).map(move |_| rand::random_range(dynamic..=last));
        let upper = (dynamic..=last).take(usize::try_from(WALKED).unwrap_or(usize::MAX));
        random.chain(upper).chain(first..dynamic).map(move |offset| self.at(offset))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.at(0), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn range(text: &str) -> Cidr {
        Cidr::parse(text).expect(text)
    }

    #[test]
    fn ranges_know_their_hosts() {
        let v4 = range("10.96.0.7/16");
        assert_eq!((v4.to_string(), v4.at(10).to_string()), ("10.96.0.0/16".into(), "10.96.0.10".into()));
        let v6 = range("fd96::1/108");
        assert_eq!((v6.to_string(), v6.at(10).to_string()), ("fd96::/108".into(), "fd96::a".into()));
        for (range, address, inside) in [
            (v4, "10.96.0.1", true),
            (v4, "10.96.255.254", true),
            (v4, "10.96.0.0", false),
            (v4, "10.96.255.255", false),
            (v4, "10.97.0.1", false),
            (v4, "fd96::1", false),
            (v6, "fd96::1", true),
            (v6, "fd96::f:ffff", true),
            (v6, "fd96::", false),
            (v6, "fd96::10:0", false),
            (v6, "0.0.0.1", false),
        ] {
            assert_eq!(range.has(address.parse().expect(address)), inside, "{address}");
        }
        for odd in ["10.96.0.0", "10.96.0.0/33", "10.0.0.0/4", "fd96::/32", "fd96::/128"] {
            assert!(Cidr::parse(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn every_address_is_tried_and_the_lower_ones_last() {
        for text in ["10.0.0.0/24", "10.0.0.0/28", "10.0.0.0/30", "fd00::/120"] {
            let range = range(text);
            let tried: Vec<IpAddr> = range.candidates().collect();
            let all: BTreeSet<IpAddr> = tried.iter().copied().collect();
            assert_eq!(all, (0..range.size()).map(|n| range.at(n)).filter(|a| range.has(*a)).collect(), "{text}");
        }
        let range = range("10.0.0.0/24");
        let lower = range.candidates().position(|address| number(address) - range.base <= 16).expect("the lower part");
        assert_eq!(lower, RANDOM_TRIES + 254 - 16);
    }
}
