//! When quotas were charged, and how long a count has to wait for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, Key};
use parking_lot::Mutex;

/// Between a charge and its object lies one write to the store: after this long without a charge, the objects of all charges are in the caches.
pub(super) const SETTLED: Duration = Duration::from_secs(1);
/// In a namespace where something is made all the time, a count comes after this long all the same.
const AT_MOST: Duration = Duration::from_secs(10);

/// The charges of each quota since it was last counted.
pub(super) struct Charges {
    clock: Arc<dyn Clock>,
    seen: Mutex<HashMap<Key, Seen>>,
}

struct Seen {
    first: Duration,
    last: Duration,
}

impl Charges {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    pub(super) fn add(&self, quota: &Key) {
        let now = self.clock.monotonic();
        self.seen
            .lock()
            .entry(quota.clone())
            .and_modify(|seen| seen.last = now)
            .or_insert(Seen { first: now, last: now });
    }

    /// How long a count has to wait still; `None` if it may be made now.
    pub(super) fn unsettled(&self, quota: &Key) -> Option<Duration> {
        let seen = self.seen.lock();
        let Seen { first, last } = seen.get(quota)?;
        let due = (*last + SETTLED).min(*first + AT_MOST);
        due.checked_sub(self.clock.monotonic()).filter(|rest| !rest.is_zero())
    }

    /// The quota is counted, or gone.
    pub(super) fn forget(&self, quota: &Key) {
        self.seen.lock().remove(quota);
    }
}

#[cfg(test)]
mod tests {
    use informer::clock::Fake;

    use super::*;

    #[test]
    fn a_count_waits_for_the_last_charge_but_not_for_ever() {
        let clock = Fake::at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let charges = Charges::new(clock.clone());
        let quota = Key { namespace: "default".to_owned(), name: "q".to_owned() };
        assert_eq!(charges.unsettled(&quota), None, "nothing was charged");
        charges.add(&quota);
        assert_eq!(charges.unsettled(&quota), Some(SETTLED));
        clock.advance(SETTLED);
        assert_eq!(charges.unsettled(&quota), None);
        for _ in 0..9 {
            charges.add(&quota);
            assert!(charges.unsettled(&quota).is_some());
            clock.advance(SETTLED);
        }
        charges.add(&quota);
        assert_eq!(charges.unsettled(&quota), None, "ten seconds after the first charge");
        charges.forget(&quota);
        charges.add(&quota);
        assert_eq!(charges.unsettled(&quota), Some(SETTLED), "a new round");
    }
}
