//! Which ports a rule is about: all of them, or ranges of protocols, kept in one form so that equal sets are equal.

use std::collections::BTreeMap;

use rules::protocol::Protocol;

/// Ports of a protocol, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

/// A set of ports. All of them includes what has no ports, such as ICMP; all ranges together do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ports {
    all: bool,
    /// What has no ports; not said if all are meant.
    portless: bool,
    /// Sorted, apart from each other; empty if all are meant.
    ranges: Vec<Range>,
}

/// Every port of every protocol that has any.
const EVERY: [Range; 3] = [
    Range { protocol: Protocol::Tcp, first: 0, last: u16::MAX },
    Range { protocol: Protocol::Udp, first: 0, last: u16::MAX },
    Range { protocol: Protocol::Sctp, first: 0, last: u16::MAX },
];

impl Ports {
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether what has no ports is meant, but not everything.
    pub fn is_portless(&self) -> bool {
        self.portless
    }

    pub fn is_empty(&self) -> bool {
        !self.all && !self.portless && self.ranges.is_empty()
    }

    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Whether a packet to this port is meant; no port stands for a protocol without any.
    pub fn contains(&self, to: Option<(Protocol, u16)>) -> bool {
        let within = |(protocol, port)| {
            self.ranges.iter().any(|range| range.protocol == protocol && range.first <= port && port <= range.last)
        };
        self.all || to.map_or(self.portless, within)
    }

    pub fn add(&mut self, range: Range) {
        if !self.all && range.first <= range.last {
            self.ranges.push(range);
            self.normalize();
        }
    }

    /// All of these at once: users may name tens of thousands.
    pub fn of(ranges: impl IntoIterator<Item = Range>) -> Self {
        let ranges = ranges.into_iter().filter(|range| range.first <= range.last).collect();
        let mut ports = Self { ranges, ..Self::default() };
        ports.normalize();
        ports
    }

    pub fn extend(&mut self, other: &Self) {
        if self.all || other.is_empty() {
            return;
        }
        if other.all {
            *self = Self::all();
            return;
        }
        self.ranges.extend(&other.ranges);
        self.portless |= other.portless;
        self.normalize();
    }

    /// Whether what has no ports is in it, and every range that is.
    fn whole(&self) -> (bool, &[Range]) {
        if self.all { (true, &EVERY) } else { (self.portless, &self.ranges) }
    }

    /// What is in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let ((mine, left), (theirs, right)) = (self.whole(), other.whole());
        let mut ranges = Vec::new();
        let (mut a, mut b) = (left.iter().peekable(), right.iter().peekable());
        while let (Some(one), Some(two)) = (a.peek(), b.peek()) {
            if one.protocol == two.protocol && one.first.max(two.first) <= one.last.min(two.last) {
                let (first, last) = (one.first.max(two.first), one.last.min(two.last));
                ranges.push(Range { protocol: one.protocol, first, last });
            }
            // Whichever ends first meets nothing more.
            if (one.protocol, one.last) <= (two.protocol, two.last) {
                a.next();
            } else {
                b.next();
            }
        }
        let mut both = Self { all: false, portless: mine && theirs, ranges };
        both.normalize();
        both
    }

    /// What is not in it.
    fn complement(&self) -> Self {
        let (portless, ranges) = self.whole();
        let mut rest = Vec::new();
        for every in EVERY {
            let mut next = Some(every.first);
            for range in ranges.iter().filter(|range| range.protocol == every.protocol) {
                if let Some(first) = next.filter(|first| *first < range.first) {
                    rest.push(Range { first, last: range.first - 1, ..every });
                }
                next = range.last.checked_add(1);
            }
            rest.extend(next.map(|first| Range { first, ..every }));
        }
        let mut rest = Self { all: false, portless: !portless, ranges: rest };
        rest.normalize();
        rest
    }

    /// What is in it and not in the other.
    pub fn without(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    fn normalize(&mut self) {
        if self.ranges.len() < 2 {
            return;
        }
        self.ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(self.ranges.len());
        for range in self.ranges.drain(..) {
            match merged.last_mut() {
                Some(last) if last.protocol == range.protocol && range.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        self.ranges = merged;
        if self.portless && self.ranges == EVERY {
            *self = Self::all();
        }
    }
}

/// The named ports of a pod. A name may stand for several numbers, one for each protocol and container.
pub type NamedPorts = BTreeMap<(String, Protocol), Vec<u16>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, last: u16) -> Range {
        Range { protocol: Protocol::Tcp, first, last }
    }

    #[test]
    fn what_two_sets_have_in_common_and_what_one_has_alone() {
        let of = |ranges: &[(u16, u16)]| Ports::of(ranges.iter().map(|(first, last)| range(*first, *last)));
        let some = of(&[(80, 90), (100, 100), (200, 65_535)]);
        assert_eq!(some.intersection(&of(&[(85, 100), (150, 300)])), of(&[(85, 90), (100, 100), (200, 300)]));
        assert_eq!(some.intersection(&Ports::all()), some);
        let rest = Ports::all().without(&some);
        assert!(
            rest.contains(None) && rest.contains(Some((Protocol::Udp, 80))) && rest.contains(Some((Protocol::Tcp, 79)))
        );
        assert!(!rest.contains(Some((Protocol::Tcp, 80))) && !rest.contains(Some((Protocol::Tcp, 65_535))));
        assert!(rest.intersection(&some).is_empty());
        let mut both = rest.clone();
        both.extend(&some);
        assert_eq!(both, Ports::all(), "in one form");
        assert_eq!(Ports::all().without(&Ports::all()), Ports::default());
        assert_eq!(Ports::all().without(&Ports::default()), Ports::all());
        let every = Ports::of(EVERY);
        assert_eq!(every.without(&some), rest.intersection(&every));
        assert!(Ports::all().without(&every).contains(None) && !every.contains(None));
    }

    #[test]
    fn sets_of_ports_have_one_form() {
        let mut ports = Ports::default();
        for part in [range(80, 80), range(90, 95), range(81, 89), range(9, 3), range(92, 93), range(65_535, 65_535)] {
            ports.add(part);
        }
        assert_eq!(ports.ranges(), [range(80, 95), range(65_535, 65_535)]);
        ports.add(Range { protocol: Protocol::Udp, first: 0, last: 65_535 });
        assert!(ports.contains(Some((Protocol::Udp, 1))) && !ports.contains(Some((Protocol::Sctp, 85))));
        assert!(!ports.contains(None), "what has no port is meant only where no port is named");
        ports.extend(&Ports::all());
        assert_eq!(ports, Ports::all());
        assert!(ports.contains(None));
    }
}
