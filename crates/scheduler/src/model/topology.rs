//! Which domain of a topology key each node is in, as dense columns of small integers.
//!
//! Spreading and inter-pod affinity count pods per domain. With a column per key, a count is an array indexed by domain
//! and a look-up is two loads, where a map from label values would hash strings for every node of every cycle. Columns
//! exist for the keys that placed pods use (counted) and for recently asked ones (bounded); all are kept up to date as
//! nodes change.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::node::{NodeIdx, NodeInfo};
use rules::selectors::NodeFacts;

/// Columns kept for keys that no placed pod uses.
const MAX_IDLE_COLUMNS: usize = 32;

/// The domain of a node that lacks the label.
pub const NO_DOMAIN: u32 = u32::MAX;

/// The domains of one topology key. Cheap to clone and to hold during a cycle.
#[derive(Debug, Clone, Default)]
pub struct Column {
    domain_of: Arc<Vec<u32>>,
    domains: usize,
}

impl Column {
    /// The domain of a node, or `None` when it lacks the label.
    pub fn domain(&self, node: NodeIdx) -> Option<usize> {
        match self.domain_of.get(node.row()) {
            Some(&domain) if domain != NO_DOMAIN => Some(domain as usize),
            _ => None,
        }
    }

    /// An upper bound of domain numbers: the size of an array with an element per domain.
    pub fn domains(&self) -> usize {
        self.domains
    }
}

#[derive(Debug, Default)]
struct Entry {
    column: Column,
    numbers: FxHashMap<String, u32>,
    population: Vec<u32>,
    vacant: Vec<u32>,
    users: usize,
    last_asked: u64,
}

impl Entry {
    fn place(&mut self, row: usize, value: Option<&String>) {
        let rows = Arc::make_mut(&mut self.column.domain_of);
        if rows.len() <= row {
            rows.resize(row + 1, NO_DOMAIN);
        }
        let old = rows[row];
        let new = match value {
            None => NO_DOMAIN,
            Some(value) => match self.numbers.get(value) {
                Some(&number) => number,
                None => {
                    let number = self.vacant.pop().unwrap_or(self.population.len() as u32);
                    if number as usize == self.population.len() {
                        self.population.push(0);
                    }
                    self.numbers.insert(value.clone(), number);
                    number
                }
            },
        };
        rows[row] = new;
        if new != NO_DOMAIN {
            self.population[new as usize] += 1;
        }
        if old != NO_DOMAIN {
            self.population[old as usize] -= 1;
            if self.population[old as usize] == 0 {
                self.numbers.retain(|_, number| *number != old);
                self.vacant.push(old);
            }
        }
        self.column.domains = self.population.len();
    }
}

/// The columns of all topology keys in use.
#[derive(Debug, Default)]
pub struct Topology {
    columns: FxHashMap<String, Entry>,
    asked: u64,
}

impl Topology {
    /// The column of a key, which [`Topology::ensure`] or [`Topology::retain`] must have made.
    pub fn column(&self, key: &str) -> Option<&Column> {
        self.columns.get(key).map(|entry| &entry.column)
    }

    /// Makes the column of a key that a pod about to be scheduled uses.
    pub fn ensure(&mut self, key: &str, nodes: &[NodeInfo]) {
        self.asked += 1;
        let asked = self.asked;
        if let Some(entry) = self.columns.get_mut(key) {
            entry.last_asked = asked;
            return;
        }
        self.build(key, nodes).last_asked = asked;
        let idle = self.columns.iter().filter(|(_, e)| e.users == 0);
        if idle.clone().count() > MAX_IDLE_COLUMNS
            && let Some(oldest) = idle.min_by_key(|(_, e)| e.last_asked).map(|(key, _)| key.clone())
        {
            self.columns.remove(&oldest);
        }
    }

    /// Keeps the column of a key for as long as a placed pod uses it.
    pub fn retain(&mut self, key: &str, nodes: &[NodeInfo]) {
        match self.columns.get_mut(key) {
            Some(entry) => entry.users += 1,
            None => self.build(key, nodes).users = 1,
        }
    }

    /// Ends one [`Topology::retain`].
    pub fn release(&mut self, key: &str) {
        if let Some(entry) = self.columns.get_mut(key) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// Moves a node to the domains that its labels name now.
    pub fn update(&mut self, node: &NodeInfo) {
        for (key, entry) in &mut self.columns {
            entry.place(node.idx().row(), node.labels().and_then(|l| l.get(key)));
        }
    }

    fn build(&mut self, key: &str, nodes: &[NodeInfo]) -> &mut Entry {
        let entry = self.columns.entry(key.to_owned()).or_default();
        for node in nodes {
            entry.place(node.idx().row(), node.labels().and_then(|l| l.get(key)));
        }
        entry
    }
}
