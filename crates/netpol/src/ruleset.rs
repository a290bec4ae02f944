//! What the same policies allow to pods whose ports have the same names: computed once, however many pods share it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::decision::ANYBODY;
use crate::model::{Alike, Block, Direction, Labels, Peer, PeerPods, PolicyName, Rule};
use crate::ports::{NamedPorts, Ports, Protocol, Range};

/// What makes two rulesets the same: the policies, as they are written now, and what names of ports mean.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RulesetKey {
    pub direction: Direction,
    pub policies: Vec<(PolicyName, u64)>,
    /// Of the pods themselves; who they connect to has names of its own.
    pub ports: Option<NamedPorts>,
}

#[derive(Debug)]
struct Allow {
    anybody: bool,
    selectors: Vec<u32>,
    blocks: Vec<Block>,
    ports: Ports,
    named: Vec<(String, Protocol)>,
}

#[derive(Debug)]
pub struct Ruleset {
    key: RulesetKey,
    allows: Vec<Allow>,
    /// What each other end may use; who may use nothing is not in it.
    pub table: FxHashMap<u32, Ports>,
    /// The pods of this node that it is for.
    pub addresses: BTreeSet<IpAddr>,
}

/// Somebody at the other end.
#[derive(Debug, Clone)]
pub enum Other {
    Anybody,
    Pods(Arc<Alike>),
    Block(IpNet),
}

impl Ruleset {
    pub fn new<'a>(key: RulesetKey, rules: impl Iterator<Item = &'a Rule>, selectors: &mut Selectors) -> Self {
        let allows = rules.map(|rule| {
            let peers = rule.peers.as_deref().unwrap_or_default();
            let blocks = peers.iter().filter_map(|peer| match peer {
                Peer::Block(block) => Some(block.clone()),
                Peer::Pods(_) => None,
            });
            let pods = peers.iter().filter_map(|peer| match peer {
                Peer::Pods(pods) => Some(selectors.acquire(pods)),
                Peer::Block(_) => None,
            });
            Allow {
                anybody: rule.peers.is_none(),
                selectors: pods.collect(),
                blocks: blocks.collect(),
                ports: rule.ports.clone(),
                named: rule.named.clone(),
            }
        });
        Self { allows: allows.collect(), key, table: FxHashMap::default(), addresses: BTreeSet::new() }
    }

    pub fn key(&self) -> &RulesetKey {
        &self.key
    }

    pub fn selectors(&self) -> impl Iterator<Item = u32> + '_ {
        self.allows.iter().flat_map(|allow| allow.selectors.iter().copied())
    }

    /// The ranges that it makes differences between.
    pub fn borders(&self) -> BTreeSet<IpNet> {
        self.allows.iter().flat_map(|allow| allow.blocks.iter().flat_map(Block::borders)).collect()
    }

    /// What somebody may use. What anybody may use is not said again of each.
    pub fn allowed(&self, number: u32, other: &Other, selectors: &Selectors) -> Ports {
        let mut ports = Ports::default();
        for allow in &self.allows {
            let (meant, repeated) = match other {
                Other::Anybody => (allow.anybody, false),
                Other::Pods(_) => (allow.anybody || selectors.contain(&allow.selectors, number), allow.anybody),
                Other::Block(part) => (allow.blocks.iter().any(|block| block.contains(part)), allow.anybody),
            };
            if !meant {
                continue;
            }
            if !repeated {
                ports.extend(&allow.ports);
            }
            if allow.named.is_empty() {
                continue;
            }
            match (self.key.direction, other) {
                (Direction::Ingress, _) if !repeated => named(&mut ports, &allow.named, self.key.ports.as_ref()),
                (Direction::Egress, Other::Pods(alike)) => named(&mut ports, &allow.named, Some(&alike.ports)),
                _ => {}
            }
        }
        ports
    }

    /// Whether everybody may do everything, so that nobody has to be asked about.
    fn is_open(&self) -> bool {
        self.table.get(&ANYBODY).is_some_and(Ports::is_all)
    }

    /// Computes the whole table.
    pub fn fill<'a>(&mut self, others: impl Iterator<Item = (u32, &'a Other)>, selectors: &Selectors) {
        self.revise(ANYBODY, Some(&Other::Anybody), selectors);
        for (number, other) in others {
            if self.is_open() {
                return;
            }
            self.revise(number, Some(other), selectors);
        }
    }

    /// Computes what somebody may use; absent if they are gone. Says what it was, if it changed.
    pub fn revise(&mut self, number: u32, other: Option<&Other>, selectors: &Selectors) -> Option<(Ports, Ports)> {
        let after = match other {
            Some(other) if number == ANYBODY || !self.is_open() => self.allowed(number, other, selectors),
            _ => Ports::default(),
        };
        let before = match after.is_empty() {
            true => self.table.remove(&number),
            false => self.table.insert(number, after.clone()),
        };
        let before = before.unwrap_or_default();
        (before != after).then_some((before, after))
    }
}

fn named(ports: &mut Ports, names: &[(String, Protocol)], numbers: Option<&NamedPorts>) {
    for name in names {
        for number in numbers.and_then(|numbers| numbers.get(name)).into_iter().flatten() {
            ports.add(Range { protocol: name.1, first: *number, last: *number });
        }
    }
}

#[derive(Debug)]
struct Selector {
    pods: PeerPods,
    /// Numbers of the pods that it means.
    members: FxHashSet<u32>,
    users: usize,
}

/// Selectors of pods at the other end, each evaluated once for pods that are alike.
#[derive(Debug, Default)]
pub struct Selectors {
    all: FxHashMap<u32, Selector>,
    numbers: FxHashMap<PeerPods, u32>,
    next: u32,
    /// Those that have no members yet.
    fresh: Vec<u32>,
}

impl Selectors {
    fn acquire(&mut self, pods: &PeerPods) -> u32 {
        if let Some(number) = self.numbers.get(pods) {
            if let Some(selector) = self.all.get_mut(number) {
                selector.users += 1;
            }
            return *number;
        }
        self.next += 1;
        self.numbers.insert(pods.clone(), self.next);
        self.all.insert(self.next, Selector { pods: pods.clone(), members: FxHashSet::default(), users: 1 });
        self.fresh.push(self.next);
        self.next
    }

    pub fn release(&mut self, number: u32) {
        if let Some(selector) = self.all.get_mut(&number) {
            selector.users -= 1;
            if selector.users == 0 {
                self.numbers.remove(&selector.pods);
                self.all.remove(&number);
            }
        }
    }

    /// Finds the members of selectors that are new.
    pub fn settle<'a>(
        &mut self,
        others: impl Iterator<Item = (u32, &'a Other)> + Clone,
        namespaces: &BTreeMap<String, Labels>,
    ) {
        for number in std::mem::take(&mut self.fresh) {
            if let Some(selector) = self.all.get_mut(&number) {
                for (other, who) in others.clone() {
                    if let Other::Pods(alike) = who
                        && meant(&selector.pods, alike, namespaces)
                    {
                        selector.members.insert(other);
                    }
                }
            }
        }
    }

    /// Finds out who means somebody that is new or changed; absent if they are gone.
    pub fn revise(&mut self, number: u32, alike: Option<&Alike>, namespaces: &BTreeMap<String, Labels>) {
        for selector in self.all.values_mut() {
            if alike.is_some_and(|alike| meant(&selector.pods, alike, namespaces)) {
                selector.members.insert(number);
            } else {
                selector.members.remove(&number);
            }
        }
    }

    fn contain(&self, any_of: &[u32], number: u32) -> bool {
        any_of.iter().any(|selector| self.all.get(selector).is_some_and(|s| s.members.contains(&number)))
    }
}

fn meant(pods: &PeerPods, alike: &Alike, namespaces: &BTreeMap<String, Labels>) -> bool {
    pods.matches(&alike.namespace, namespaces.get(&alike.namespace), &alike.labels)
}
