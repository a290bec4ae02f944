//! The kernel's maps as a test has them: what changes say is done to them, and packets are judged as the rules judge them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netpol::decision::{ANYBODY, ORDERED};
use netpol::ebpf::entries::{self, In, Place, Steps};
use netpol::elements::{Element, IN_ORDER, Transaction};
use netpol::model::Direction;
use rules::protocol::Protocol;

#[derive(Default)]
pub struct Tables(pub BTreeMap<Element, u32>);

impl Tables {
    /// A change must be one: what is removed is there, what is added is not.
    pub fn apply(&mut self, changes: &Transaction) {
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
            Element::Block(first, last) if first.is_ipv4() == ip.is_ipv4() && *first <= ip && ip <= *last => {
                Some(*number)
            }
            _ => None,
        })
    }

    fn passes(&self, direction: Direction, pod: IpAddr, other: IpAddr, to: Option<(Protocol, u16)>) -> bool {
        let Some(judgement) = self.0.get(&Element::Isolated(direction, pod)) else { return true };
        let numbers = if *judgement == IN_ORDER {
            let exact = self.0.get(&Element::Exact(other)).copied();
            [exact.or_else(|| self.block(other)).or(Some(ANYBODY)), None, None]
        } else {
            [Some(ANYBODY), self.0.get(&Element::Identity(other)).copied(), self.block(other)]
        };
        numbers.into_iter().flatten().any(|number| {
            let ranged = |(protocol, port): (Protocol, u16)| {
                self.0.contains_key(&Element::Port(direction, pod, number, protocol, port))
                    || self.0.keys().any(|key| {
                        matches!(key, Element::Range(d, p, n, range) if (*d, *p, *n) == (direction, pod, number)
                            && range.protocol == protocol && range.first <= port && port <= range.last)
                    })
            };
            let portless = || self.0.contains_key(&Element::Portless(direction, pod, number));
            self.0.contains_key(&Element::All(direction, pod, number)) || to.map_or_else(portless, ranged)
        })
    }

    /// Whether a packet to the node itself arrives.
    pub fn arrives(&self, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        self.passes(Direction::Node, from, to, port)
    }

    /// Whether a packet that opens a connection passes this node.
    pub fn judge(&self, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        (from == to && self.0.contains_key(&Element::Itself(from)))
            || (self.passes(Direction::Egress, from, to, port) && self.passes(Direction::Ingress, to, from, port))
    }
}

/// The programs' maps, as bytes: what steps say is done to them, and packets are judged as the programs judge them.
#[derive(Default)]
pub struct Maps(pub BTreeMap<Place, u32>);

impl Maps {
    pub fn apply(&mut self, steps: Steps) {
        for (place, value) in steps.insert {
            self.0.insert(place, value);
        }
        for place in steps.remove {
            assert!(self.0.remove(&place).is_some(), "removed but not there: {place:?}");
        }
    }

    /// The longest beginning of a key that is there.
    fn longest(&self, map: In, key: &[u8]) -> Option<u32> {
        let bits = (key.len() - 4) * 8;
        (0..=bits).rev().find_map(|bits| {
            let mut beginning = key.to_vec();
            beginning[..4].copy_from_slice(&u32::try_from(bits).unwrap().to_ne_bytes());
            for (at, byte) in beginning[4..].iter_mut().enumerate() {
                let kept = bits.saturating_sub(at * 8).min(8);
                *byte &= u8::try_from(0xff00_u32 >> kept & 0xff).unwrap();
            }
            self.0.get(&(map, beginning)).copied()
        })
    }

    fn passes(&self, direction: Direction, pod: IpAddr, other: IpAddr, to: Option<(Protocol, u16)>) -> bool {
        let key = [&entries::number(direction).to_ne_bytes()[..], &entries::address(pod)].concat();
        let Some(ruleset) = self.0.get(&(In::Rulesets, key)) else { return true };
        let address = entries::address(other).to_vec();
        let block = [&[0; 4][..], &address].concat();
        let (pod, around) = (|map| self.0.get(&(map, address.clone())).copied(), self.longest(In::Blocks, &block));
        let numbers = match ruleset & ORDERED {
            0 => [Some(ANYBODY), pod(In::Identities), around],
            _ => [pod(In::Exact).or(around).or(Some(ANYBODY)), None, None],
        };
        let (protocol, port) = to.map_or((0, 0), |(protocol, port)| (protocol.number(), port));
        numbers.into_iter().flatten().any(|number| {
            let words = [0, *ruleset, number].map(u32::to_ne_bytes);
            let key = [words.as_flattened(), &[0, protocol], &port.to_be_bytes()].concat();
            self.longest(In::Allowed, &key).is_some()
        })
    }

    pub fn arrives(&self, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        self.passes(Direction::Node, from, to, port)
    }

    pub fn judge(&self, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        from == to
            || (self.passes(Direction::Egress, from, to, port) && self.passes(Direction::Ingress, to, from, port))
    }
}
