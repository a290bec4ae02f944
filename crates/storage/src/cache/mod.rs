//! The watch cache: every object of every resource in memory, and the changes of the recent past.
//!
//! One task reads one stream of committed events from the store and applies each to the [`Cache`] of its resource, which
//! hands it to the watchers it concerns. Reads wait until that stream has come as far as the store ([`Caches::settle`]),
//! so they are consistent without touching the store. A watcher that starts in the past gets what the ring still holds, some seconds;
//! what is older is read from the store's durable log once, for everybody ([`Cache::backfill`]). So a watcher survives a
//! restart of the server without a relist.

mod caches;
mod changes;
mod filter;
mod opening;
mod since;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use hops::Hop;
use machinery::object::{Draft, FieldPaths, Object};
use machinery::rest::WatchEvent;
use machinery::status::ApiError;
use parking_lot::{Mutex, RwLock};
use store::{Event, Revision, Store, WriteId};
use tokio::sync::mpsc;

pub use caches::Caches;
pub use changes::{Change, Ring};
pub use filter::{Filter, Scope, Trigger};
pub use since::{News, Place};

/// How many changes a watcher may fall behind before it is cut off.
const WATCHER_QUEUE: usize = 4_096;

/// A change on its way to a watcher.
type Delivery = Arc<Change>;

/// How the objects of a resource are kept.
#[derive(Debug, Clone, Default)]
pub struct Keeping {
    /// The fields that selectors may name.
    pub fields: FieldPaths,
    /// Whether they are long and seldom read.
    pub packed: bool,
}

/// All objects of one resource.
pub struct Cache {
    /// Beginning of the resource's keys in the store, with a trailing slash.
    prefix: String,
    keeping: Keeping,
    state: RwLock<State>,
    /// Held while history is read from the log, so that many resuming watchers read it once.
    history: tokio::sync::Mutex<()>,
    /// What writers of this process are writing.
    drafts: Mutex<HashMap<WriteId, Draft>>,
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
    /// What happens while a cache is being opened, until what was before is in it.
    waiting: Option<Vec<Event>>,
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

/// An announced write. It is over when this is dropped, whether its event has come or not.
#[must_use]
pub struct Announced<'a> {
    cache: &'a Cache,
    write: WriteId,
}

impl Announced<'_> {
    /// What the transaction has to be called, so that its event is known again.
    pub fn write(&self) -> WriteId {
        self.write
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.cache.drafts.lock().remove(&self.write);
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
    fn new(prefix: String, keeping: Keeping) -> Self {
        let (state, history, drafts) = Default::default();
        Self { prefix, keeping, state, history, drafts }
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

    /// The key of an object in the store.
    pub fn stored_key(&self, key: &str) -> Arc<str> {
        format!("{}{key}", self.prefix).into()
    }

    /// The selectable fields of the resource.
    pub fn fields(&self) -> &FieldPaths {
        &self.keeping.fields
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

    /// Announces a write, so that what it writes need not be decoded when its event comes back from the store.
    pub fn announce(&self, draft: &Draft) -> Announced<'_> {
        let write = WriteId::new();
        self.drafts.lock().insert(write, draft.clone());
        Announced { cache: self, write }
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
        // A second time if changes were forgotten while the log was read, which is once in a while.
        for _ in 0..2 {
            let floor = self.state.read().ring.floor();
            if floor <= revision {
                break;
            }
            let events = store.history(&self.prefix, revision, floor, Ring::CAPACITY).await;
            let events = events.map_err(|error| log_error(error, revision))?;
            let changes = events.into_iter().map(|event| Arc::new(self.decode(event, None))).collect();
            let has_moved = {
                let mut state = self.state.write();
                let before = state.ring.floor();
                state.ring.prepend(revision, floor, changes);
                before != floor
            };
            if !has_moved {
                break;
            }
        }
        Ok(())
    }

    /// Applies one committed event and hands it to whom it concerns.
    fn apply(&self, event: Event) {
        let mut state = self.state.write();
        if let Some(waiting) = &mut state.waiting {
            return waiting.push(event);
        }
        self.apply_to(&mut state, event);
    }

    fn apply_to(&self, state: &mut State, event: Event) {
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
        let keep = |object: Object| Arc::new(if self.keeping.packed { object.packed() } else { object });
        let decode = |value: bytes::Bytes, revision| match Object::from_stored(value, revision, self.fields()) {
            Ok(object) => Some(keep(object)),
            Err(error) => {
                tracing::error!(key = %event.key, %error, "an object in the store cannot be read and is not served");
                None
            }
        };
        let old = match (event.previous, known) {
            (Some(previous), Some(known)) if known.revision() == previous.revision => Some(known),
            (Some(previous), _) => decode(previous.value, previous.revision),
            (None, known) => known,
        };
        let announced = event.write.and_then(|write| self.drafts.lock().remove(&write));
        let new = match (event.value, announced) {
            (Some(_), Some(draft)) => Some(keep(draft.at_revision(revision))),
            (value, _) => value.and_then(|value| decode(value, revision)),
        };
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
                // How many more is counted only when nothing but the scope decides; otherwise that there are more is enough.
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
        let cache = Cache::new("/registry/pods/".to_owned(), Keeping::default());
        let tree = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "d"}});
        let draft = Draft::new(&tree, cache.fields()).expect("a draft");
        let apply = |write: Option<WriteId>| {
            // Another copy of the text, as it is when it was sealed and opened on its way.
            let value = Some(bytes::Bytes::copy_from_slice(draft.stored()));
            let event = Event { key: "/registry/pods/d/a".into(), revision: 7, value, previous: None, write };
            cache.decode(event, None).new.expect("an object")
        };
        let shares = |object: &Object| std::ptr::eq(object.meta(), draft.at_revision(7).meta());

        let announced = cache.announce(&draft);
        assert!(!shares(&apply(None)), "the same text from elsewhere is read");
        assert!(!shares(&apply(Some(WriteId::new()))), "and so is another write");
        let own = apply(Some(announced.write()));
        assert!(shares(&own) && own.revision() == 7);
        drop(announced);

        let over = cache.announce(&draft).write();
        assert!(!shares(&apply(Some(over))), "a write that is over is expected no more");
        assert!(cache.drafts.lock().is_empty());
    }
}
