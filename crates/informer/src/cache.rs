//! The cache behind an informer and the handle that reads it.
//!
//! One task (the reflector) writes; everybody reads. A change is first made in the cache, then passed to the handlers, one after the other, in the
//! order of the changes. So a handler that looks something up never finds less than it was called with.
//!
//! Handlers and indexes are code of others. What panics in them stays with the one object: the handler misses that change, the index that object.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use client::Undecodable;
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxBuildHasher, FxHashSet};
use tokio::sync::watch;

use crate::aside::{self, Aside};
use crate::{Cached, Key, metrics};

type FxMap<A, B> = HashMap<A, B, FxBuildHasher>;

/// What became of an object.
#[derive(Debug)]
pub enum Change<K> {
    /// It came to be, or was there when the handler subscribed.
    Added(Arc<K>),
    /// It changed. Both have the same uid.
    Modified {
        /// As the handler knew it.
        old: Arc<K>,
        new: Arc<K>,
    },
    /// It went; this is the last state known, which may be older than the last it had.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The state before, unless it was added.
    pub fn before(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// The state now, unless it was deleted.
    pub fn after(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(new) | Self::Modified { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The latest state known.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted(object) => object,
        }
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Modified { old, new } => Self::Modified { old: old.clone(), new: new.clone() },
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}

/// Where an informer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Reading everything for the first time; the cache is not complete yet.
    Listing,
    Watching {
        /// The revision up to which all changes are known.
        revision: String,
    },
    /// The revision it stood at is no longer served: reading everything again, while the cache still answers with what it has.
    Relisting,
    /// Waiting before the next attempt.
    BackingOff,
    Stopped,
}

type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;
type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Reads the shared cache of one kind. Cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

/// What the reflector, the readers and the handlers share.
pub(crate) struct Shared<K> {
    objects: RwLock<Objects<K>>,
    /// Held while a change is made and passed on, so that a new handler starts at a point between two changes.
    handlers: Mutex<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
    phase: Mutex<Phase>,
    aside: Aside,
}

struct Objects<K> {
    by_key: FxMap<Key, Arc<K>>,
    indexes: Vec<Index<K>>,
}

struct Index<K> {
    name: &'static str,
    values: IndexFn<K>,
    keys: FxMap<String, FxHashSet<Key>>,
}

/// The index of [`Informer::by_owner`].
const OWNER: &str = "owner";
/// The index of [`Informer::by_namespace`].
const NAMESPACE: &str = "namespace";

impl<K: Cached> Informer<K> {
    /// An empty one for the objects of a resource. The reflector fills it.
    pub(crate) fn empty(resource: impl Into<String>) -> Self {
        let owner: IndexFn<K> =
            Box::new(|object| rules::owners::controller_uid(object.meta()).map(str::to_owned).into_iter().collect());
        let namespace: IndexFn<K> = Box::new(|object| object.meta().namespace.iter().cloned().collect());
        let indexes = vec![
            Index { name: OWNER, values: owner, keys: FxMap::default() },
            Index { name: NAMESPACE, values: namespace, keys: FxMap::default() },
        ];
        Self {
            shared: Arc::new(Shared {
                objects: RwLock::new(Objects { by_key: FxMap::default(), indexes }),
                handlers: Mutex::default(),
                synced: watch::Sender::new(false),
                phase: Mutex::new(Phase::Listing),
                aside: Aside::new(resource.into()),
            }),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<K>> {
        &self.shared
    }

    /// The object of this name.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.objects.read().by_key.get(key).cloned()
    }

    /// Everything, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.objects.read().by_key.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shared.objects.read().by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything in a namespace.
    pub fn by_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.by_index(NAMESPACE, namespace)
    }

    /// Everything whose controller (the owner reference with `controller: true`) has this uid.
    pub fn by_owner(&self, uid: &str) -> Vec<Arc<K>> {
        self.by_index(OWNER, uid)
    }

    /// Adds an index: the function names the values under which an object is found. A second index of the same name is ignored, so that several
    /// users of the shared informer may each ask for it.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut objects = self.shared.objects.write();
        if objects.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, values: Box::new(values), keys: FxMap::default() };
        for (key, object) in &objects.by_key {
            index.insert(key, object);
        }
        objects.indexes.push(index);
    }

    /// Everything an index holds under a value.
    ///
    /// # Panics
    /// If no such index was added: that is a mistake in the program, which an empty answer would hide.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read();
        let index =
            objects.indexes.iter().find(|index| index.name == name).expect("indexes are added before they are used");
        let keys = index.keys.get(value).into_iter().flatten();
        keys.filter_map(|key| objects.by_key.get(key).cloned()).collect()
    }

    /// How many objects an index holds under a value.
    ///
    /// # Panics
    /// As [`Informer::by_index`].
    pub fn count(&self, name: &str, value: &str) -> usize {
        let objects = self.shared.objects.read();
        let index =
            objects.indexes.iter().find(|index| index.name == name).expect("indexes are added before they are used");
        index.keys.get(value).map_or(0, FxHashSet::len)
    }

    /// Calls the handler for every object there is, then for every change. Handlers run on the informer's task: they must be quick, must not
    /// block, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.lock();
        for object in self.list() {
            call(&handler, &Change::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    /// Resolves when the cache is complete and the handlers have seen all of it.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // An error means the reflector is gone: the process is shutting down, and the waiter with it.
        if synced.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether [`Informer::synced`] would resolve at once.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// The objects that are there and cannot be read. The cache has the last version of them that could be, or none: who acts on the absence of
    /// an object looks here first.
    pub fn set_aside(&self) -> Vec<Undecodable> {
        self.shared.aside.list()
    }

    pub fn phase(&self) -> Phase {
        self.shared.phase.lock().clone()
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({} objects, {:?})", self.shared.objects.read().by_key.len(), self.shared.phase.lock())
    }
}

impl<K: Cached> Shared<K> {
    pub(crate) fn set_phase(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    pub(crate) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Takes over an object as the watch tells of it.
    pub(crate) fn apply(&self, object: Arc<K>) {
        let handlers = self.handlers.lock();
        self.aside.heal(&Key::of(object.meta()));
        let changes = self.objects.write().put(object);
        notify(&handlers, &changes);
    }

    /// Takes an object out.
    pub(crate) fn remove(&self, object: Arc<K>) {
        let handlers = self.handlers.lock();
        let key = Key::of(object.meta());
        self.aside.heal(&key);
        let gone = self.objects.write().remove(&key);
        // The event carries the last state of all; whoever never knew the object needs no word of its end.
        if gone.is_some() {
            notify(&handlers, &[Change::Deleted(object)]);
        }
    }

    /// Sets an object aside that cannot be read. True if that is news in this process.
    pub(crate) fn set_aside(&self, object: Undecodable) -> bool {
        let handlers = self.handlers.lock();
        let replaced = self.objects.write().remove_replaced(&object);
        notify(&handlers, &replaced.map(Change::Deleted).into_iter().collect::<Vec<_>>());
        self.aside.put(object)
    }

    /// An object that cannot be read is gone: the last state known is the last one that could be read.
    pub(crate) fn remove_unread(&self, object: &Undecodable) {
        let handlers = self.handlers.lock();
        let key = aside::key(object);
        self.aside.heal(&key);
        let gone = self.objects.write().remove(&key);
        notify(&handlers, &gone.map(Change::Deleted).into_iter().collect::<Vec<_>>());
    }

    /// Makes the cache hold exactly these objects, telling only of the differences. What is there and cannot be read stays as it was known; those
    /// of them that are news are answered.
    pub(crate) fn replace(&self, all: Vec<Arc<K>>, undecodable: Vec<Undecodable>) -> Vec<Undecodable> {
        let handlers = self.handlers.lock();
        let mut keep: FxHashSet<Key> = all.iter().map(|object| Key::of(object.meta())).collect();
        keep.extend(undecodable.iter().map(aside::key));
        self.aside.keep_only(&undecodable);
        let changes = {
            let mut objects = self.objects.write();
            let gone: Vec<Key> = objects.by_key.keys().filter(|key| !keep.contains(*key)).cloned().collect();
            let gone = gone.iter().filter_map(|key| objects.remove(key)).collect::<Vec<_>>();
            let replaced = undecodable.iter().filter_map(|object| objects.remove_replaced(object)).collect::<Vec<_>>();
            let mut changes: Vec<Change<K>> = gone.into_iter().chain(replaced).map(Change::Deleted).collect();
            for object in all {
                changes.extend(objects.put(object));
            }
            changes
        };
        notify(&handlers, &changes);
        let news = undecodable.into_iter().filter(|object| self.aside.put(object.clone())).collect();
        self.synced.send_replace(true);
        news
    }
}

fn notify<K: Cached>(handlers: &[Handler<K>], changes: &[Change<K>]) {
    for change in changes {
        for handler in handlers {
            call(handler, change);
        }
    }
}

/// A handler that panics must not take the cache of everybody else with it.
fn call<K: Cached>(handler: impl Fn(&Change<K>), change: &Change<K>) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
        // The handler does not say whose it is, the message of the panic does.
        metrics::panicked("an informer's handler", &Key::of(change.object().meta()));
    }
}

impl<K: Cached> Objects<K> {
    /// The changes for the handlers: nothing if the object is known as it is, and two things if one of the same name took its place.
    fn put(&mut self, object: Arc<K>) -> Vec<Change<K>> {
        let key = Key::of(object.meta());
        match self.by_key.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(object.clone());
                self.indexes.iter_mut().for_each(|index| index.insert(&key, &object));
                vec![Change::Added(object)]
            }
            Entry::Occupied(mut occupied) => {
                if occupied.get().meta().resource_version == object.meta().resource_version {
                    return Vec::new();
                }
                let old = occupied.insert(object.clone());
                self.indexes.iter_mut().for_each(|index| index.replace(&key, &old, &object));
                if old.meta().uid == object.meta().uid {
                    vec![Change::Modified { old, new: object }]
                } else {
                    vec![Change::Deleted(old), Change::Added(object)]
                }
            }
        }
    }

    /// Takes out what has the name of an object that cannot be read and is another one: it is gone for certain.
    fn remove_replaced(&mut self, object: &Undecodable) -> Option<Arc<K>> {
        let uid = object.object.uid.as_ref().filter(|uid| !uid.is_empty())?;
        let key = aside::key(object);
        let other = self.by_key.get(&key)?.meta().uid.as_ref().is_some_and(|known| known != uid);
        if other { self.remove(&key) } else { None }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.by_key.remove(key)?;
        self.indexes.iter_mut().for_each(|index| index.remove(key, &old));
        Some(old)
    }
}

impl<K> Index<K> {
    /// The values of an object; none if the function fails on it.
    fn values(&self, key: &Key, object: &K) -> Vec<String> {
        std::panic::catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            metrics::panicked(self.name, key);
            Vec::new()
        })
    }

    fn insert(&mut self, key: &Key, object: &K) {
        for value in self.values(key, object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in self.values(key, object) {
            self.drop_value(key, value);
        }
    }

    fn replace(&mut self, key: &Key, old: &K, new: &K) {
        let (before, after) = (self.values(key, old), self.values(key, new));
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

#[cfg(test)]
mod tests;
