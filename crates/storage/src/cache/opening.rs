//! Caches of resources that come and go while the server runs.

use std::sync::Arc;

use machinery::object::FieldPaths;
use machinery::status::ApiError;
use store::{Event, Range};

use super::caches::LOAD_PAGE;
use super::{Cache, Caches, Keeping, Ring, State};

impl Caches {
    /// Opens the cache of a resource with what the store has of it; one that is open already is taken as it is. What is written while
    /// it is being read is not missed.
    pub async fn open(&self, prefix: &str, fields: FieldPaths) -> Result<Arc<Cache>, ApiError> {
        let cache = {
            let mut all = self.by_prefix.write();
            if let Some(cache) = all.get(prefix) {
                return Ok(cache.clone());
            }
            let cache = Arc::new(Cache::new(prefix.to_owned(), Keeping { fields, packed: false }));
            cache.state.write().waiting = Some(Vec::new());
            all.insert(prefix.to_owned(), cache.clone());
            cache
        };
        match self.fill(&cache).await {
            Ok(()) => Ok(cache),
            Err(error) => {
                self.by_prefix.write().remove(prefix);
                Err(ApiError::unavailable(error.to_string()))
            }
        }
    }

    /// Closes the cache of a resource and ends its watches.
    pub fn close(&self, prefix: &str) {
        if let Some(cache) = self.by_prefix.write().remove(prefix) {
            cache.end_watches();
        }
    }

    async fn fill(&self, cache: &Cache) -> Result<(), store::Error> {
        let (mut after, mut at) = (None, None);
        let mut state = State::default();
        loop {
            let range = Range { prefix: cache.prefix.clone(), after: after.take(), limit: LOAD_PAGE, at };
            let page = self.store.range(range).await?;
            at = Some(page.revision);
            after = page.records.last().map(|record| record.key.to_string());
            for record in page.records {
                let key: Box<str> = record.key[cache.prefix.len()..].into();
                let event = Event {
                    key: record.key,
                    revision: record.revision,
                    value: Some(record.value),
                    previous: None,
                    write: None,
                };
                if let Some(object) = cache.decode(event, None).new {
                    state.objects.insert(key, object);
                }
            }
            if page.remaining == 0 {
                state.ring = Ring::starting_at(page.revision);
                let mut current = cache.state.write();
                let waiting = current.waiting.take().unwrap_or_default();
                (current.objects, current.ring) = (state.objects, state.ring);
                for event in waiting.into_iter().filter(|event| event.revision > page.revision) {
                    cache.apply_to(&mut current, event);
                }
                return Ok(());
            }
        }
    }
}

impl Cache {
    /// Ends every watch: what they watch has become another thing.
    pub fn end_watches(&self) {
        let mut state = self.state.write();
        state.watchers.clear();
        state.triggers.clear();
    }
}

#[cfg(test)]
mod tests {
    use machinery::object::Draft;
    use store::{Expect, Op, Store, Txn, WriteId};

    use super::super::{Filter, Start};
    use super::*;

    const PREFIX: &str = "/registry/harbour.example.com/ships/";

    async fn write(store: &dyn Store, name: &str) -> u64 {
        let tree =
            serde_json::json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": name}});
        let value = Draft::new(&tree, &FieldPaths::default()).expect("a draft").stored().clone();
        let op = Op::Put { value, ttl: None };
        let txn = Txn {
            key: format!("{PREFIX}{name}").into(),
            expect: Expect::Absent,
            op,
            write: Some(WriteId::new()),
            note: Default::default(),
        };
        match store.txn(txn).await.expect("a write") {
            store::Outcome::Committed(revision) => revision,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_cache_that_is_opened_has_what_was_there_and_follows_what_comes() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
        write(&*store, "before").await;
        let caches = Caches::start(store.clone(), []).await.expect("caches");
        let cache = caches.open(PREFIX, FieldPaths::default()).await.expect("a cache");
        let again = caches.open(PREFIX, FieldPaths::default()).await.expect("the same cache");
        assert!(Arc::ptr_eq(&cache, &again) && cache.get("before").is_some());

        let mut changes =
            cache.subscribe(&*store, &Filter::everything(), Start::Now, caches.revision()).await.expect("a watch");
        let revision = write(&*store, "after").await;
        caches.reach(revision).await.expect("it is followed");
        assert!(cache.get("after").is_some());
        assert_eq!(changes.live.recv().await.map(|change| change.revision), Some(revision));
        cache.end_watches();
        assert!(changes.live.recv().await.is_none(), "a watch of what has changed is ended");
        caches.close(PREFIX);
        assert!(caches.get(PREFIX).is_none());
        caches.stop();
    }

    #[tokio::test]
    async fn who_comes_back_after_changes_were_forgotten_gets_them_from_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
        let caches = Caches::start(store.clone(), [(PREFIX.to_owned(), Keeping::default())]).await.expect("caches");
        let cache = caches.get(PREFIX).expect("a cache");
        let first = write(&*store, "first").await;
        let second = write(&*store, "second").await;
        caches.reach(second).await.expect("it is followed");
        assert!(caches.forget(), "what is news stays");
        assert!(!caches.forget());
        assert_eq!((cache.state.read().ring.floor(), cache.last_change()), (second, second));

        let start = Start::After(first);
        let back = cache.subscribe(&*store, &Filter::everything(), start, second).await.expect("a watch");
        assert_eq!(back.backlog.iter().map(|change| change.revision).collect::<Vec<_>>(), [second]);
        caches.stop();
    }

    #[tokio::test]
    async fn who_comes_back_while_changes_are_forgotten_gets_them_all_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
        let caches = Caches::start(store.clone(), [(PREFIX.to_owned(), Keeping::default())]).await.expect("caches");
        let cache = caches.get(PREFIX).expect("a cache");
        let first = write(&*store, "first").await;
        let second = write(&*store, "second").await;
        caches.reach(second).await.expect("it is followed");
        assert!(caches.forget() && !caches.forget());
        let third = write(&*store, "third").await;
        caches.reach(third).await.expect("it is followed");
        assert!(caches.forget(), "what is news stays");

        let everything = Filter::everything();
        let coming = cache.subscribe(&*store, &everything, Start::After(first), third);
        // The log is being read up to the second when the third goes.
        let (back, _) = futures::future::join(coming, async { caches.forget() }).await;
        let back = back.expect("a watch");
        assert_eq!(back.backlog.iter().map(|change| change.revision).collect::<Vec<_>>(), [second, third]);
        caches.stop();
    }

    /// What happens between the moment in which a cache is known and that in which it is filled is not lost, and nothing is applied twice.
    #[tokio::test]
    async fn what_is_written_while_a_cache_is_filled_waits() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
        let caches = Caches::start(store.clone(), []).await.expect("caches");
        let cache = Arc::new(Cache::new(PREFIX.to_owned(), Keeping::default()));
        cache.state.write().waiting = Some(Vec::new());
        caches.by_prefix.write().insert(PREFIX.to_owned(), cache.clone());
        let revision = write(&*store, "meanwhile").await;
        caches.reach(revision).await.expect("it is followed");
        assert!(cache.is_empty(), "it waits");
        let late = cache.state.read().waiting.as_ref().and_then(|waiting| waiting.first().cloned()).expect("an event");
        let later = Event { revision: revision + 1, ..late };
        cache.state.write().waiting.as_mut().expect("it waits").push(later);
        caches.fill(&cache).await.expect("filled");
        assert_eq!((cache.len(), cache.last_change()), (1, revision + 1));
        caches.stop();
    }
}
