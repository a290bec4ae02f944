//! Under which values the objects of a cache are found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::{Key, metrics};

type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

pub(super) struct Index<K> {
    name: &'static str,
    values: IndexFn<K>,
    /// The keys are those of the cache.
    keys: HashMap<String, FxHashSet<Arc<Key>>, FxBuildHasher>,
}

/// Under what an object was found, and is from now on.
pub(super) struct Move {
    before: Vec<String>,
    after: Vec<String>,
}

impl<K> Index<K> {
    pub(super) fn new(name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { name, values: Box::new(values), keys: HashMap::default() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// What is found under a value.
    pub(super) fn under(&self, value: &str) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.get(value).into_iter().flatten()
    }

    pub(super) fn count(&self, value: &str) -> usize {
        self.keys.get(value).map_or(0, FxHashSet::len)
    }

    pub(super) fn all_values(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// The values of an object; none if the function fails on it.
    fn values(&self, key: &Key, object: &K) -> Vec<String> {
        std::panic::catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            metrics::panicked(self.name, key);
            Vec::new()
        })
    }

    /// What has to change here when an object does.
    pub(super) fn weigh(&self, key: &Key, old: Option<&K>, new: Option<&K>) -> Move {
        let values = |object: Option<&K>| object.map(|object| self.values(key, object)).unwrap_or_default();
        Move { before: values(old), after: values(new) }
    }

    pub(super) fn make(&mut self, key: &Arc<Key>, Move { before, after }: Move) {
        for value in before.iter().filter(|value| !after.contains(value)) {
            self.drop_value(key, value.clone());
        }
        for value in after.into_iter().filter(|value| !before.contains(value)) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn drop_value(&mut self, key: &Key, value: String) {
        if let Entry::Occupied(mut keys) = self.keys.entry(value) {
            keys.get_mut().remove(key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
    }
}
