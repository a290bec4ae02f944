//! The watch cache: every object of every resource in memory, and the changes of the recent past.
//!
//! One task reads one stream of committed events from the store and applies each to the [`Cache`] of its resource, which
//! hands it to the watchers it concerns. Reads wait until that stream has come as far as the store ([`Caches::settle`]),
//! so they are consistent without touching the store. A watcher that starts in the past gets what the ring still holds;
//! what is older is read from the store's durable log once, for everybody ([`Cache::backfill`]). So a watcher survives a
//! restart of the server without a relist.

mod changes;
mod filter;
mod since;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use hops::Hop;
use machinery::object::{Draft, FieldPaths, Object};
use machinery::rest::WatchEvent;
use machinery::status::{ApiError, Reason};
use parking_lot::{Mutex, RwLock};
use store::{Event, Range, Revision, Store};
use threads::prompt::{self, Lane};
use tokio::sync::{mpsc, watch};

pub use changes::{Change, Ring};
pub use filter::{Filter, Scope, Trigger};
pub use since::{News, Place};

/// How many objects one page of the initial load has.
const LOAD_PAGE: usize = 10_000;
/// How many changes a watcher may fall behind before it is cut off.
const WATCHER_QUEUE: usize = 4_096;
/// How long a read waits for the cache to catch up with the store.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// A change on its way to a watcher.
type Delivery = Arc<Change>;

/// All objects of one resource.
pub struct Cache {
    /// Beginning of the resource's keys in the store, with a trailing slash.
    prefix: String,
    fields: FieldPaths,
    state: RwLock<State>,
    /// Held while history is read from the log, so that many resuming watchers read it once.
    history: tokio::sync::Mutex<()>,
    /// What writers of this process are writing, by where its encoding lies in memory.
    drafts: Mutex<HashMap<Address, Draft>>,
}

#[derive(Default)]
struct State {
    /// By `namespace/name`, or `name` for cluster-scoped resources: the order lists have.
    objects: BTreeMap<Box<str>, Arc<Object>>,
    ring: Ring,
    watchers: HashMap<u64, Watcher>,
    /// Which watchers a change concerns, so that one change does not visit them all.
    triggers: HashMap<Trigger, Vec<u64>>,
    next_watcher: u64,
}

struct Watcher {
    trigger: Trigger,
    queue: mpsc::Sender<Delivery>,
}

/// A watcher's place in the cache: what it missed, and what comes.
pub struct Subscription {
    /// Everything that exists, when the watcher asked for it.
    pub initial: Vec<Arc<Object>>,
    /// Changes after the asked-for revision that already happened.
    pub backlog: Vec<Delivery>,
    /// Changes from then on. It closes when the watcher is too slow or the server stops.
    pub live: mpsc::Receiver<Delivery>,
    /// The revision of the cache when the watcher came in.
    pub revision: Revision,
    _guard: Guard,
}

/// Takes the watcher out of the cache when its stream is dropped.
struct Guard {
    cache: Arc<Cache>,
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.cache.state.write().forget(self.id);
    }
}

/// Where bytes lie in memory, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Address(usize, usize);

impl Address {
    fn of(bytes: &bytes::Bytes) -> Self {
        Self(bytes.as_ptr() as usize, bytes.len())
    }
}

/// An announced write. It is over when this is dropped, whether its event has come or not.
#[must_use]
pub struct Expected<'a> {
    cache: &'a Cache,
    at: Address,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.cache.drafts.lock().remove(&self.at);
    }
}

/// Where a watcher starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With everything that exists, as if just added.
    Everything,
    /// With the first change after this revision.
    After(Revision),
    /// With the next change.
    Now,
}

impl Cache {
    fn new(prefix: String, fields: FieldPaths) -> Self {
        let (state, history, drafts) = Default::default();
        Self { prefix, fields, state, history, drafts }
    }

    /// One object by `namespace/name` or `name`.
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).cloned()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many watches are open.
    pub fn watchers(&self) -> usize {
        self.state.read().watchers.len()
    }

    /// The revision of the newest change, or of the load if nothing changed since.
    pub fn last_change(&self) -> Revision {
        self.state.read().ring.last()
    }

    /// The selectable fields of the resource.
    pub fn fields(&self) -> &FieldPaths {
        &self.fields
    }

    /// The objects in scope that pass the filter, after the key `after`, at most `limit` (0 is all), and how many more would follow.
    pub fn list(&self, filter: &Filter, after: Option<&str>, limit: usize) -> (Vec<Arc<Object>>, u64) {
        self.state.read().list(filter, after, limit)
    }

    /// As [`Cache::list`], if no object of the resource changed after `revision`.
    pub fn list_unchanged_since(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
        revision: Revision,
    ) -> Option<(Vec<Arc<Object>>, u64)> {
        let state = self.state.read();
        (state.ring.last() <= revision).then(|| state.list(filter, after, limit))
    }

    /// Announces a write, so that its event need not be decoded when it comes back from the store with the same bytes.
    pub fn expect(&self, draft: &Draft) -> Expected<'_> {
        let at = Address::of(draft.stored());
        self.drafts.lock().insert(at, draft.clone());
        Expected { cache: self, at }
    }

    /// Registers a watcher. In one critical section, so nothing falls between its past and its future.
    pub async fn subscribe(
        self: &Arc<Self>,
        store: &dyn Store,
        filter: &Filter,
        start: Start,
        at: Revision,
    ) -> Result<Subscription, ApiError> {
        if let Start::After(revision) = start {
            self.backfill(store, revision).await?;
        }
        let (sender, live) = mpsc::channel(WATCHER_QUEUE);
        let mut state = self.state.write();
        let (initial, backlog) = match start {
            Start::Everything => {
                let matching = state.in_scope(filter.scope(), None).filter(|object| filter.matches(object));
                (matching.cloned().collect(), Vec::new())
            }
            Start::After(revision) => match state.ring.after(revision) {
                Some(changes) => (Vec::new(), changes.cloned().collect()),
                None => return Err(too_old(revision, state.ring.floor())),
            },
            Start::Now => (Vec::new(), Vec::new()),
        };
        let id = state.next_watcher;
        state.next_watcher += 1;
        let trigger = filter.trigger();
        state.triggers.entry(trigger.clone()).or_default().push(id);
        state.watchers.insert(id, Watcher { trigger, queue: sender });
        let revision = at.max(state.ring.last());
        Ok(Subscription { initial, backlog, live, revision, _guard: Guard { cache: self.clone(), id } })
    }

    /// Reads the changes after `revision` that the ring no longer (or not yet) holds out of the store's log.
    async fn backfill(&self, store: &dyn Store, revision: Revision) -> Result<(), ApiError> {
        if self.state.read().ring.floor() <= revision {
            return Ok(());
        }
        let _one_at_a_time = self.history.lock().await;
        let floor = self.state.read().ring.floor();
        if floor <= revision {
            return Ok(());
        }
        let events = store.history(&self.prefix, revision, floor, Ring::CAPACITY).await;
        let events = events.map_err(|error| log_error(error, revision))?;
        let changes = events.into_iter().map(|event| Arc::new(self.decode(event, None))).collect();
        self.state.write().ring.prepend(revision, floor, changes);
        Ok(())
    }

    /// Applies one committed event and hands it to whom it concerns.
    fn apply(&self, event: Event) {
        let mut state = self.state.write();
        let key = event.key[self.prefix.len()..].into();
        let known = state.objects.get(&key).cloned();
        let change = Arc::new(self.decode(event, known));
        match &change.new {
            Some(object) => state.objects.insert(key, object.clone()),
            None => state.objects.remove(&key),
        };
        state.ring.push(change.clone());
        let hop = hops::start(Hop::FanOut, "watch");
        state.deliver(&change);
        let about = change.new.as_ref().or(change.old.as_ref());
        hop.end(about.map_or("", |object| &object.meta().uid), "", change.revision);
    }

    /// An event as a change. `known` is the object the event replaces, when the cache has it decoded already.
    fn decode(&self, event: Event, known: Option<Arc<Object>>) -> Change {
        let revision = event.revision;
        let decode = |value: bytes::Bytes, revision| {
            // A draft keeps its bytes alive: nothing else can lie where they do.
            if let Some(draft) = self.drafts.lock().remove(&Address::of(&value)) {
                return Some(Arc::new(draft.at_revision(revision)));
            }
            match Object::from_stored(value, revision, &self.fields) {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::error!(key = %event.key, %error, "an object in the store cannot be read and is not served");
                    None
                }
            }
        };
        let old = match (event.previous, known) {
            (Some(previous), Some(known)) if known.revision() == previous.revision => Some(known),
            (Some(previous), _) => decode(previous.value, previous.revision),
            (None, known) => known,
        };
        let new = event.value.and_then(|value| decode(value, revision));
        Change { revision, old, new }
    }
}

impl State {
    fn list(&self, filter: &Filter, after: Option<&str>, limit: usize) -> (Vec<Arc<Object>>, u64) {
        let mut items = Vec::new();
        let mut more = 0;
        for object in self.in_scope(filter.scope(), after) {
            if !filter.matches(object) {
                continue;
            }
            if limit > 0 && items.len() == limit {
                more += 1;
                // How many more is told only when nothing but the scope decides; otherwise that there are more is enough.
                if filter.selects() {
                    break;
                }
            } else {
                items.push(object.clone());
            }
        }
        (items, more)
    }

    fn in_scope<'a>(&'a self, scope: &Scope, after: Option<&str>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        use std::ops::Bound;
        let prefix: Box<str> = match scope {
            Scope::All => "".into(),
            Scope::Namespace(namespace) => format!("{namespace}/").into(),
            Scope::Key(key) => key.clone(),
        };
        let exact = matches!(scope, Scope::Key(_));
        let start = match after {
            Some(after) if after >= &*prefix => Bound::Excluded(after),
            _ => Bound::Included(&*prefix),
        };
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| if exact { ***key == *prefix } else { key.starts_with(&*prefix) })
            .map(|(_, object)| object)
    }

    fn deliver(&mut self, change: &Delivery) {
        let mut slow = Vec::new();
        for trigger in Trigger::of(change) {
            for id in self.triggers.get(&trigger).into_iter().flatten() {
                if self.watchers.get(id).is_some_and(|watcher| watcher.queue.try_send(change.clone()).is_err()) {
                    slow.push(*id);
                }
            }
        }
        // A watcher that does not keep up is cut off (it may resume from what it saw last); it never holds up the others.
        for id in slow {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(watcher) = self.watchers.remove(&id) else { return };
        if let Some(ids) = self.triggers.get_mut(&watcher.trigger) {
            ids.retain(|candidate| *candidate != id);
            if ids.is_empty() {
                self.triggers.remove(&watcher.trigger);
            }
        }
    }
}

fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
}

fn log_error(error: store::Error, requested: Revision) -> ApiError {
    match error {
        store::Error::Compacted { oldest } => too_old(requested, oldest),
        store::Error::TooLarge => too_old(requested, requested),
        other => ApiError::unavailable(other.to_string()),
    }
}

/// The caches of all resources, and how far they have come.
pub struct Caches {
    store: Arc<dyn Store>,
    by_prefix: RwLock<HashMap<String, Arc<Cache>>>,
    applied: watch::Sender<Revision>,
    /// Whether the store answered when last asked.
    well: AtomicBool,
    reader: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Caches {
    /// Loads everything under `/registry/` into the caches of the given resources (prefix and selectable fields), and
    /// follows the store from there.
    pub async fn start(
        store: Arc<dyn Store>,
        resources: impl IntoIterator<Item = (String, FieldPaths)>,
    ) -> Result<Arc<Self>, store::Error> {
        let by_prefix = resources
            .into_iter()
            .map(|(prefix, fields)| (prefix.clone(), Arc::new(Cache::new(prefix, fields))))
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
                error.details.get_or_insert_default().causes = vec![machinery::status::Cause {
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
                let event =
                    Event { key: record.key, revision: record.revision, value: Some(record.value), previous: None };
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
                // stream would have a gap, is ended and told 410 when it comes back.
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
        let events = match self.store.watch("/registry/", *revision).await {
            Ok(events) => events,
            Err(error) => return error,
        };
        let mut batches = events.ready_chunks(256);
        while let Some(batch) = batches.next().await {
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

/// What a change is for a watcher with this filter, if anything.
pub fn event_for(filter: &Filter, change: &Change) -> Option<WatchEvent> {
    let matched = change.old.as_ref().filter(|object| filter.matches(object));
    let matches = change.new.as_ref().filter(|object| filter.matches(object));
    match (matched, matches) {
        (None, None) => None,
        (None, Some(new)) => Some(WatchEvent::Added(new.clone())),
        (Some(_), Some(new)) => Some(WatchEvent::Modified(new.clone())),
        // The last state the watcher knew, with the revision of the change that took it away.
        (Some(old), None) => Some(WatchEvent::Deleted(Arc::new(old.at_revision(change.revision)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_write_is_not_decoded_again_and_any_other_is() {
        let cache = Cache::new("/registry/pods/".to_owned(), FieldPaths::default());
        let tree = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "d"}});
        let draft = Draft::new(&tree, cache.fields()).expect("a draft");
        let event = |value: &bytes::Bytes| Event {
            key: "/registry/pods/d/a".into(),
            revision: 7,
            value: Some(value.clone()),
            previous: None,
        };
        let apply = |value| cache.decode(event(value), None).new.expect("an object");
        let shares = |object: &Object| std::ptr::eq(object.meta(), draft.at_revision(7).meta());

        let expected = cache.expect(&draft);
        let copy = bytes::Bytes::copy_from_slice(draft.stored());
        assert!(!shares(&apply(&copy)), "the same text from elsewhere is read");
        let own = apply(draft.stored());
        assert!(shares(&own) && own.revision() == 7);
        drop(expected);

        drop(cache.expect(&draft));
        assert!(!shares(&apply(draft.stored())), "a write that is over is expected no more");
        assert!(cache.drafts.lock().is_empty());
    }
}
