//! Numbers that say both who is behind an address and which blocks are around it, for rulesets that are asked in order.
//!
//! They are there only while somebody asks for them: most nodes have no policy of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rustc_hash::FxHashMap;

use crate::model::Alike;

type Who = (Arc<Alike>, Option<IpNet>);

#[derive(Debug, Default)]
pub struct Exact {
    numbers: FxHashMap<Who, (u32, usize)>,
    addresses: BTreeMap<IpAddr, u32>,
    /// By number.
    who: FxHashMap<u32, Who>,
}

/// What became of an address.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved {
    pub address: IpAddr,
    pub before: Option<u32>,
    pub after: Option<u32>,
}

impl Exact {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    pub fn addresses(&self) -> &BTreeMap<IpAddr, u32> {
        &self.addresses
    }

    pub fn who(&self, number: u32) -> Option<&Who> {
        self.who.get(&number)
    }

    /// Gives an address to somebody, or to nobody. A number that is new is the next one.
    pub fn set(&mut self, address: IpAddr, who: Option<Who>, next: &mut u32) -> Option<Moved> {
        let before = self.addresses.get(&address).copied();
        let after = who.map(|who| {
            let number = self.numbers.entry(who.clone()).or_insert_with(|| {
                *next += 1;
                self.who.insert(*next, who);
                (*next, 0)
            });
            number.1 += 1;
            number.0
        });
        match after {
            Some(number) => drop(self.addresses.insert(address, number)),
            None => drop(self.addresses.remove(&address)),
        }
        if let Some(users) = before.and_then(|before| self.numbers.get_mut(self.who.get(&before)?)) {
            users.1 -= 1;
        }
        (before != after).then_some(Moved { address, before, after })
    }

    /// Forgets a number if nobody has it; whether it did.
    pub fn release(&mut self, number: u32) -> bool {
        let unused =
            self.who.get(&number).is_some_and(|who| self.numbers.get(who).is_some_and(|(_, users)| *users == 0));
        if let Some(who) = unused.then(|| self.who.remove(&number)).flatten() {
            self.numbers.remove(&who);
        }
        unused
    }
}

/// The smallest of some blocks around an address, given the lengths that any of them has.
pub fn smallest<'a>(
    blocks: impl Fn(&IpNet) -> bool,
    lengths: impl DoubleEndedIterator<Item = &'a u8>,
    address: IpAddr,
) -> Option<IpNet> {
    let around = lengths.rev().filter_map(|length| IpNet::new(address, *length).ok());
    around.map(|net| net.trunc()).find(|net| blocks(net))
}

/// The lengths of blocks, of both families.
pub fn lengths<'a>(blocks: impl Iterator<Item = &'a IpNet>) -> BTreeSet<u8> {
    blocks.map(IpNet::prefix_len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_around_an_address_is_found() {
        let blocks: Vec<IpNet> =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "fd00::/64"].map(|block| block.parse().unwrap()).to_vec();
        let lengths = lengths(blocks.iter());
        let check = |address: &str, want: Option<&str>| {
            let found = smallest(|net| blocks.contains(net), lengths.iter(), address.parse().unwrap());
            assert_eq!(found.map(|net| net.to_string()).as_deref(), want, "{address}");
        };
        check("10.0.0.7", Some("10.0.0.0/24"));
        check("10.0.1.7", Some("10.0.0.0/8"));
        check("11.0.0.1", Some("0.0.0.0/0"));
        check("fd00::7", Some("fd00::/64"));
        check("fd01::7", None);
    }

    #[test]
    fn a_number_is_kept_while_anybody_has_it() {
        let who = |name: &str| {
            let alike = Alike { namespace: name.into(), labels: BTreeMap::new(), ports: BTreeMap::new() };
            Some((Arc::new(alike), None))
        };
        let (mut exact, mut next) = (Exact::default(), 7);
        let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
        assert_eq!(exact.set(ip(1), who("a"), &mut next).unwrap().after, Some(8));
        assert_eq!(exact.set(ip(2), who("a"), &mut next).unwrap().after, Some(8));
        assert_eq!(exact.set(ip(2), who("a"), &mut next), None);
        assert_eq!(exact.set(ip(1), None, &mut next).unwrap().before, Some(8));
        assert!(!exact.release(8));
        exact.set(ip(2), who("b"), &mut next);
        assert!(exact.release(8) && !exact.release(9));
        assert_eq!(exact.set(ip(1), who("a"), &mut next).unwrap().after, Some(10), "numbers are not used again");
    }
}
