//! The kernel's maps as a test has them: what changes say is done to them, and packets are judged as the rules judge them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netpol::elements::{ANYBODY, Changes, Key};
use netpol::model::Direction;
use netpol::ports::Protocol;

#[derive(Default)]
pub struct Tables(pub BTreeMap<Key, u32>);

impl Tables {
    /// A change must be one: what is removed is there, what is added is not.
    pub fn apply(&mut self, changes: &Changes) {
        for key in &changes.remove {
            assert!(self.0.remove(key).is_some(), "removed but not there: {key:?}");
        }
        for (key, value) in &changes.add {
            assert!(self.0.insert(*key, *value).is_none(), "added but there: {key:?}");
        }
        for key in &changes.remove_last {
            assert!(self.0.remove(key).is_some(), "removed last but not there: {key:?}");
        }
    }

    fn block(&self, ip: IpAddr) -> Option<u32> {
        self.0.iter().find_map(|(key, number)| match key {
            Key::Block(first, last) if first.is_ipv4() == ip.is_ipv4() && *first <= ip && ip <= *last => Some(*number),
            _ => None,
        })
    }

    fn passes(&self, direction: Direction, pod: IpAddr, other: IpAddr, to: Option<(Protocol, u16)>) -> bool {
        if !self.0.contains_key(&Key::Isolated(direction, pod)) {
            return true;
        }
        let numbers = [Some(ANYBODY), self.0.get(&Key::Identity(other)).copied(), self.block(other)];
        numbers.into_iter().flatten().any(|number| {
            let ranged = |(protocol, port): (Protocol, u16)| {
                self.0.contains_key(&Key::Port(direction, pod, number, protocol, port))
                    || self.0.keys().any(|key| {
                        matches!(key, Key::Range(d, p, n, range) if (*d, *p, *n) == (direction, pod, number)
                            && range.protocol == protocol && range.first <= port && port <= range.last)
                    })
            };
            self.0.contains_key(&Key::All(direction, pod, number)) || to.is_some_and(ranged)
        })
    }

    /// Whether a packet that opens a connection passes this node.
    pub fn judge(&self, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        (from == to && self.0.contains_key(&Key::Itself(from)))
            || (self.passes(Direction::Egress, from, to, port) && self.passes(Direction::Ingress, to, from, port))
    }
}
