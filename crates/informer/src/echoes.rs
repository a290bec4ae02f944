//! Writes of a controller whose echo has not come back through its cache yet.
//!
//! Optimistic locking keeps a stale cache from *overwriting* what is newer, but not from deciding *something else* on it: a Deployment that has just grown one
//! ReplicaSet and still sees it small would create the next one too large. [`Expectations`](crate::Expectations) count objects that come and go;
//! this follows the objects themselves, by the versions that the API server gave to the writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Kind;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

use crate::{Clock, Informer, Key};

/// An echo that takes longer is taken for lost.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// When to look again after a write that is not observed yet. Its echo brings the next turn; this is for the case that it never comes.
pub const UNOBSERVED: Duration = Duration::from_secs(30);

/// What was written on behalf of which owner.
#[derive(Debug)]
pub struct Echoes<K> {
    informer: Informer<K>,
    clock: Arc<dyn Clock>,
    pending: Arc<Mutex<HashMap<Key, Pending, FxBuildHasher>>>,
}

#[derive(Debug)]
struct Pending {
    owner: Key,
    version: u64,
    since: Duration,
}

impl<K: Kind> Echoes<K> {
    /// Listens for echoes in this cache.
    pub fn new(informer: &Informer<K>, clock: Arc<dyn Clock>) -> Self {
        let pending: Arc<Mutex<HashMap<Key, Pending, FxBuildHasher>>> = Arc::default();
        let shared = pending.clone();
        informer.subscribe(move |change| {
            let meta = change.object().metadata();
            let mut pending = shared.lock();
            let gone = change.after().is_none();
            if pending
                .get(&Key::of(meta))
                .is_some_and(|write| gone || version(change.object().as_ref()) >= Some(write.version))
            {
                pending.remove(&Key::of(meta));
            }
        });
        Self { informer: informer.clone(), clock, pending }
    }

    /// An object was written for an owner; this is the API server's answer.
    pub fn wrote(&self, owner: &Key, written: &K) {
        let key = Key::of(written.metadata());
        // Versions that are no numbers cannot be compared: then nothing is waited for.
        let Some(version) = version(written) else { return };
        let mut pending = self.pending.lock();
        // Asked with the lock held: the handler cannot come in between.
        if self.informer.get(&key).is_some_and(|cached| self::version(&*cached) >= Some(version)) {
            return;
        }
        pending.insert(key, Pending { owner: owner.clone(), version, since: self.clock.monotonic() });
    }

    /// Whether the cache holds everything that was written for an owner.
    pub fn observed(&self, owner: &Key) -> bool {
        let now = self.clock.monotonic();
        let mut pending = self.pending.lock();
        pending.retain(|_, write| now.saturating_sub(write.since) <= TIMEOUT);
        !pending.values().any(|write| write.owner == *owner)
    }
}

fn version<K: Kind>(object: &K) -> Option<u64> {
    object.metadata().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::Item;
    use crate::clock::Fake;

    fn object(version: u64) -> ConfigMap {
        let metadata =
            ObjectMeta { name: Some("a".into()), resource_version: Some(version.to_string()), ..ObjectMeta::default() };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[test]
    fn a_write_is_heard_when_the_cache_is_as_new_or_the_object_is_gone() {
        let clock = Fake::at(jiff::Timestamp::UNIX_EPOCH);
        let informer = Informer::empty("pods");
        let echoes = Echoes::new(&informer, clock.clone());
        let owner = Key::cluster("owner");
        assert!(echoes.observed(&owner));

        echoes.wrote(&owner, &object(5));
        assert!(!echoes.observed(&owner));
        assert!(echoes.observed(&Key::cluster("another")));
        informer.shared().apply(Item::Struct(Arc::new(object(4))));
        assert!(!echoes.observed(&owner), "an older echo is not it");
        informer.shared().apply(Item::Struct(Arc::new(object(6))));
        assert!(echoes.observed(&owner));

        echoes.wrote(&owner, &object(6));
        assert!(echoes.observed(&owner), "it was heard before it was told");
        echoes.wrote(&owner, &object(9));
        informer.shared().remove(&Item::Struct(Arc::new(object(10))));
        assert!(echoes.observed(&owner));

        echoes.wrote(&owner, &object(12));
        clock.advance(TIMEOUT + Duration::from_secs(1));
        assert!(echoes.observed(&owner), "a lost echo does not stop the controller for ever");
    }
}
