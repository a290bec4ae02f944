//! What was decided as bytes of the programs' maps. Pure.
//!
//! Numbers are as the machine has them, what packets carry is as packets carry it. A range of ports is kept as the prefixes that make it up, so one
//! look-up for the longest prefix finds a port, a range, a whole protocol or everything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::decision::{Allowed, Changes, Key};
use crate::model::Direction;
use crate::ports::Range;

/// A family, in front of its address.
pub const FOUR: u32 = 4;
pub const SIX: u32 = 6;
/// The length of an address with its family.
pub const ADDRESS: usize = 20;
/// The lengths of keys: a direction or a number of bits in front of an address, and what is allowed to whom.
pub const PREFIXED: usize = 4 + ADDRESS;
pub const ALLOWANCE: usize = 16;
/// Bits of a key of allowances: ruleset and other end, then the protocol, then the port.
const OTHER_END: u32 = 64;
const PROTOCOL: u32 = 16;
/// All bits of one.
pub const WHOLE: u32 = 96;
/// Every value is a number.
pub const VALUE: usize = 4;

/// One of the maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum In {
    /// What rulesets allow.
    Allowed,
    /// The numbers of pods, by their addresses.
    Identities,
    /// The numbers that ordered rulesets are asked about, by the addresses of pods.
    Exact,
    /// The numbers of blocks, by prefixes.
    Blocks,
    /// The rulesets of pods of this node, by direction and address.
    Rulesets,
}

/// Where an element is, and by which key.
pub type Place = (In, Vec<u8>);

/// An address with its family, as programs write it.
pub fn address(ip: IpAddr) -> [u8; ADDRESS] {
    let mut out = [0; ADDRESS];
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (FOUR, ip.octets().to_vec()),
        IpAddr::V6(ip) => (SIX, ip.octets().to_vec()),
    };
    out[..4].copy_from_slice(&family.to_ne_bytes());
    out[4..4 + octets.len()].copy_from_slice(&octets);
    out
}

/// What stands in front of an address for a direction.
pub fn number(direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
        Direction::Node => 2,
    }
}

fn prefixed(word: u32, ip: IpAddr) -> Vec<u8> {
    [&word.to_ne_bytes()[..], &address(ip)].concat()
}

fn block(block: IpNet) -> Vec<u8> {
    prefixed(32 + u32::from(block.prefix_len()), block.network())
}

fn allowance(bits: u32, ruleset: u32, other: u32, protocol: u8, port: u16) -> Vec<u8> {
    let words = [bits, ruleset, other].map(u32::to_ne_bytes);
    [words.as_flattened(), &[0, protocol], &port.to_be_bytes()].concat()
}

/// The keys of one thing that was decided: one, but for ranges of ports.
pub fn places(key: &Key) -> Vec<Place> {
    match *key {
        Key::Identity(ip) => vec![(In::Identities, address(ip).to_vec())],
        Key::Exact(ip) => vec![(In::Exact, address(ip).to_vec())],
        Key::Block(net) => vec![(In::Blocks, block(net))],
        Key::Ruleset(direction, ip) => vec![(In::Rulesets, prefixed(number(direction), ip))],
        Key::Allowed(ruleset, other, Allowed::Everything) => {
            vec![(In::Allowed, allowance(OTHER_END, ruleset, other, 0, 0))]
        }
        // Protocols without ports are written as none.
        Key::Allowed(ruleset, other, Allowed::Portless) => {
            vec![(In::Allowed, allowance(OTHER_END + PROTOCOL, ruleset, other, 0, 0))]
        }
        Key::Allowed(ruleset, other, Allowed::Ports(range)) => prefixes(range)
            .map(|(port, bits)| {
                let bits = OTHER_END + PROTOCOL + bits;
                (In::Allowed, allowance(bits, ruleset, other, range.protocol.number(), port))
            })
            .collect(),
    }
}

/// The fewest prefixes that are exactly these ports: the first port of each, and how many of its bits count.
fn prefixes(range: Range) -> impl Iterator<Item = (u16, u32)> {
    let mut next = u32::from(range.first);
    let last = u32::from(range.last);
    std::iter::from_fn(move || {
        let port = u16::try_from(next).ok().filter(|_| next <= last)?;
        // As large as it may be by where it begins, and by what is left.
        let mut free = if port == 0 { 16 } else { port.trailing_zeros() };
        while next + (1 << free) - 1 > last {
            free -= 1;
        }
        next += 1 << free;
        Some((port, 16 - free))
    })
}

/// A change, in the order in which it is made: at every moment between two steps a packet that was allowed and will be is allowed, and
/// one that was not and will not be is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub insert: Vec<(Place, u32)>,
    pub remove: Vec<Place>,
}

impl Steps {
    pub fn of(changes: &Changes) -> Self {
        // What is allowed comes before anybody can be who it is allowed to, and goes after.
        let inserted: BTreeMap<Place, u32> =
            changes.add.iter().flat_map(|(key, value)| places(key).into_iter().map(|place| (place, *value))).collect();
        let removed: BTreeSet<Place> = changes.remove.keys().flat_map(places).collect();
        // Two ranges may have prefixes in common, and an element that has another value is not removed first.
        let mut remove: Vec<Place> = removed.into_iter().filter(|place| !inserted.contains_key(place)).collect();
        remove.sort_by_key(|(map, _)| *map == In::Allowed);
        Self { insert: inserted.into_iter().collect(), remove }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::protocol::Protocol;

    #[test]
    fn ranges_are_the_prefixes_that_make_them_up() {
        let check = |first, last, want: &[(u16, u32)]| {
            let range = Range { protocol: Protocol::Tcp, first, last };
            assert_eq!(prefixes(range).collect::<Vec<_>>(), want, "{first}-{last}");
        };
        check(80, 80, &[(80, 16)]);
        check(0, 65_535, &[(0, 0)]);
        check(80, 90, &[(80, 13), (88, 15), (90, 16)]);
        check(65_535, 65_535, &[(65_535, 16)]);
        check(1, 65_535, &(0..16).map(|bit| (1_u16 << bit, 16 - bit)).collect::<Vec<_>>());
        for (first, last) in [(3, 17), (1_000, 32_768), (65_530, 65_535), (0, 1)] {
            let all: Vec<u32> = prefixes(Range { protocol: Protocol::Udp, first, last })
                .flat_map(|(port, bits)| u32::from(port)..u32::from(port) + (1 << (16 - bits)))
                .collect();
            assert_eq!(all, (u32::from(first)..=u32::from(last)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_two_ranges_have_in_common_stays() {
        let ports = |first, last| Key::Allowed(7, 1, Allowed::Ports(Range { protocol: Protocol::Tcp, first, last }));
        let ip = "10.0.0.1".parse().unwrap();
        let mut changes = Changes::default();
        changes.replace(Key::Identity(ip), Some(1), Some(2));
        changes.remove.insert(ports(80, 90), 0);
        changes.add.insert(ports(80, 88), 0);
        let steps = Steps::of(&changes);
        let inserted: Vec<In> = steps.insert.iter().map(|((map, _), _)| *map).collect();
        assert_eq!(inserted, [In::Allowed, In::Allowed, In::Identities], "allowances first");
        let kept = |place: &Place| steps.insert.iter().any(|(other, _)| other == place);
        assert_eq!(steps.remove.len(), 2);
        assert!(!steps.remove.iter().any(kept) && places(&ports(80, 87)).iter().all(kept));
    }
}
