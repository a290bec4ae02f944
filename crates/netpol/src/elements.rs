//! The elements of the nftables tables: what was decided, said once more for each pod that it is about, because a rule can look up nothing by what
//! another rule has looked up, except by the packet's mark.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rules::protocol::Protocol;

use crate::blocks::{Part, parts};
use crate::compile::Compiler;
use crate::decision::{self, Allowed, Changes};
use crate::model::Direction;
use crate::ports::Range;

/// An element of one of the maps. Who can be at the other end is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// A pod's address; its value is the number of pods like it.
    Identity(IpAddr),
    /// A pod's address; its value is the number of pods like it with the same blocks around them.
    Exact(IpAddr),
    /// From the first address to the last one; its value is the number of the block.
    Block(IpAddr, IpAddr),
    /// A pod of this node that is judged in a direction; its value is how.
    Isolated(Direction, IpAddr),
    /// An isolated pod may talk to itself, through a Service or without.
    Itself(IpAddr),
    /// Everything between a pod of this node and the other end is allowed.
    All(Direction, IpAddr, u32),
    /// So is what has no ports.
    Portless(Direction, IpAddr, u32),
    /// So is one port.
    Port(Direction, IpAddr, u32, Protocol, u16),
    /// So are several ports.
    Range(Direction, IpAddr, u32, Range),
}

/// What an update changes. All of it is one transaction, but for what goes last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub remove: BTreeSet<Element>,
    pub add: BTreeMap<Element, u32>,
    /// Allowances of numbers that nobody has any more.
    pub remove_last: BTreeSet<Element>,
}

/// What rules allow adds up.
pub const ADDED_UP: u32 = 0;
/// Rules are asked in order.
pub const IN_ORDER: u32 = 1;

type Allowances = BTreeSet<(u32, Allowed)>;

impl Transaction {
    /// What a change of decisions means, after the compiler made it.
    pub fn of(compiler: &Compiler, changes: &Changes) -> Self {
        let mut out = Self::default();
        let mut rulesets: BTreeMap<u32, (Allowances, Allowances)> = BTreeMap::new();
        let mut moved: BTreeMap<(Direction, IpAddr), Option<u32>> = BTreeMap::new();
        for (key, value) in &changes.remove {
            match *key {
                decision::Key::Identity(ip) => drop(out.remove.insert(Element::Identity(ip))),
                decision::Key::Exact(ip) => drop(out.remove.insert(Element::Exact(ip))),
                decision::Key::Ruleset(direction, ip) => drop(moved.insert((direction, ip), Some(*value))),
                decision::Key::Allowed(ruleset, other, what) => {
                    rulesets.entry(ruleset).or_default().0.insert((other, what));
                }
                decision::Key::Block(_) => {}
            }
        }
        for (key, value) in &changes.add {
            match *key {
                decision::Key::Identity(ip) => drop(out.add.insert(Element::Identity(ip), *value)),
                decision::Key::Exact(ip) => drop(out.add.insert(Element::Exact(ip), *value)),
                decision::Key::Ruleset(direction, ip) => drop(moved.entry((direction, ip)).or_default()),
                decision::Key::Allowed(ruleset, other, what) => {
                    rulesets.entry(ruleset).or_default().1.insert((other, what));
                }
                decision::Key::Block(_) => {}
            }
        }
        out.move_pods(compiler, &rulesets, &moved);
        for (ruleset, (removed, added)) in &rulesets {
            for (direction, ip) in compiler.members(*ruleset).filter(|pod| !moved.contains_key(pod)) {
                for (other, what) in removed {
                    let last = changes.gone.contains(other);
                    let from = if last { &mut out.remove_last } else { &mut out.remove };
                    from.insert(element(direction, ip, *other, *what));
                }
                out.add.extend(added.iter().map(|(other, what)| (element(direction, ip, *other, *what), 0)));
            }
        }
        out.divide_blocks(compiler, changes);
        out
    }

    /// Pods that are under another ruleset: what the one before allowed before goes, what theirs allows now comes.
    fn move_pods(
        &mut self,
        compiler: &Compiler,
        rulesets: &BTreeMap<u32, (Allowances, Allowances)>,
        moved: &BTreeMap<(Direction, IpAddr), Option<u32>>,
    ) {
        for ((direction, ip), old) in moved {
            let elements = |all: Allowances| -> BTreeSet<Element> {
                all.into_iter().map(|(other, what)| element(*direction, *ip, other, what)).collect()
            };
            let new = compiler.ruleset_of(*direction, *ip);
            let before = old.map(|old| {
                let mut all: Allowances = compiler.allowed(old).collect();
                if let Some((removed, added)) = rulesets.get(&old) {
                    all.retain(|one| !added.contains(one));
                    all.extend(removed);
                }
                elements(all)
            });
            let after = new.map(|new| elements(compiler.allowed(new).collect())).unwrap_or_default();
            let before = before.unwrap_or_default();
            self.remove.extend(before.difference(&after));
            self.add.extend(after.difference(&before).map(|element| (*element, 0)));
            let (old, new) = (old.map(judgement), new.map(judgement));
            self.replace(Element::Isolated(*direction, *ip), old, new);
            // Of a pod that moved in several directions this is found out several times.
            let is_now = Direction::ALL.map(|direction| compiler.ruleset_of(direction, *ip).is_some());
            let was = Direction::ALL.map(|direction| match moved.get(&(direction, *ip)) {
                Some(old) => old.is_some(),
                None => compiler.ruleset_of(direction, *ip).is_some(),
            });
            let some = |any: [bool; 3]| any.contains(&true).then_some(0);
            self.replace(Element::Itself(*ip), some(was), some(is_now));
        }
    }

    fn divide_blocks(&mut self, compiler: &Compiler, changes: &Changes) {
        let of = |map: &BTreeMap<decision::Key, u32>| {
            let blocks = map.iter().filter_map(|(key, value)| match key {
                decision::Key::Block(block) => Some((*block, *value)),
                _ => None,
            });
            blocks.collect::<BTreeMap<_, _>>()
        };
        let (removed, added) = (of(&changes.remove), of(&changes.add));
        if removed.is_empty() && added.is_empty() {
            return;
        }
        let after = compiler.blocks();
        let mut before = after.clone();
        before.retain(|block, _| !added.contains_key(block));
        before.extend(removed);
        let shown = |parts: Vec<Part>| -> BTreeMap<Element, u32> {
            parts.into_iter().map(|(first, last, number)| (Element::Block(first, last), number)).collect()
        };
        let (before, after) = (shown(parts(&before)), shown(parts(&after)));
        self.remove
            .extend(before.iter().filter(|(part, number)| after.get(part) != Some(number)).map(|(part, _)| *part));
        self.add.extend(after.into_iter().filter(|(part, number)| before.get(part) != Some(number)));
    }

    fn replace(&mut self, element: Element, before: Option<u32>, after: Option<u32>) {
        if before != after {
            self.remove.extend(before.map(|_| element));
            self.add.extend(after.map(|value| (element, value)));
        }
    }
}

/// All elements there should be.
pub fn all(compiler: &Compiler) -> BTreeMap<Element, u32> {
    let mut all = BTreeMap::new();
    for (key, value) in compiler.all() {
        match key {
            decision::Key::Identity(ip) => drop(all.insert(Element::Identity(ip), value)),
            decision::Key::Exact(ip) => drop(all.insert(Element::Exact(ip), value)),
            decision::Key::Ruleset(direction, ip) => {
                all.insert(Element::Isolated(direction, ip), judgement(value));
                all.insert(Element::Itself(ip), 0);
                all.extend(compiler.allowed(value).map(|(other, what)| (element(direction, ip, other, what), 0)));
            }
            decision::Key::Block(_) | decision::Key::Allowed(..) => {}
        }
    }
    let parts = parts(&compiler.blocks()).into_iter();
    all.extend(parts.map(|(first, last, number)| (Element::Block(first, last), number)));
    all
}

/// How pods under a ruleset are judged: the values of [`Element::Isolated`].
fn judgement(ruleset: u32) -> u32 {
    if ruleset & decision::ORDERED != 0 { IN_ORDER } else { ADDED_UP }
}

fn element(direction: Direction, pod: IpAddr, other: u32, what: Allowed) -> Element {
    match what {
        Allowed::Everything => Element::All(direction, pod, other),
        Allowed::Portless => Element::Portless(direction, pod, other),
        Allowed::Ports(range) if range.first == range.last => {
            Element::Port(direction, pod, other, range.protocol, range.first)
        }
        Allowed::Ports(range) => Element::Range(direction, pod, other, range),
    }
}
