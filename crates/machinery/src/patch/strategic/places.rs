//! Where the elements of a list stand, by what tells them apart: their merge key, or their value where there is none.
//!
//! Every look-up is one step, however long the list is: users choose the length, and a patch that looked through the list for each
//! element would take seconds for what fits into one request.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use serde_json::Value;

/// The first position of every element of a list.
pub(super) struct Places<'a> {
    key: &'a str,
    first: HashMap<Identity<'a>, usize>,
}

impl<'a> Places<'a> {
    /// The places in a list whose elements are told apart by `key`, or by their value if it is empty. Elements without the key
    /// are nowhere.
    pub(super) fn of(list: &'a [Value], key: &'a str) -> Self {
        let mut first = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            if let Some(identity) = identity(item, key) {
                first.entry(Identity(identity)).or_insert(at);
            }
        }
        Self { key, first }
    }

    /// Where an element stands that is the same as this one.
    pub(super) fn find(&self, item: &Value) -> Option<usize> {
        self.first.get(&Identity(identity(item, self.key)?)).copied()
    }

    /// The element of a list of `length` that each of the changes goes to; those that are not there yet go to its end. Nothing is
    /// said of the first change without the key, nor of those after it.
    pub(super) fn targets(mut self, length: usize, changes: &'a [Value]) -> Vec<usize> {
        let mut targets = Vec::with_capacity(changes.len());
        let mut end = length;
        for change in changes {
            let Some(identity) = identity(change, self.key) else { break };
            let target = *self.first.entry(Identity(identity)).or_insert(end);
            if target == end {
                end += 1;
            } else if identity.is_null() {
                // Merging a null takes the key away, and with it what the next one would be found by.
                self.first.remove(&Identity(identity));
            }
            targets.push(target);
        }
        targets
    }
}

/// Values that were seen.
#[derive(Default)]
pub(super) struct Seen<'a>(HashSet<Identity<'a>>);

impl<'a> Seen<'a> {
    pub(super) fn of(values: impl IntoIterator<Item = &'a Value>) -> Self {
        Self(values.into_iter().map(Identity).collect())
    }

    /// Whether it is among them.
    pub(super) fn has(&self, value: &Value) -> bool {
        self.0.contains(&Identity(value))
    }

    /// Adds one; says whether it is new.
    pub(super) fn add(&mut self, value: &'a Value) -> bool {
        self.0.insert(Identity(value))
    }
}

/// What tells an element from others.
fn identity<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
    if key.is_empty() { Some(item) } else { item.get(key) }
}

/// A value as a key of a map. Tests count how often two of them are compared.
struct Identity<'a>(&'a Value);

impl PartialEq for Identity<'_> {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.0 == other.0
    }
}

impl Eq for Identity<'_> {}

impl Hash for Identity<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
thread_local! {
    /// How many comparisons of elements this thread has made.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
