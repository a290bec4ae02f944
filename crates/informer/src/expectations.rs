//! What a controller has asked for and not yet seen in its cache.
//!
//! Between a write and its echo a cache is older than the controller's own knowledge. A controller that planned on it would create the same pods twice.
//! So it notes what it asked for, and plans again only when every echo has come, or when it waited so long that an echo was lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::{Clock, Key};

/// An echo that takes longer is taken for lost.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Expected creations and deletions per owner.
#[derive(Debug)]
pub struct Expectations {
    clock: Arc<dyn Clock>,
    pending: Mutex<HashMap<Key, Pending, FxBuildHasher>>,
}

#[derive(Debug)]
struct Pending {
    creations: usize,
    /// Deletions by uid: an object is modified, then removed, and both are echoes of one deletion.
    deletions: FxHashSet<String>,
    since: Duration,
}

impl Expectations {
    /// Nothing is expected yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, pending: Mutex::default() }
    }

    /// Whether the cache has caught up with everything this owner's controller did.
    pub fn met(&self, owner: &Key) -> bool {
        let mut pending = self.pending.lock();
        let Some(expected) = pending.get(owner) else { return true };
        let met = expected.creations == 0 && expected.deletions.is_empty();
        let lost = self.clock.monotonic().saturating_sub(expected.since) > TIMEOUT;
        if met || lost {
            pending.remove(owner);
        }
        met || lost
    }

    /// `count` objects are about to be created.
    pub fn expect_creations(&self, owner: &Key, count: usize) {
        if count > 0 {
            self.change(owner, |expected| expected.creations += count);
        }
    }

    /// The objects with these uids are about to be deleted.
    pub fn expect_deletions(&self, owner: &Key, uids: impl IntoIterator<Item = String>) {
        let mut uids = uids.into_iter().peekable();
        if uids.peek().is_some() {
            self.change(owner, |expected| expected.deletions.extend(uids));
        }
    }

    /// One creation was seen, or failed and will never be.
    pub fn creation_observed(&self, owner: &Key) {
        if let Some(expected) = self.pending.lock().get_mut(owner) {
            expected.creations = expected.creations.saturating_sub(1);
        }
    }

    /// A deletion was seen (the deletion timestamp is enough), or failed and will never be.
    pub fn deletion_observed(&self, owner: &Key, uid: &str) {
        if let Some(expected) = self.pending.lock().get_mut(owner) {
            expected.deletions.remove(uid);
        }
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &Key) {
        self.pending.lock().remove(owner);
    }

    fn change(&self, owner: &Key, change: impl FnOnce(&mut Pending)) {
        let since = self.clock.monotonic();
        let mut pending = self.pending.lock();
        let expected = pending.entry(owner.clone()).or_insert_with(|| Pending {
            creations: 0,
            deletions: FxHashSet::default(),
            since,
        });
        expected.since = since;
        change(expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Fake;
    use jiff::Timestamp;

    #[test]
    fn expectations_are_met_by_echoes_or_by_a_long_wait() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let expectations = Expectations::new(clock.clone());
        let owner = Key::new("default", "web");
        assert!(expectations.met(&owner));

        expectations.expect_creations(&owner, 2);
        expectations.expect_deletions(&owner, ["a".to_owned()]);
        expectations.creation_observed(&owner);
        expectations.creation_observed(&owner);
        assert!(!expectations.met(&owner));
        expectations.deletion_observed(&owner, "b");
        assert!(!expectations.met(&owner));
        expectations.deletion_observed(&owner, "a");
        assert!(expectations.met(&owner));

        expectations.expect_creations(&owner, 1);
        clock.advance(TIMEOUT + Duration::from_secs(1));
        assert!(expectations.met(&owner), "a lost echo does not stop the controller for ever");
    }
}
