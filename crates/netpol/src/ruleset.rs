//! What the same policies allow to pods whose ports have the same names: computed once, however many pods share it.
//!
//! Without policies of the cluster rules add up. With them they are asked in order, tier by tier, for each other end alone; what is left of all
//! ports at the end is what that end may use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rules::protocol::Protocol;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cluster_policy::{Action, ClusterRule, Tier};
use crate::decision::ANYBODY;
use crate::model::{Alike, Block, Direction, Labels, NodeFacts, Peer, PeerPods, PolicyName, Rule, addresses_of};
use crate::ports::{NamedPorts, Ports, Range};

/// What makes two rulesets the same: the policies, as they are written now, and what names of ports mean.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RulesetKey {
    pub direction: Direction,
    pub policies: Vec<(PolicyName, u64)>,
    /// Policies of the cluster, in their order.
    pub cluster: Vec<(String, u64)>,
    /// Of the pods themselves; who they connect to has names of its own.
    pub ports: Option<NamedPorts>,
}

impl RulesetKey {
    /// Whether some rules have a say before others.
    pub fn is_ordered(&self) -> bool {
        !self.cluster.is_empty()
    }
}

/// What a rule is about, seen from the other end.
#[derive(Debug)]
struct Matcher {
    anybody: bool,
    selectors: Vec<u32>,
    blocks: Vec<Block>,
    ports: Ports,
    named: Vec<(String, Protocol)>,
}

#[derive(Debug)]
struct Step {
    action: Action,
    what: Matcher,
}

#[derive(Debug)]
pub struct Ruleset {
    key: RulesetKey,
    admin: Vec<Step>,
    allows: Vec<Matcher>,
    baseline: Vec<Step>,
    /// What each other end may use; who may use nothing is not in it.
    pub table: FxHashMap<u32, Ports>,
    /// The pods of this node that it is for.
    pub addresses: BTreeSet<IpAddr>,
}

/// Somebody at the other end.
#[derive(Debug, Clone)]
pub enum Other {
    /// Everybody; to an ordered ruleset whoever is no pod and in no block.
    Anybody,
    Pods(Arc<Alike>),
    Block(IpNet),
    /// Such pods, with this as the smallest block around them. Only ordered rulesets speak of it.
    Exact(Arc<Alike>, Option<IpNet>),
}

impl Other {
    /// What policies know of the pods.
    pub fn alike(&self) -> Option<&Arc<Alike>> {
        match self {
            Self::Pods(alike) | Self::Exact(alike, _) => Some(alike),
            Self::Anybody | Self::Block(_) => None,
        }
    }
}

impl Matcher {
    fn of(rule: &Rule, nodes: &BTreeMap<String, NodeFacts>, selectors: &mut Selectors) -> Self {
        let mut matcher = Self {
            anybody: rule.peers.is_none(),
            selectors: Vec::new(),
            blocks: Vec::new(),
            ports: rule.ports.clone(),
            named: rule.named.clone(),
        };
        for peer in rule.peers.iter().flatten() {
            match peer {
                Peer::Pods(pods) => matcher.selectors.push(selectors.acquire(pods)),
                Peer::Block(block) => matcher.blocks.push(block.clone()),
                Peer::Nodes(selector) => {
                    let single = |ip| Block { range: IpNet::from(ip), except: Vec::new() };
                    matcher.blocks.extend(addresses_of(selector, nodes).into_iter().map(single));
                }
            }
        }
        matcher
    }

    fn contains(&self, part: &IpNet) -> bool {
        self.blocks.iter().any(|block| block.contains(part))
    }
}

impl Ruleset {
    pub fn new<'a>(
        key: RulesetKey,
        rules: impl Iterator<Item = &'a Rule>,
        cluster: impl Iterator<Item = (Tier, &'a ClusterRule)>,
        nodes: &BTreeMap<String, NodeFacts>,
        selectors: &mut Selectors,
    ) -> Self {
        let allows = rules.map(|rule| Matcher::of(rule, nodes, selectors)).collect();
        let (mut admin, mut baseline) = (Vec::new(), Vec::new());
        for (tier, rule) in cluster {
            let step = Step { action: rule.action, what: Matcher::of(&rule.rule, nodes, selectors) };
            match tier {
                Tier::Admin => admin.push(step),
                Tier::Baseline => baseline.push(step),
            }
        }
        Self { key, admin, allows, baseline, table: FxHashMap::default(), addresses: BTreeSet::new() }
    }

    pub fn key(&self) -> &RulesetKey {
        &self.key
    }

    fn matchers(&self) -> impl Iterator<Item = &Matcher> {
        let steps = self.admin.iter().chain(&self.baseline).map(|step| &step.what);
        self.allows.iter().chain(steps)
    }

    pub fn selectors(&self) -> impl Iterator<Item = u32> + '_ {
        self.matchers().flat_map(|what| what.selectors.iter().copied())
    }

    /// The ranges that it makes differences between.
    pub fn borders(&self) -> BTreeSet<IpNet> {
        self.matchers().flat_map(|what| what.blocks.iter().flat_map(Block::borders)).collect()
    }

    /// What somebody may use.
    pub fn allowed(&self, number: u32, other: &Other, selectors: &Selectors) -> Ports {
        match (self.key.is_ordered(), other) {
            (true, Other::Pods(_)) | (false, Other::Exact(..)) => Ports::default(),
            (true, _) => self.decided(number, other, selectors),
            (false, _) => self.added(number, other, selectors),
        }
    }

    /// What is allowed by any of the rules. What anybody may use is not said again of each.
    fn added(&self, number: u32, other: &Other, selectors: &Selectors) -> Ports {
        let mut ports = Ports::default();
        for allow in &self.allows {
            let (meant, repeated) = match other {
                Other::Anybody => (allow.anybody, false),
                Other::Block(part) => (allow.contains(part), allow.anybody),
                Other::Pods(_) | Other::Exact(..) => {
                    (allow.anybody || selectors.contain(&allow.selectors, number), allow.anybody)
                }
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
            match (self.key.direction, other.alike()) {
                (Direction::Ingress, _) if !repeated => named(&mut ports, &allow.named, self.key.ports.as_ref()),
                (Direction::Egress, Some(alike)) => named(&mut ports, &allow.named, Some(&alike.ports)),
                _ => {}
            }
        }
        ports
    }

    /// What a rule is about, for somebody who has this number and no other.
    fn matched(&self, what: &Matcher, number: u32, other: &Other, selectors: &Selectors) -> Ports {
        let in_block = match other {
            Other::Block(part) | Other::Exact(_, Some(part)) => what.contains(part),
            _ => false,
        };
        let as_pod = what.anybody || (other.alike().is_some() && selectors.contain(&what.selectors, number));
        if !in_block && !as_pod {
            return Ports::default();
        }
        let mut ports = what.ports.clone();
        let names = match self.key.direction {
            Direction::Ingress => self.key.ports.as_ref(),
            // Towards a block of addresses a name means nothing.
            Direction::Egress | Direction::Node => other.alike().filter(|_| as_pod).map(|alike| &alike.ports),
        };
        named(&mut ports, &what.named, names);
        ports
    }

    /// What is left to somebody when all tiers had their say.
    fn decided(&self, number: u32, other: &Other, selectors: &Selectors) -> Ports {
        let mut allowed = Ports::default();
        let tier = |steps: &[Step], open: Ports, allowed: &mut Ports| -> Ports {
            let (mut open, mut passed) = (open, Ports::default());
            for step in steps {
                let matched = self.matched(&step.what, number, other, selectors).intersection(&open);
                if matched.is_empty() {
                    continue;
                }
                open = open.without(&matched);
                match step.action {
                    Action::Accept => allowed.extend(&matched),
                    Action::Deny => {}
                    Action::Pass => passed.extend(&matched),
                }
            }
            open.extend(&passed);
            open
        };
        let open = tier(&self.admin, Ports::all(), &mut allowed);
        if self.key.policies.is_empty() {
            let open = tier(&self.baseline, open, &mut allowed);
            allowed.extend(&open);
            return allowed;
        }
        // NetworkPolicies keep no pod from its own node.
        let mut by_policies = if self.key.direction == Direction::Node { Ports::all() } else { Ports::default() };
        for allow in &self.allows {
            by_policies.extend(&self.matched(allow, number, other, selectors));
        }
        allowed.extend(&by_policies.intersection(&open));
        allowed
    }

    /// Whether everybody may do everything, so that nobody has to be asked about.
    fn is_open(&self) -> bool {
        !self.key.is_ordered() && self.table.get(&ANYBODY).is_some_and(Ports::is_all)
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
                    if let Some(alike) = who.alike()
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
