//! The decision: policies, namespaces and pods in, what engines put into the kernel's maps out. Pure, and incremental.
//!
//! Pods that no policy can tell apart (namespace, labels and named ports are the same) have one number. Pods of this node that
//! the same policies select share a [`Ruleset`], which says what each number may use. A change therefore costs what it changes: a pod
//! elsewhere is one element if others are like it, and one look at each ruleset if it is the first of its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rules::selectors::LabelSelector;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cluster_policy::ClusterPolicy;
use crate::decision::{Allowed, BLOCK, Changes, Key, ORDERED};
use crate::exact::{Exact, lengths, smallest};
use crate::model::{Alike, Direction, Labels, NodeFacts, PodFacts, Policy, PolicyName};
use crate::ports::Ports;
use crate::ruleset::{Other, Ruleset, RulesetKey, Selectors};

/// Something that changed, as it is now; absent if it is gone.
#[derive(Debug, Clone)]
pub enum Input {
    Policy(PolicyName, Option<Policy>),
    ClusterPolicy(String, Option<ClusterPolicy>),
    Node(String, Option<NodeFacts>),
    Namespace(String, Option<Labels>),
    /// By its uid.
    Pod(String, Option<PodFacts>),
}

/// A pod's address on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Local {
    ingress: Option<u32>,
    egress: Option<u32>,
    node: Option<u32>,
}

impl Local {
    fn ruleset(&self, direction: Direction) -> Option<u32> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
            Direction::Node => self.node,
        }
    }

    fn set(&mut self, direction: Direction, ruleset: Option<u32>) {
        match direction {
            Direction::Ingress => self.ingress = ruleset,
            Direction::Egress => self.egress = ruleset,
            Direction::Node => self.node = ruleset,
        }
    }
}

/// Everything that was decided, for one node.
#[derive(Debug, Default)]
pub struct Compiler {
    node: String,
    namespaces: BTreeMap<String, Labels>,
    policies: BTreeMap<PolicyName, (u64, Policy)>,
    cluster: BTreeMap<String, (u64, ClusterPolicy)>,
    nodes: BTreeMap<String, NodeFacts>,
    revision: u64,
    pods: FxHashMap<String, PodFacts>,
    /// Who says that an address is theirs, the youngest last.
    claims: FxHashMap<IpAddr, BTreeSet<(i64, String)>>,
    /// The number of the pod that has an address.
    identities: BTreeMap<IpAddr, u32>,
    numbers: FxHashMap<Arc<Alike>, (u32, usize)>,
    next: u32,
    others: BTreeMap<u32, Other>,
    selectors: Selectors,
    borders: BTreeMap<IpNet, (u32, usize)>,
    exact: Exact,
    rulesets: FxHashMap<u32, Ruleset>,
    by_key: FxHashMap<RulesetKey, u32>,
    local: BTreeMap<IpAddr, Local>,
}

/// What one update has touched.
#[derive(Debug, Default)]
struct Batch {
    addresses: BTreeSet<IpAddr>,
    /// Numbers that came, or whose namespace has other labels, and numbers that went.
    revised: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    fresh: Vec<u32>,
    /// Blocks came or went.
    redivided: bool,
}

impl Compiler {
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    /// Takes over what changed, and says what is decided otherwise now.
    pub fn update(&mut self, inputs: impl IntoIterator<Item = Input>) -> Changes {
        let mut batch = Batch::default();
        let mut changes = Changes::default();
        for input in inputs {
            self.take(input, &mut batch);
        }
        self.identify(&mut batch, &mut changes);
        for number in &batch.revised {
            if let Some(alike) = self.others.get(number).and_then(Other::alike) {
                self.selectors.revise(*number, Some(alike), &self.namespaces);
            }
        }
        for number in &batch.gone {
            self.selectors.revise(*number, None, &self.namespaces);
        }
        let touched = batch.addresses.clone();
        self.assign(&mut batch, &mut changes);
        self.identify_exactly(touched, &mut batch, &mut changes);
        self.revise(&batch, &mut changes);
        changes.gone = batch.gone;
        changes
    }

    fn take(&mut self, input: Input, batch: &mut Batch) {
        match input {
            Input::Namespace(name, labels) => {
                let of_it = |alike: &Arc<Alike>| alike.namespace == name;
                let pods = self.others.iter().filter(|(_, other)| other.alike().is_some_and(of_it));
                batch.revised.extend(pods.map(|(number, _)| *number));
                // Policies of the cluster select pods by their namespaces.
                if !self.cluster.is_empty() {
                    let here = |address: &&IpAddr| self.owner(address).is_some_and(|pod| of_it(&pod.alike));
                    batch.addresses.extend(self.local.keys().filter(here));
                }
                match labels {
                    Some(labels) => drop(self.namespaces.insert(name, labels)),
                    None => drop(self.namespaces.remove(&name)),
                }
            }
            Input::Policy(name, policy) => {
                self.revision += 1;
                let before = match policy.clone() {
                    Some(policy) => self.policies.insert(name, (self.revision, policy)),
                    None => self.policies.remove(&name),
                };
                let either = [before.map(|(_, policy)| policy), policy];
                let touched = self.local.keys().filter(|address| {
                    self.owner(address).is_some_and(|pod| {
                        either.iter().flatten().any(|policy| policy.selects(&pod.alike.namespace, &pod.alike.labels))
                    })
                });
                batch.addresses.extend(touched);
            }
            Input::ClusterPolicy(name, policy) => {
                self.revision += 1;
                match policy {
                    Some(policy) => drop(self.cluster.insert(name, (self.revision, policy))),
                    None => drop(self.cluster.remove(&name)),
                }
                // Whom it selects depends on namespaces, which may change with the same update.
                batch.addresses.extend(self.local.keys());
            }
            Input::Node(name, node) => self.take_node(name, node, batch),
            Input::Pod(uid, pod) => {
                if let Some(before) = self.pods.remove(&uid) {
                    for address in &before.addresses {
                        if let Some(claims) = self.claims.get_mut(address) {
                            claims.remove(&(before.created, uid.clone()));
                            if claims.is_empty() {
                                self.claims.remove(address);
                            }
                        }
                        batch.addresses.insert(*address);
                    }
                }
                if let Some(pod) = pod {
                    for address in &pod.addresses {
                        self.claims.entry(*address).or_default().insert((pod.created, uid.clone()));
                        batch.addresses.insert(*address);
                    }
                    self.pods.insert(uid, pod);
                }
            }
        }
    }

    /// Policies that mean other addresses now are as if they were written anew.
    fn take_node(&mut self, name: String, node: Option<NodeFacts>, batch: &mut Batch) {
        let before = match node.clone() {
            Some(node) => self.nodes.insert(name, node),
            None => self.nodes.remove(&name),
        };
        let meant = |selector: &LabelSelector, node: Option<&NodeFacts>| {
            node.filter(|node| selector.matches(Some(&node.labels))).map(|node| node.addresses.clone())
        };
        for (revision, policy) in self.cluster.values_mut() {
            if policy.nodes().any(|selector| meant(selector, before.as_ref()) != meant(selector, node.as_ref())) {
                self.revision += 1;
                *revision = self.revision;
                batch.addresses.extend(self.local.keys());
            }
        }
    }

    /// The pod that has an address.
    fn owner(&self, address: &IpAddr) -> Option<&PodFacts> {
        self.claims.get(address).and_then(|claims| claims.last()).and_then(|(_, uid)| self.pods.get(uid))
    }

    /// Gives the touched addresses their numbers.
    fn identify(&mut self, batch: &mut Batch, changes: &mut Changes) {
        let mut released = Vec::new();
        for address in &batch.addresses {
            let alike = self.owner(address).map(|pod| pod.alike.clone());
            let before = self.identities.get(address).copied();
            let after = alike.map(|alike| match self.numbers.get_mut(&alike) {
                Some((number, users)) => {
                    *users += 1;
                    *number
                }
                None => {
                    // Numbers are not used again: one that a packet has just read means what it meant.
                    self.next += 1;
                    self.numbers.insert(alike.clone(), (self.next, 1));
                    self.others.insert(self.next, Other::Pods(alike));
                    batch.revised.insert(self.next);
                    self.next
                }
            });
            released.extend(before);
            match after {
                Some(number) => drop(self.identities.insert(*address, number)),
                None => drop(self.identities.remove(address)),
            }
            changes.replace(Key::Identity(*address), before, after);
        }
        for number in released {
            let Some(Other::Pods(alike)) = self.others.get(&number) else { continue };
            let alike = alike.clone();
            if let Some((_, users)) = self.numbers.get_mut(&alike) {
                *users -= 1;
                if *users == 0 {
                    self.numbers.remove(&alike);
                    self.others.remove(&number);
                    batch.revised.remove(&number);
                    batch.gone.insert(number);
                }
            }
        }
    }

    /// Gives the touched addresses of this node their rulesets.
    fn assign(&mut self, batch: &mut Batch, changes: &mut Changes) {
        let mut left = Vec::new();
        for address in &std::mem::take(&mut batch.addresses) {
            let here = self.owner(address).filter(|pod| pod.node == self.node).map(|pod| pod.alike.clone());
            let before = self.local.get(address).cloned().unwrap_or_default();
            let mut after = Local::default();
            for direction in Direction::ALL {
                let key = here.as_ref().and_then(|alike| self.key(direction, alike));
                let number = key.map(|key| self.ruleset(key, batch, changes));
                let old = before.ruleset(direction);
                after.set(direction, number);
                changes.replace(Key::Ruleset(direction, *address), old, number);
                if old == number {
                    continue;
                }
                if let Some(ruleset) = old.and_then(|old| self.rulesets.get_mut(&old)) {
                    ruleset.addresses.remove(address);
                    left.extend(old);
                }
                if let Some(ruleset) = number.and_then(|number| self.rulesets.get_mut(&number)) {
                    ruleset.addresses.insert(*address);
                }
            }
            match here {
                Some(_) => drop(self.local.insert(*address, after)),
                None => drop(self.local.remove(address)),
            }
        }
        for number in left {
            if self.rulesets.get(&number).is_some_and(|ruleset| ruleset.addresses.is_empty())
                && let Some(ruleset) = self.rulesets.remove(&number)
            {
                self.by_key.remove(ruleset.key());
                batch.fresh.retain(|fresh| *fresh != number);
                ruleset.selectors().for_each(|selector| self.selectors.release(selector));
                for (other, ports) in &ruleset.table {
                    changes.allow(number, *other, ports, &Ports::default());
                }
                self.release_borders(&ruleset, batch, changes);
            }
        }
    }

    /// The policies that isolate such a pod; nothing if none does.
    fn key(&self, direction: Direction, alike: &Alike) -> Option<RulesetKey> {
        let first = PolicyName { namespace: alike.namespace.clone(), name: String::new() };
        let policies: Vec<(PolicyName, u64)> = self
            .policies
            .range(first..)
            .take_while(|(name, _)| name.namespace == alike.namespace)
            .filter(|(_, (_, policy))| policy.rules(direction).is_some() && policy.pods.matches(Some(&alike.labels)))
            .map(|(name, (revision, _))| (name.clone(), *revision))
            .collect();
        let mut cluster: Vec<&(u64, ClusterPolicy)> = self
            .cluster
            .values()
            .filter(|(_, policy)| !policy.rules(direction).is_empty() && policy.selects(alike, &self.namespaces))
            .collect();
        cluster.sort_unstable_by_key(|(_, policy)| policy.order());
        let cluster: Vec<(String, u64)> =
            cluster.into_iter().map(|(revision, policy)| (policy.name.clone(), *revision)).collect();
        // NetworkPolicies alone keep no pod from its node.
        let judged = !cluster.is_empty() || (direction != Direction::Node && !policies.is_empty());
        let ports = (direction == Direction::Ingress).then(|| alike.ports.clone());
        judged.then_some(RulesetKey { direction, policies, cluster, ports })
    }

    fn ruleset(&mut self, key: RulesetKey, batch: &mut Batch, changes: &mut Changes) -> u32 {
        if let Some(number) = self.by_key.get(&key) {
            return *number;
        }
        let (policies, direction) = (&self.policies, key.direction);
        let names: Vec<PolicyName> = key.policies.iter().map(|(name, _)| name.clone()).collect();
        let rules = names.iter().filter_map(|name| policies.get(name));
        let rules = rules.flat_map(|(_, policy)| policy.rules(direction).unwrap_or_default());
        let cluster = key.cluster.iter().filter_map(|(name, _)| self.cluster.get(name));
        let cluster = cluster.flat_map(|(_, policy)| policy.rules(direction).iter().map(|rule| (policy.tier, rule)));
        let ruleset = Ruleset::new(key.clone(), rules, cluster, &self.nodes, &mut self.selectors);
        for border in ruleset.borders() {
            let next = &mut self.next;
            let (number, users) = self.borders.entry(border).or_insert_with(|| {
                *next += 1;
                (*next | BLOCK, 0)
            });
            *users += 1;
            if *users == 1 {
                self.others.insert(*number, Other::Block(border));
                batch.redivided = true;
                batch.revised.insert(*number);
                changes.replace(Key::Block(border), None, Some(*number));
            }
        }
        self.next += 1;
        let number = if key.is_ordered() { self.next | ORDERED } else { self.next };
        self.rulesets.insert(number, ruleset);
        self.by_key.insert(key, number);
        batch.fresh.push(number);
        number
    }

    fn release_borders(&mut self, ruleset: &Ruleset, batch: &mut Batch, changes: &mut Changes) {
        for border in ruleset.borders() {
            if let Some((number, users)) = self.borders.get_mut(&border) {
                *users -= 1;
                if *users == 0 {
                    self.others.remove(number);
                    batch.redivided = true;
                    batch.revised.remove(number);
                    batch.gone.insert(*number);
                    // One that came with the same update was never anywhere.
                    if changes.add.remove(&Key::Block(border)).is_none() {
                        changes.replace(Key::Block(border), Some(*number), None);
                    }
                    self.borders.remove(&border);
                }
            }
        }
    }

    /// Gives addresses of pods the numbers that ordered rulesets ask about, while there are any.
    fn identify_exactly(&mut self, touched: BTreeSet<IpAddr>, batch: &mut Batch, changes: &mut Changes) {
        let wanted = self.rulesets.keys().any(|number| number & ORDERED != 0);
        if !wanted && self.exact.is_empty() {
            return;
        }
        let all = batch.redivided || !wanted || self.exact.is_empty();
        let addresses: BTreeSet<IpAddr> = match all {
            true => self.identities.keys().chain(self.exact.addresses().keys()).copied().collect(),
            false => touched,
        };
        let lengths = lengths(self.borders.keys());
        let mut left = BTreeSet::new();
        for address in addresses {
            let alike = self.identities.get(&address).filter(|_| wanted);
            let alike = alike.and_then(|number| self.others.get(number)).and_then(Other::alike);
            let around = || smallest(|net| self.borders.contains_key(net), lengths.iter(), address);
            let who = alike.map(|alike| (alike.clone(), around()));
            let Some(moved) = self.exact.set(address, who, &mut self.next) else { continue };
            if let Some(number) = moved.after
                && !self.others.contains_key(&number)
                && let Some((alike, around)) = self.exact.who(number)
            {
                self.selectors.revise(number, Some(alike), &self.namespaces);
                self.others.insert(number, Other::Exact(alike.clone(), *around));
                batch.revised.insert(number);
            }
            changes.replace(Key::Exact(moved.address), moved.before, moved.after);
            left.extend(moved.before);
        }
        for number in left {
            if self.exact.release(number) {
                self.selectors.revise(number, None, &self.namespaces);
                self.others.remove(&number);
                batch.revised.remove(&number);
                batch.gone.insert(number);
            }
        }
    }

    /// Computes new rulesets, and in others what is new at the other end.
    fn revise(&mut self, batch: &Batch, changes: &mut Changes) {
        self.selectors.settle(self.others.iter().map(|(number, other)| (*number, other)), &self.namespaces);
        let fresh: FxHashSet<u32> = batch.fresh.iter().copied().collect();
        for number in &fresh {
            if let Some(ruleset) = self.rulesets.get_mut(number) {
                ruleset.fill(self.others.iter().map(|(number, other)| (*number, other)), &self.selectors);
                for (other, ports) in &ruleset.table {
                    changes.allow(*number, *other, &Ports::default(), ports);
                }
            }
        }
        if batch.revised.is_empty() && batch.gone.is_empty() {
            return;
        }
        for (number, ruleset) in self.rulesets.iter_mut().filter(|(number, _)| !fresh.contains(number)) {
            for other in batch.revised.iter().chain(&batch.gone) {
                if let Some((before, after)) = ruleset.revise(*other, self.others.get(other), &self.selectors) {
                    changes.allow(*number, *other, &before, &after);
                }
            }
        }
    }

    /// Everything that a ruleset allows now; nothing if there is none.
    pub fn allowed(&self, ruleset: u32) -> impl Iterator<Item = (u32, Allowed)> + '_ {
        let table = self.rulesets.get(&ruleset).into_iter().flat_map(|ruleset| &ruleset.table);
        table.flat_map(|(other, ports)| Allowed::of(ports).map(move |allowed| (*other, allowed)))
    }

    /// The pods of this node that are under a ruleset, and in which direction.
    pub fn members(&self, ruleset: u32) -> impl Iterator<Item = (Direction, IpAddr)> + '_ {
        let ruleset = self.rulesets.get(&ruleset).into_iter();
        ruleset.flat_map(|ruleset| ruleset.addresses.iter().map(|ip| (ruleset.key().direction, *ip)))
    }

    /// The ruleset of a pod of this node; nothing if it is not isolated.
    pub fn ruleset_of(&self, direction: Direction, address: IpAddr) -> Option<u32> {
        self.local.get(&address).and_then(|local| local.ruleset(direction))
    }

    /// The blocks that policies speak of, with their numbers.
    pub fn blocks(&self) -> BTreeMap<IpNet, u32> {
        self.borders.iter().map(|(border, (number, _))| (*border, *number)).collect()
    }

    /// All that is decided.
    pub fn all(&self) -> BTreeMap<Key, u32> {
        let mut all: BTreeMap<Key, u32> = self.identities.iter().map(|(ip, n)| (Key::Identity(*ip), *n)).collect();
        all.extend(self.exact.addresses().iter().map(|(ip, n)| (Key::Exact(*ip), *n)));
        all.extend(self.borders.iter().map(|(border, (number, _))| (Key::Block(*border), *number)));
        for (number, ruleset) in &self.rulesets {
            all.extend(self.allowed(*number).map(|(other, allowed)| (Key::Allowed(*number, other, allowed), 0)));
            all.extend(ruleset.addresses.iter().map(|ip| (Key::Ruleset(ruleset.key().direction, *ip), *number)));
        }
        all
    }
}
