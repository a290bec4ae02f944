//! The caches of all resources, fed from one stream of committed events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use machinery::status::{ApiError, Cause, Reason};
use parking_lot::{Mutex, RwLock};
use store::{Event, Range, Revision, Store};
use threads::prompt::{self, Lane};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Cache, Keeping, Ring, State};

/// How many objects one page of the initial load has.
pub(super) const LOAD_PAGE: usize = 10_000;
/// How long a read waits for the cache to catch up with the store.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
/// So long a change is at hand for watchers that come back, and at most twice as long.
const FRESH: Duration = Duration::from_secs(25);

/// The caches of all resources, and how far they have come.
pub struct Caches {
    pub(super) store: Arc<dyn Store>,
    pub(super) by_prefix: RwLock<HashMap<String, Arc<Cache>>>,
    applied: watch::Sender<Revision>,
    /// Whether the store answered when last asked.
    well: AtomicBool,
    reader: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Caches {
    /// Loads everything under `/registry/` into the caches of the given resources (prefix, and how objects are kept), and
    /// follows the store from there.
    pub async fn start(
        store: Arc<dyn Store>,
        resources: impl IntoIterator<Item = (String, Keeping)>,
    ) -> Result<Arc<Self>, store::Error> {
        let by_prefix = resources
            .into_iter()
            .map(|(prefix, keeping)| (prefix.clone(), Arc::new(Cache::new(prefix, keeping))))
            .collect();
        let caches = Arc::new(Self {
            store,
            by_prefix: RwLock::new(by_prefix),
            applied: watch::Sender::new(0),
            well: AtomicBool::new(true),
            reader: Mutex::default(),
        });
        let revision = caches.load().await?;
        caches.applied.send_replace(revision);
        let reader = prompt::spawn(Lane::Feed, caches.clone().follow(revision));
        *caches.reader.lock() = Some(reader);
        Ok(caches)
    }

    /// The cache of the resource whose keys begin with `prefix`.
    pub fn get(&self, prefix: &str) -> Option<Arc<Cache>> {
        self.by_prefix.read().get(prefix).cloned()
    }

    /// Waits until every write that was durable when this was called is in the caches, and returns their revision.
    pub async fn settle(&self) -> Result<Revision, ApiError> {
        let durable = self.store.revision().await;
        self.well.store(durable.is_ok(), Ordering::Relaxed);
        self.reach(durable.map_err(|error| ApiError::unavailable(error.to_string()))?).await
    }

    /// Waits until the caches have come to `revision`.
    pub async fn reach(&self, revision: Revision) -> Result<Revision, ApiError> {
        let applied = *self.applied.borrow();
        if applied >= revision {
            return Ok(applied);
        }
        let mut applied = self.applied.subscribe();
        let reached = tokio::time::timeout(SETTLE_TIMEOUT, applied.wait_for(|applied| *applied >= revision)).await;
        match reached {
            Ok(Ok(applied)) => Ok(*applied),
            Ok(Err(_)) => Err(ApiError::unavailable("the server is shutting down")),
            Err(_) => {
                let current = *self.applied.borrow();
                let message = format!("Timeout: Too large resource version: {revision}, current: {current}");
                let mut error = ApiError::new(Reason::Timeout, message).retry_after(1);
                error.details.get_or_insert_default().causes = vec![Cause {
                    reason: "ResourceVersionTooLarge".to_owned(),
                    message: "Too large resource version".to_owned(),
                    field: String::new(),
                }];
                Err(error)
            }
        }
    }

    /// How far the caches have come.
    pub fn revision(&self) -> Revision {
        *self.applied.borrow()
    }

    /// Whether the store answered when last asked.
    pub fn store_answers(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// Why the store is not well, if it is not: it did not answer when last asked, or cannot write.
    pub fn store_failure(&self) -> Option<String> {
        if self.well.load(Ordering::Relaxed) {
            return self.store.write_failure();
        }
        Some("the store does not answer".to_owned())
    }

    /// Told each time the caches have come further.
    pub fn progress(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    /// Stops following the store and ends every watch.
    pub fn stop(&self) {
        if let Some(reader) = self.reader.lock().take() {
            reader.abort();
        }
        self.end_watches();
    }

    /// Ends every watch. Everything else goes on.
    pub fn end_watches(&self) {
        for cache in self.by_prefix.read().values() {
            let mut state = cache.state.write();
            state.watchers.clear();
            state.triggers.clear();
        }
    }

    /// Reads the latest state of everything into the caches, in place of what they had.
    async fn load(&self) -> Result<Revision, store::Error> {
        let mut after: Option<String> = None;
        let mut at = None;
        for cache in self.by_prefix.read().values() {
            let mut state = cache.state.write();
            // Ids go on: a watcher of before, when it goes, must not take a later one with it.
            *state = State { next_watcher: state.next_watcher, ..State::default() };
        }
        loop {
            let range = Range { prefix: "/registry/".to_owned(), after: after.take(), limit: LOAD_PAGE, at };
            let page = self.store.range(range).await?;
            at = Some(page.revision);
            after = page.records.last().map(|record| record.key.to_string());
            let more = page.remaining > 0;
            for record in page.records {
                let Some(cache) = self.of_key(&record.key) else { continue };
                let (revision, value) = (record.revision, Some(record.value));
                let event = Event { key: record.key, revision, value, previous: None, write: None };
                let key: Box<str> = event.key[cache.prefix.len()..].into();
                if let Some(object) = cache.decode(event, None).new {
                    cache.state.write().objects.insert(key, object);
                }
            }
            if !more {
                for cache in self.by_prefix.read().values() {
                    cache.state.write().ring = Ring::starting_at(page.revision);
                }
                return Ok(page.revision);
            }
        }
    }

    /// Applies committed events for as long as the server runs.
    async fn follow(self: Arc<Self>, mut revision: Revision) {
        loop {
            match self.follow_from(&mut revision).await {
                store::Error::Closed => return,
                // The store forgot what happened while it was away: the present is read anew, and every watcher, whose
                // stream would have a gap, is ended and gets 410 when it comes back.
                store::Error::Compacted { .. } => match self.load().await {
                    Ok(loaded) => {
                        tracing::warn!(
                            from = revision,
                            to = loaded,
                            "history was lost while the store was away; watches start over"
                        );
                        revision = loaded;
                        self.applied.send_replace(revision);
                    }
                    Err(error) => self.pause(&error, revision).await,
                },
                error => self.pause(&error, revision).await,
            }
        }
    }

    /// Applies events until the stream breaks, and says why it did.
    async fn follow_from(&self, revision: &mut Revision) -> store::Error {
        // Of every key, whoever's: the caches have come to a revision only when its event was seen, and in an etcd some are outside.
        let events = match self.store.watch("", *revision).await {
            Ok(events) => events,
            Err(error) => return error,
        };
        let mut batches = events.ready_chunks(256);
        let mut forgetting: Option<Instant> = None;
        loop {
            if forgetting.is_some_and(|at| at <= Instant::now()) {
                // While nothing happens there is soon nothing to forget, and no more turns.
                forgetting = self.forget().then(|| Instant::now() + FRESH);
            }
            let batch = match forgetting {
                None => batches.next().await,
                Some(at) => match tokio::time::timeout_at(at, batches.next()).await {
                    Ok(batch) => batch,
                    Err(_) => continue,
                },
            };
            let Some(batch) = batch else { break };
            forgetting.get_or_insert_with(|| Instant::now() + FRESH);
            self.well.store(true, Ordering::Relaxed);
            let mut broken = None;
            for event in batch {
                match event {
                    Ok(event) => {
                        *revision = event.revision;
                        if let Some(cache) = self.of_key(&event.key) {
                            cache.apply(event);
                        }
                    }
                    Err(error) => broken = Some(error),
                }
            }
            self.applied.send_replace(*revision);
            if let Some(error) = broken {
                return error;
            }
        }
        store::Error::Unavailable("the event stream ended".to_owned())
    }

    /// Lets go of changes that are no news; whether there are others.
    pub(super) fn forget(&self) -> bool {
        let (mut forgotten, mut left) = (Vec::new(), false);
        for cache in self.by_prefix.read().values() {
            let mut state = cache.state.write();
            forgotten.extend(state.ring.forget());
            left |= !state.ring.is_empty();
        }
        if !forgotten.is_empty() {
            // The feed is not to wait for that.
            tokio::task::spawn_blocking(move || drop(forgotten));
        }
        left
    }

    /// A moment before the next attempt to reach a store that is away.
    async fn pause(&self, error: &store::Error, revision: Revision) {
        self.well.store(false, Ordering::Relaxed);
        tracing::warn!(%error, revision, "cannot follow the store, trying again");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }

    /// The cache that a key belongs to: its resource takes one path segment (`pods`) or two (`services/specs`).
    fn of_key(&self, key: &str) -> Option<Arc<Cache>> {
        let rest = key.strip_prefix("/registry/")?;
        let by_prefix = self.by_prefix.read();
        let mut end = 0;
        for _ in 0..2 {
            end += rest[end..].find('/')? + 1;
            if let Some(cache) = by_prefix.get(&key[..key.len() - rest.len() + end]) {
                return Some(cache.clone());
            }
        }
        None
    }
}
