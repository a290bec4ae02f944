//! Answers of the API server, remembered for a short while and never too many of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use informer::Clock;
use parking_lot::Mutex;

/// Most answers of one kind.
const CAPACITY: usize = 1024;

pub(crate) struct Cache<K, V> {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<K, (V, Duration)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// The answer, while it is still good.
    pub fn get(&self, key: &K) -> Option<V> {
        let now = self.clock.monotonic();
        self.entries.lock().get(key).filter(|(_, until)| *until > now).map(|(value, _)| value.clone())
    }

    /// Remembers an answer for so long.
    pub fn put(&self, key: K, value: V, life: Duration) {
        let now = self.clock.monotonic();
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (_, until)| *until > now);
        }
        if entries.len() >= CAPACITY {
            // Any one may go: it only costs a question.
            if let Some(victim) = entries.keys().next().cloned() {
                entries.remove(&victim);
            }
        }
        entries.insert(key, (value, now.saturating_add(life)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer::clock::Fake;
    use jiff::Timestamp;

    #[test]
    fn answers_are_forgotten_in_time_and_never_pile_up() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let cache = Cache::new(clock.clone());
        cache.put(0, "a", Duration::from_secs(10));
        assert_eq!(cache.get(&0), Some("a"));
        clock.advance(Duration::from_secs(10));
        assert_eq!(cache.get(&0), None);
        for key in 0..3 * CAPACITY {
            cache.put(key, "b", Duration::from_secs(10));
        }
        assert_eq!(cache.entries.lock().len(), CAPACITY);
        assert_eq!(cache.get(&(3 * CAPACITY - 1)), Some("b"));
    }
}
