//! Which schemas of custom resources are compiled, and which of them are dropped when they become too many.
//!
//! What a schema means is found out when an object of its version is first read or written. That takes several times the memory of the schema, and a
//! cluster has definitions by the thousand, so it is not kept for ever: when what is compiled stands for more than [`LIMIT`] of schemas, the definitions
//! that nobody has used for longest are served anew, and compiled again when somebody asks.
//!
//! Time is counted in compilations: while nothing is compiled nothing grows old, and nobody looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use apiextensions::definition::Source;
use machinery::Value;
use rest::registry::Resource;
use tokio::sync::Notify;

/// So many bytes of schemas, as they are written, are compiled at once, give or take one definition.
const LIMIT: usize = 16 << 20;

/// How often a schema was compiled so far.
#[derive(Default)]
pub struct Warm {
    compilations: AtomicU64,
    changed: Notify,
}

impl Warm {
    /// Returns when a schema was compiled.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// A definition in the store, and how much of it is compiled.
pub struct Stored {
    definitions: Arc<Resource>,
    name: String,
    warm: Arc<Warm>,
    bytes: AtomicUsize,
    /// How many compilations there had been when it was last used.
    used: AtomicU64,
}

impl Stored {
    /// The definition of this name, of which nothing is compiled yet.
    pub fn new(definitions: Arc<Resource>, name: &str, warm: Arc<Warm>) -> Self {
        let (bytes, used) = Default::default();
        Self { definitions, name: name.to_owned(), warm, bytes, used }
    }
}

impl Source for Stored {
    fn definition(&self) -> Option<Value> {
        self.definitions.cache.get(&self.name).map(|object| object.to_value())
    }

    fn compiled(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = self.warm.compilations.fetch_add(1, Ordering::Relaxed) + 1;
        self.used.store(now, Ordering::Relaxed);
        self.warm.changed.notify_one();
    }

    fn used(&self) {
        self.used.store(self.warm.compilations.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The definitions whose schemas are dropped, by name.
pub fn cold<'a>(all: impl Iterator<Item = (&'a str, &'a Stored)>) -> Vec<String> {
    let figures = all.map(|(name, stored)| Compiled {
        name,
        bytes: stored.bytes.load(Ordering::Relaxed),
        used: stored.used.load(Ordering::Relaxed),
    });
    coldest(figures.filter(|one| one.bytes > 0).collect(), LIMIT)
}

struct Compiled<'a> {
    name: &'a str,
    bytes: usize,
    used: u64,
}

/// Those that were used longest ago go first, until half of the limit is free: otherwise every compilation would drop one. The last one stays, however large.
fn coldest(mut all: Vec<Compiled<'_>>, limit: usize) -> Vec<String> {
    let mut bytes: usize = all.iter().map(|one| one.bytes).sum();
    if bytes <= limit {
        return Vec::new();
    }
    all.sort_by_key(|one| one.used);
    all.pop();
    let mut dropped = Vec::new();
    for one in all {
        if bytes <= limit / 2 {
            break;
        }
        bytes -= one.bytes;
        dropped.push(one.name.to_owned());
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(all: &[(&'static str, usize, u64)], expect: &[&str]) {
        let all = all.iter().map(|&(name, bytes, used)| Compiled { name, bytes, used }).collect();
        assert_eq!(coldest(all, 100), expect);
    }

    #[test]
    fn what_was_used_longest_ago_goes_when_there_is_too_much() {
        check(&[], &[]);
        check(&[("a", 50, 1), ("b", 50, 2)], &[]);
        check(&[("a", 40, 3), ("b", 40, 1), ("c", 30, 2)], &["b", "c"]);
        check(&[("a", 1, 3), ("b", 1, 1), ("c", 99, 2)], &["b", "c"]);
        check(&[("huge", 1000, 9)], &[]);
        check(&[("old", 10, 1), ("huge", 1000, 9)], &["old"]);
    }
}
