//! The books: a cluster's ranges cut into ranges of nodes, and which of them are whose.
//!
//! Finding a free range costs the same however many nodes there are: every slot of a range is counted, and the first that may be free is known.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// No range is cut into more slots than this.
const MOST: u128 = 1 << 16;

/// One range of the cluster.
#[derive(Debug)]
struct Range {
    cluster: IpNet,
    /// The size of a node's range.
    bits: u8,
    /// How many ranges lie over each slot.
    users: Vec<u32>,
    /// No slot before this one is free.
    first: usize,
    taken: usize,
}

impl Range {
    fn new(cluster: IpNet, bits: u8) -> Self {
        let bits = bits.max(cluster.prefix_len());
        let count = 1_u128.checked_shl(u32::from(bits - cluster.prefix_len())).unwrap_or(MOST).min(MOST);
        let slots = usize::try_from(count).expect("at most 65,536");
        Self { cluster, bits, users: vec![0; slots], first: 0, taken: 0 }
    }

    fn start(&self) -> u128 {
        number(self.cluster.network())
    }

    fn step(&self) -> u128 {
        1_u128 << (self.cluster.max_prefix_len() - self.bits).min(127)
    }

    /// The slots that a range lies over.
    fn slots(&self, cidr: IpNet) -> std::ops::Range<usize> {
        let (from, to) = (number(cidr.network()), number(cidr.broadcast()));
        let (start, step) = (self.start(), self.step());
        if cidr.max_prefix_len() != self.cluster.max_prefix_len() || to < start {
            return 0..0;
        }
        let slot = |at: u128| usize::try_from(at.saturating_sub(start) / step).unwrap_or(usize::MAX);
        let end = slot(to).saturating_add(1).min(self.users.len());
        slot(from).min(end)..end
    }

    fn take(&mut self, cidr: IpNet) {
        for slot in self.slots(cidr) {
            self.taken += usize::from(self.users[slot] == 0);
            self.users[slot] += 1;
        }
    }

    fn release(&mut self, cidr: IpNet) {
        let slots = self.slots(cidr);
        if !slots.is_empty() {
            self.first = self.first.min(slots.start);
        }
        for slot in slots {
            self.users[slot] = self.users[slot].saturating_sub(1);
            self.taken -= usize::from(self.users[slot] == 0);
        }
    }

    /// The first range that nobody has.
    fn free(&mut self) -> Option<IpNet> {
        let free = self.users[self.first..].iter().position(|users| *users == 0);
        self.first = free.map_or(self.users.len(), |free| self.first + free);
        let at = self.start() + self.step() * (self.first as u128);
        free.and_then(|_| IpNet::new(address(at, self.cluster.addr()), self.bits).ok())
    }
}

/// How full a range of the cluster is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cluster: IpNet,
    pub(super) taken: usize,
    pub(super) most: usize,
}

/// All ranges, and what each node has.
#[derive(Debug)]
pub(super) struct Ledger {
    ranges: Vec<Range>,
    nodes: HashMap<String, Vec<IpNet>>,
}

impl Ledger {
    /// The cluster's ranges, each with the size of a node's part of it, and ranges that are no node's to have.
    pub(super) fn new(cluster: impl IntoIterator<Item = (IpNet, u8)>, reserved: &[IpNet]) -> Self {
        let ranges = cluster.into_iter().map(|(cluster, bits)| Range::new(cluster, bits)).collect();
        let mut ledger = Self { ranges, nodes: HashMap::new() };
        ledger.each(reserved, Range::take);
        ledger
    }

    fn each(&mut self, cidrs: &[IpNet], change: impl Fn(&mut Range, IpNet)) {
        for range in &mut self.ranges {
            cidrs.iter().for_each(|cidr| change(range, *cidr));
        }
    }

    /// A node has these. Answers whether that was not known.
    pub(super) fn note(&mut self, node: &str, cidrs: Vec<IpNet>) -> bool {
        if self.nodes.get(node) == Some(&cidrs) {
            return false;
        }
        self.each(&cidrs, Range::take);
        if let Some(before) = self.nodes.insert(node.to_owned(), cidrs) {
            self.each(&before, Range::release);
        }
        true
    }

    /// A node is gone; what it had is free. Answers how many that were.
    pub(super) fn release(&mut self, node: &str) -> usize {
        let had = self.nodes.remove(node).unwrap_or_default();
        self.each(&had, Range::release);
        had.len()
    }

    /// What a node is to have, one of each of the cluster's ranges: the same until it is gone, however often it is asked. `None` if there is none left.
    pub(super) fn give(&mut self, node: &str) -> Option<Vec<IpNet>> {
        if let Some(given) = self.nodes.get(node) {
            return Some(given.clone());
        }
        let given: Vec<IpNet> = self.ranges.iter_mut().map(Range::free).collect::<Option<_>>()?;
        self.note(node, given.clone());
        Some(given)
    }

    /// How full the ranges are.
    pub(super) fn usage(&self) -> impl Iterator<Item = Usage> {
        self.ranges.iter().map(|range| Usage { cluster: range.cluster, taken: range.taken, most: range.users.len() })
    }
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
