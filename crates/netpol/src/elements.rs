//! What the kernel's maps hold: who has an address, who is isolated, and what is allowed. An engine writes them, and nothing else
//! changes when pods and policies do.
//!
//! A packet is judged by look-ups alone. Of the pod that is asked about and the other end's address come up to three numbers:
//! that of anybody, that of the pod behind the address, and that of the smallest block around it. If one of them is allowed, the packet is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::Direction;
use crate::ports::{Ports, Protocol, Range};

/// The number that stands for every other end.
pub const ANYBODY: u32 = 0;
/// Numbers of blocks of addresses have this bit, those of pods do not.
pub const BLOCK: u32 = 1 << 31;

/// An element of one of the maps. Who can be at the other end is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A pod's address; its value is the number of pods like it.
    Identity(IpAddr),
    /// From the first address to the last one; its value is the number of the block.
    Block(IpAddr, IpAddr),
    /// A pod of this node that is isolated in a direction.
    Isolated(Direction, IpAddr),
    /// An isolated pod may talk to itself, through a Service or without.
    Itself(IpAddr),
    /// Everything between a pod of this node and the other end is allowed.
    All(Direction, IpAddr, u32),
    /// So is one port.
    Port(Direction, IpAddr, u32, Protocol, u16),
    /// So are several ports.
    Range(Direction, IpAddr, u32, Range),
}

/// What an update changes. All of it is one transaction, but for what goes last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub remove: BTreeSet<Key>,
    pub add: BTreeMap<Key, u32>,
    /// Allowances of numbers that nobody has any more. A packet that read such a number just before the transaction still finds
    /// what it is allowed just after it.
    pub remove_last: BTreeSet<Key>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.remove_last.is_empty()
    }

    /// An element that is to have another value, or to come or go.
    pub(crate) fn replace(&mut self, key: Key, before: Option<u32>, after: Option<u32>) {
        if before == after {
            return;
        }
        if before.is_some() {
            self.remove.insert(key);
        }
        if let Some(after) = after {
            self.add.insert(key, after);
        }
    }
}

/// The elements that allow so many ports of one other end.
pub(crate) fn allowances(
    direction: Direction,
    pod: IpAddr,
    peer: u32,
    ports: &Ports,
) -> impl Iterator<Item = Key> + '_ {
    let all = ports.is_all().then_some(Key::All(direction, pod, peer));
    let ranges = ports.ranges().iter().map(move |range| match range.first == range.last {
        true => Key::Port(direction, pod, peer, range.protocol, range.first),
        false => Key::Range(direction, pod, peer, *range),
    });
    all.into_iter().chain(ranges)
}
