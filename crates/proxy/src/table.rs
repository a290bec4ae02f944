//! The rules of one family as a whole, and what has to change when some Services do.
//!
//! Two Services may claim the same key: an external address, a node port after a restore, an endpoint on this node.
//! The claim of the Service that was there first stands, whatever the order in which the proxy saw them; the
//! next one takes over when it goes. So the table after any sequence of updates is the table built from scratch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rules::protocol::Protocol;

use crate::model::{Family, ServiceName};
use crate::plan::{Contribution, Frontend, Key, Scope, Value, Verdict};

/// Who claims a key, older Services first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// When the Service was created, in seconds since 1970.
    pub created: i64,
    pub name: ServiceName,
}

/// A chain that chooses one of so many endpoints of a frontend of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// Whether the frontend is a node port.
    pub node_port: bool,
    pub scope: Scope,
    pub protocol: Protocol,
    pub count: u32,
}

/// All rules of one family.
#[derive(Debug, Clone)]
pub struct Table {
    family: Family,
    claims: HashMap<Key, Vec<(Arc<Owner>, Value)>>,
    contributions: HashMap<ServiceName, (Arc<Owner>, Contribution)>,
    /// How many verdicts lead to each picking chain.
    picks: BTreeMap<Pick, usize>,
}

/// What makes one table out of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Elements that must go, also those that come back with another value.
    pub remove: BTreeSet<Key>,
    pub add: BTreeMap<Key, Value>,
    /// Elements that must go after all the rest, in a transaction of their own: those by which an endpoint's packets to itself get
    /// another source. They are looked up when a packet leaves, so one whose endpoint was chosen just before the change needs
    /// them just after it. Without them it goes to its own sender, who drops it in silence, and the kernel sends every
    /// repetition the same way, for two minutes.
    pub remove_last: BTreeSet<Key>,
    /// Picking chains that come.
    pub new_picks: BTreeSet<Pick>,
    /// Picking chains that nothing leads to any more.
    pub dead_picks: BTreeSet<Pick>,
    /// Sets of clients that come, with their seconds.
    pub new_clients: BTreeMap<String, u32>,
    /// Sets of clients that go, also those that come back with another time.
    pub dead_clients: BTreeSet<String>,
    /// Chains that come or have other rules now.
    pub chains: BTreeMap<String, Vec<String>>,
    pub dead_chains: BTreeSet<String>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Table {
    /// A table without Services.
    pub fn new(family: Family) -> Self {
        Self { family, claims: HashMap::new(), contributions: HashMap::new(), picks: BTreeMap::new() }
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether any Service in it remembers its clients.
    pub fn has_affinity(&self) -> bool {
        self.contributions.values().any(|(_, contribution)| !contribution.clients.is_empty())
    }

    /// Everything in it, as changes to an empty table.
    pub fn all(&self) -> Changes {
        let mut all = Changes { new_picks: self.picks.keys().copied().collect(), ..Changes::default() };
        all.add = self.claims.iter().filter_map(|(key, claims)| Some((*key, claims.first()?.1.clone()))).collect();
        for (_, contribution) in self.contributions.values() {
            all.new_clients.extend(contribution.clients.clone());
            all.chains.extend(contribution.chains.clone());
        }
        all
    }

    /// Replaces what the named Services contribute (an empty contribution removes one) and says what changes.
    pub fn update(&mut self, services: impl IntoIterator<Item = (Owner, Contribution)>) -> Changes {
        let mut batch = Batch::default();
        for (owner, new) in services {
            self.replace(Arc::new(owner), new, &mut batch);
        }
        self.settle(batch)
    }

    fn replace(&mut self, owner: Arc<Owner>, new: Contribution, batch: &mut Batch) {
        let old = self.contributions.remove(&owner.name);
        if let Some((old_owner, old)) = &old {
            let same_owner = **old_owner == *owner;
            for (key, value) in &old.elements {
                if !same_owner || new.elements.get(key) != Some(value) {
                    batch.remember(self, *key);
                    self.withdraw(key, old_owner);
                }
            }
            for (chain, rules) in &old.chains {
                batch.chains.entry(chain.clone()).or_insert_with(|| Some(rules.clone()));
            }
            for (clients, seconds) in &old.clients {
                batch.clients.entry(clients.clone()).or_insert(Some(*seconds));
            }
        }
        for (key, value) in &new.elements {
            let unchanged = old.as_ref().is_some_and(|(o, c)| **o == *owner && c.elements.get(key) == Some(value));
            if !unchanged {
                batch.remember(self, *key);
                self.claim(*key, &owner, value.clone());
            }
        }
        for chain in new.chains.keys() {
            batch.chains.entry(chain.clone()).or_default();
        }
        for clients in new.clients.keys() {
            batch.clients.entry(clients.clone()).or_default();
        }
        batch.services.insert(owner.name.clone());
        if !new.is_empty() {
            self.contributions.insert(owner.name.clone(), (owner, new));
        }
    }

    fn claim(&mut self, key: Key, owner: &Arc<Owner>, value: Value) {
        // Nearly every key is claimed once, and there are as many as endpoints: no room is kept for others.
        let claims = self.claims.entry(key).or_insert_with(|| Vec::with_capacity(1));
        let at = claims.partition_point(|(other, _)| other < owner);
        claims.insert(at, (owner.clone(), value));
    }

    fn withdraw(&mut self, key: &Key, owner: &Arc<Owner>) {
        if let Some(claims) = self.claims.get_mut(key) {
            claims.retain(|(other, _)| other != owner);
            if claims.is_empty() {
                self.claims.remove(key);
            }
        }
    }

    fn winner(&self, key: &Key) -> Option<&Value> {
        self.claims.get(key).and_then(|claims| claims.first()).map(|(_, value)| value)
    }

    /// Compares what was before the batch with what is now.
    fn settle(&mut self, batch: Batch) -> Changes {
        let mut changes = Changes::default();
        let mut picks: BTreeMap<Pick, isize> = BTreeMap::new();
        for (key, before) in batch.elements {
            let after = self.winner(&key).cloned();
            if before == after {
                continue;
            }
            if let Some(before) = before {
                if let Some(pick) = pick_of(&key, &before) {
                    *picks.entry(pick).or_default() -= 1;
                }
                match key {
                    Key::Hairpin(_) if after.is_none() => changes.remove_last.insert(key),
                    _ => changes.remove.insert(key),
                };
            }
            if let Some(after) = after {
                if let Some(pick) = pick_of(&key, &after) {
                    *picks.entry(pick).or_default() += 1;
                }
                changes.add.insert(key, after);
            }
        }
        for (pick, by) in picks {
            let before = self.picks.get(&pick).copied().unwrap_or(0);
            let after = before.checked_add_signed(by).expect("no verdict leads to a chain it was not counted for");
            if before == 0 && after > 0 {
                changes.new_picks.insert(pick);
            }
            if after > 0 {
                self.picks.insert(pick, after);
            } else if self.picks.remove(&pick).is_some() {
                changes.dead_picks.insert(pick);
            }
        }
        let mut chains = BTreeMap::new();
        let mut clients = BTreeMap::new();
        for name in &batch.services {
            if let Some((_, contribution)) = self.contributions.get(name) {
                chains.extend(contribution.chains.iter());
                clients.extend(contribution.clients.iter());
            }
        }
        for (name, before) in batch.clients {
            let after = clients.get(&name).map(|seconds| **seconds);
            if before == after {
                continue;
            }
            if before.is_some() {
                changes.dead_clients.insert(name.clone());
            }
            if let Some(seconds) = after {
                changes.new_clients.insert(name, seconds);
            }
        }
        for (name, before) in batch.chains {
            match (before, chains.get(&name)) {
                (Some(before), Some(after)) if before == **after && !touches(after, &changes.dead_clients) => {}
                (_, Some(after)) => {
                    changes.chains.insert(name, (*after).clone());
                }
                (Some(_), None) => {
                    changes.dead_chains.insert(name);
                }
                (None, None) => {}
            }
        }
        changes
    }
}

/// A set cannot be replaced under the rules that look it up: they have to be written anew with it.
fn touches(rules: &[String], sets: &BTreeSet<String>) -> bool {
    let words =
        |rule: &String| rule.split_whitespace().any(|word| word.strip_prefix('@').is_some_and(|s| sets.contains(s)));
    !sets.is_empty() && rules.iter().any(words)
}

fn pick_of(key: &Key, value: &Value) -> Option<Pick> {
    match (key, value) {
        (Key::Dispatch(_, at), Value::Verdict(Verdict::Pick(scope, count))) => Some(Pick::of(at, *scope, *count)),
        _ => None,
    }
}

impl Pick {
    /// The chain for so many endpoints of a frontend.
    pub fn of(at: &Frontend, scope: Scope, count: u32) -> Self {
        Self { node_port: at.is_node_port(), scope, protocol: at.protocol(), count }
    }
}

/// What was before a batch of updates, for everything the batch touches.
#[derive(Default)]
struct Batch {
    services: BTreeSet<ServiceName>,
    elements: HashMap<Key, Option<Value>>,
    chains: BTreeMap<String, Option<Vec<String>>>,
    clients: BTreeMap<String, Option<u32>>,
}

impl Batch {
    fn remember(&mut self, table: &Table, key: Key) {
        self.elements.entry(key).or_insert_with(|| table.winner(&key).cloned());
    }
}
