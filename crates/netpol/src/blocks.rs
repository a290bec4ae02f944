//! Blocks of addresses as parts that do not overlap: an address belongs to the smallest block around it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// A part: its first and last address, and the number of its block.
pub type Part = (IpAddr, IpAddr, u32);

/// The parts of these blocks, in order.
pub fn parts(blocks: &BTreeMap<IpNet, u32>) -> Vec<Part> {
    let mut out = Vec::new();
    for v4 in [true, false] {
        let mut sorted: Vec<(u128, u128, u32)> = blocks
            .iter()
            .filter(|(block, _)| block.addr().is_ipv4() == v4)
            .map(|(block, number)| (bits(block.network()), bits(block.broadcast()), *number))
            .collect();
        // The wider of two that begin together comes first.
        sorted.sort_unstable_by_key(|(first, last, _)| (*first, u128::MAX - *last));
        let mut part = |first: u128, last: u128, number: u32| {
            if first <= last {
                out.push((address(first, v4), address(last, v4), number));
            }
        };
        // The blocks around the current place, and the first address that is not in a part yet.
        let mut open: Vec<(u128, u32)> = Vec::new();
        let mut next = Some(0_u128);
        let close = |open: &mut Vec<(u128, u32)>, next: &mut Option<u128>, part: &mut dyn FnMut(u128, u128, u32)| {
            if let (Some((last, number)), Some(from)) = (open.pop(), *next) {
                part(from, last, number);
                // One that ends where the one within it ended is over already.
                *next = last.checked_add(1).map(|after| after.max(from));
            }
        };
        for (first, last, number) in sorted {
            while open.last().is_some_and(|(end, _)| *end < first) {
                close(&mut open, &mut next, &mut part);
            }
            if let (Some((_, around)), Some(from)) = (open.last(), next)
                && from < first
            {
                part(from, first - 1, *around);
            }
            next = Some(first);
            open.push((last, number));
        }
        while !open.is_empty() {
            close(&mut open, &mut next, &mut part);
        }
    }
    out
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn address(bits: u128, v4: bool) -> IpAddr {
    if v4 {
        Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &[&str], want: &[&str]) {
        let blocks = blocks.iter().zip(1..).map(|(block, number)| (block.parse().unwrap(), number)).collect();
        let shown: Vec<String> = parts(&blocks).iter().map(|(a, b, number)| format!("{a}-{b}={number}")).collect();
        assert_eq!(shown, want);
    }

    #[test]
    fn an_address_belongs_to_the_smallest_block_around_it() {
        check(&[], &[]);
        check(&["10.0.0.0/8"], &["10.0.0.0-10.255.255.255=1"]);
        check(
            &["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "255.255.255.255/32"],
            &[
                "0.0.0.0-9.255.255.255=1",
                "10.0.0.0-10.0.0.255=3",
                "10.0.1.0-10.255.255.255=2",
                "11.0.0.0-255.255.255.254=1",
                "255.255.255.255-255.255.255.255=4",
            ],
        );
        check(
            &["10.0.0.0/25", "10.0.0.128/25", "fd00::/16", "::/0"],
            &[
                "10.0.0.0-10.0.0.127=1",
                "10.0.0.128-10.0.0.255=2",
                "::-fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff=4",
                "fd00::-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff=3",
                "fd01::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff=4",
            ],
        );
        check(
            &["10.0.0.0/24", "10.0.0.0/28", "10.0.0.8/29"],
            &["10.0.0.0-10.0.0.7=2", "10.0.0.8-10.0.0.15=3", "10.0.0.16-10.0.0.255=1"],
        );
        check(
            &["::/0", "ffff::/16"],
            &["::-fffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff=1", "ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff=2"],
        );
    }
}
