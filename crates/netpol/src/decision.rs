//! What was decided, in the form that no engine has and each makes its own of: who has an address, which rules a pod is under, and what
//! these allow to whom.
//!
//! A packet is judged by look-ups alone. The pod that is asked about has a ruleset, if it is isolated. Of the other end's address come up to three
//! numbers: that of anybody, that of the pod behind the address, and that of the smallest block around it. If the ruleset allows one of them
//! what the packet is sent to, it passes.
//!
//! Where policies of the cluster have a say, allowing is not all there is: what one of them denies, no other rule may allow. Such a ruleset is
//! [`ORDERED`]: of the other end's address comes exactly one number, which says both who is behind it and which blocks are around it,
//! and what the ruleset says of that number is the whole answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::model::Direction;
use crate::ports::{Ports, Range};

/// The number that stands for every other end.
pub const ANYBODY: u32 = 0;
/// Numbers of blocks of addresses have this bit, those of pods do not.
pub const BLOCK: u32 = 1 << 31;
/// Numbers of rulesets that are asked about one number only have this bit.
pub const ORDERED: u32 = 1 << 31;

/// Something that was decided; what is said of it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A pod's address: the number of pods like it.
    Identity(IpAddr),
    /// A pod's address: the number of pods like it with the same blocks around them. Only there while a ruleset is ordered.
    Exact(IpAddr),
    /// A block of addresses: its own number.
    Block(IpNet),
    /// A pod of this node that is isolated in a direction: its ruleset.
    Ruleset(Direction, IpAddr),
    /// A ruleset allows this to the other end with this number; 0.
    Allowed(u32, u32, Allowed),
}

/// What an other end may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Allowed {
    Everything,
    /// What has no ports.
    Portless,
    Ports(Range),
}

impl Allowed {
    pub fn of(ports: &Ports) -> impl Iterator<Item = Self> + '_ {
        let everything = ports.is_all().then_some(Self::Everything);
        let portless = ports.is_portless().then_some(Self::Portless);
        everything.into_iter().chain(portless).chain(ports.ranges().iter().copied().map(Self::Ports))
    }
}

/// What an update changes. What has another value than before is removed with the one and added with the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub remove: BTreeMap<Key, u32>,
    pub add: BTreeMap<Key, u32>,
    /// Numbers that nobody has any more. A packet that read one of them just before still finds what it is allowed just after,
    /// so what was allowed to them goes last.
    pub gone: BTreeSet<u32>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }

    pub(crate) fn replace(&mut self, key: Key, before: Option<u32>, after: Option<u32>) {
        if before != after {
            self.remove.extend(before.map(|value| (key, value)));
            self.add.extend(after.map(|value| (key, value)));
        }
    }

    /// Another end may use other ports of a ruleset.
    pub(crate) fn allow(&mut self, ruleset: u32, other: u32, before: &Ports, after: &Ports) {
        let keys = |ports| Allowed::of(ports).map(move |allowed| Key::Allowed(ruleset, other, allowed));
        let (before, after): (BTreeSet<Key>, BTreeSet<Key>) = (keys(before).collect(), keys(after).collect());
        self.remove.extend(before.difference(&after).map(|key| (*key, 0)));
        self.add.extend(after.difference(&before).map(|key| (*key, 0)));
    }
}
