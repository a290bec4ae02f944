//! A bounded map whose entries are good for a while: what costs a signature check or a call is remembered shortly.

use std::hash::Hash;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The map. When the younger half is full, the older half is forgotten: no order to maintain, twice the bound at most.
#[derive(Debug)]
pub struct Expiring<K, V> {
    halves: Mutex<[FxHashMap<K, (i64, V)>; 2]>,
    bound: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Expiring<K, V> {
    /// With room for about so many entries.
    pub fn new(bound: usize) -> Self {
        Self { halves: Mutex::default(), bound: bound.div_ceil(2) }
    }

    /// What is remembered and still good at `now`, in milliseconds.
    pub fn get<Q>(&self, key: &Q, now: i64) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let halves = self.halves.lock();
        let (until, found) = halves.iter().find_map(|half| half.get(key))?;
        (now < *until).then(|| found.clone())
    }

    /// Remembers something until a time, in milliseconds.
    pub fn put(&self, key: K, found: V, until: i64) {
        let mut halves = self.halves.lock();
        if halves[0].len() >= self.bound {
            halves.swap(0, 1);
            halves[0].clear();
        }
        halves[1].remove(&key);
        halves[0].insert(key, (until, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_good_for_a_while_and_never_too_many() {
        let map = Expiring::new(4);
        map.put("a", 1, 10);
        assert_eq!(map.get("a", 9), Some(1));
        assert_eq!(map.get("a", 10), None);
        for (number, key) in ["b", "c", "d", "e", "f"].into_iter().enumerate() {
            map.put(key, number, 10);
        }
        assert_eq!(map.get("a", 0), None, "the oldest are forgotten");
        assert_eq!(map.get("f", 0), Some(4));
        map.put("f", 7, 20);
        assert_eq!(map.get("f", 15), Some(7));
    }
}
