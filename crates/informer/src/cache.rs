//! The cache behind an informer and the handle that reads it.
//!
//! What it holds of an object is mostly its text; a struct is made for who asks (`slot.rs`).
//!
//! One task (the reflector) writes; everybody reads. A change is first made in the cache, then passed to the handlers, one after the other, in the
//! order of the changes. So a handler that looks something up never finds less than it was called with.
//!
//! Handlers and indexes are code of others. What panics in them stays with the one object: the handler misses that change, the index that object.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use client::Undecodable;
use machinery::selector::LabelSelector;
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxBuildHasher, FxHashSet};
use tokio::sync::watch;

pub use self::change::Change;
use self::index::{Index, Move};
use self::news::{Handler, News, call};
pub(crate) use self::sink::{Entry, Sink};
pub use self::slot::{Item, Read};
use self::slot::{Ring, STRUCTS, Slot};
use crate::aside::{self, Aside};
use crate::{Cached, Key};

mod change;
mod index;
mod news;
mod sink;
mod slot;

/// So many objects of a list are read before others have their turn.
const TURN: usize = 256;

type FxMap<A, B> = HashMap<A, B, FxBuildHasher>;

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

/// Reads the shared cache of one kind. Cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

/// What the reflector, the readers and the handlers share.
pub(crate) struct Shared<K> {
    objects: RwLock<Objects<K>>,
    ring: Ring<K>,
    /// Held while a change is made and passed on, so that a new handler starts at a point between two changes.
    handlers: Mutex<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
    phase: Mutex<Phase>,
    aside: Aside,
}

struct Objects<K> {
    by_key: FxMap<Arc<Key>, Arc<Slot<K>>>,
    indexes: Vec<Index<K>>,
}

/// The index of [`Informer::by_owner`].
const OWNER: &str = "owner";
/// The index of [`Informer::by_namespace`].
const NAMESPACE: &str = "namespace";

impl<K: Cached> Informer<K> {
    /// An empty one for the objects of a resource. The reflector fills it.
    pub(crate) fn empty(resource: impl Into<String>) -> Self {
        let owner = |object: &K| rules::owners::controller_uid(object.meta()).map(str::to_owned).into_iter().collect();
        let namespace = |object: &K| object.meta().namespace.iter().cloned().collect();
        let indexes = vec![Index::new(OWNER, owner), Index::new(NAMESPACE, namespace)];
        Self {
            shared: Arc::new(Shared {
                objects: RwLock::new(Objects { by_key: FxMap::default(), indexes }),
                ring: Ring::default(),
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
        let slot = self.shared.objects.read().by_key.get(key).cloned();
        slot.map(|slot| slot.get(&self.shared.ring))
    }

    /// Whether there is an object of this name.
    pub fn contains(&self, key: &Key) -> bool {
        self.shared.objects.read().by_key.contains_key(key)
    }

    /// Everything, in no order. Of a kind of which there may be many, [`Informer::each`] needs less memory.
    pub fn list(&self) -> Vec<Arc<K>> {
        // In two steps, as below: what stands in one keeps the cache locked until everything is read.
        let slots = self.shared.objects.read().all();
        self.read(slots)
    }

    /// Everything there is now, in no order, each read when it is its turn and not kept.
    pub fn each(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        let slots = self.shared.objects.read().all();
        slots.into_iter().map(|slot| slot.peek())
    }

    /// The structs of some objects. Of more than half of what is kept none are: they would drive out each other.
    fn read(&self, slots: Vec<Arc<Slot<K>>>) -> Vec<Arc<K>> {
        let kept = slots.len() <= STRUCTS / 2;
        slots.iter().map(|slot| if kept { slot.get(&self.shared.ring) } else { slot.peek() }).collect()
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
    /// users of the shared informer may each ask for it. Not for handlers.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        // Between two changes, of which it would miss one; and readers go on, however long it takes to read everything.
        let _between = self.shared.handlers.lock();
        let slots: Vec<(Arc<Key>, Arc<Slot<K>>)> = {
            let objects = self.shared.objects.read();
            if objects.indexes.iter().any(|index| index.name() == name) {
                return;
            }
            objects.by_key.iter().map(|(key, slot)| (key.clone(), slot.clone())).collect()
        };
        let mut index: Index<K> = Index::new(name, values);
        for (key, slot) in &slots {
            let found = index.weigh(key, None, Some(&slot.peek()));
            index.make(key, found);
        }
        self.shared.objects.write().indexes.push(index);
    }

    /// Everything an index holds under a value.
    ///
    /// # Panics
    /// If no such index was added: that is a mistake in the program, which an empty answer would hide.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let slots = self.shared.objects.read().under(name, value);
        self.read(slots)
    }

    /// As [`Informer::by_index`], each read when it is its turn and not kept.
    ///
    /// # Panics
    /// As [`Informer::by_index`].
    pub fn each_by_index(&self, name: &str, value: &str) -> impl Iterator<Item = Arc<K>> + use<K> {
        let slots = self.shared.objects.read().under(name, value);
        slots.into_iter().map(|slot| slot.peek())
    }

    /// What an index holds under a value and a selector picks; what it does not pick is not read.
    ///
    /// # Panics
    /// As [`Informer::by_index`].
    pub fn select_by_index(&self, name: &str, value: &str, by: &LabelSelector) -> Vec<Arc<K>> {
        let mut slots = self.shared.objects.read().under(name, value);
        slots.retain(|slot| slot.is_selected(by));
        self.read(slots)
    }

    /// Everything in a namespace that a selector picks; what it does not pick is not read.
    pub fn select(&self, namespace: &str, by: &LabelSelector) -> Vec<Arc<K>> {
        self.select_by_index(NAMESPACE, namespace, by)
    }

    /// Everything in a namespace, each read when it is its turn and not kept.
    pub fn each_in(&self, namespace: &str) -> impl Iterator<Item = Arc<K>> + use<K> {
        self.each_by_index(NAMESPACE, namespace)
    }

    /// How many objects an index holds under a value.
    ///
    /// # Panics
    /// As [`Informer::by_index`].
    pub fn count(&self, name: &str, value: &str) -> usize {
        self.shared.objects.read().index(name).count(value)
    }

    /// How many there are in a namespace.
    pub fn count_in(&self, namespace: &str) -> usize {
        self.count(NAMESPACE, namespace)
    }

    /// The values under which an index holds anything, in no order.
    ///
    /// # Panics
    /// As [`Informer::by_index`].
    pub fn index_values(&self, name: &str) -> Vec<String> {
        self.shared.objects.read().index(name).all_values()
    }

    /// Calls the handler for every object there is, then for every change. Handlers run on the informer's task: they must be quick, must not
    /// block, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.lock();
        for object in self.each() {
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

    /// Lets go of structs that nobody asks for.
    pub(crate) async fn cool(&self) {
        self.ring.cool().await;
    }

    /// Takes over an object as the watch tells of it. If it cannot be read it is set aside, and answered if that is news in this process.
    pub(crate) fn apply(&self, item: Item<K>) -> Option<Undecodable> {
        let handlers = self.handlers.lock();
        let key = item.key();
        match self.news(&key, item) {
            Ok(news) => {
                self.aside.heal(&key);
                self.make(&handlers, news.into_iter().collect());
                None
            }
            Err(odd) => self.put_aside(&handlers, odd),
        }
    }

    /// Takes an object out, of which this is the last state.
    pub(crate) fn remove(&self, item: &Item<K>) {
        let handlers = self.handlers.lock();
        let key = item.key();
        self.aside.heal(&key);
        // The event carries the last state of all; whoever never knew the object needs no word of its end.
        if let Some(mut news) = self.end(&key) {
            news.last = item.read().ok();
            self.make(&handlers, vec![news]);
        }
    }

    /// Sets an object aside that cannot be read. It is answered if that is news in this process.
    pub(crate) fn set_aside(&self, object: Undecodable) -> Option<Undecodable> {
        self.put_aside(&self.handlers.lock(), object)
    }

    fn put_aside(&self, handlers: &[Handler<K>], object: Undecodable) -> Option<Undecodable> {
        self.make(handlers, self.end_of_replaced(&object).into_iter().collect());
        self.aside.put(object.clone()).then_some(object)
    }

    /// An object that cannot be read is gone: the last state known is the last one that could be read.
    pub(crate) fn remove_unread(&self, object: &Undecodable) {
        let handlers = self.handlers.lock();
        let key = aside::key(object);
        self.aside.heal(&key);
        self.make(&handlers, self.end(&key).into_iter().collect());
    }

    /// Makes the cache hold exactly these objects, telling only of the differences. What is there and cannot be read stays as it was known; those
    /// of them that are news are answered.
    ///
    /// Those who work with the cache see everything change at once, and are told then. As long as nobody does, it fills in turns, so that
    /// filling it takes no more memory than having it.
    pub(crate) async fn replace(&self, all: Vec<Item<K>>, mut undecodable: Vec<Undecodable>) -> Vec<Undecodable> {
        let mut news = self.ends(&all, &undecodable);
        for (at, item) in all.into_iter().enumerate() {
            match self.news(&item.key(), item) {
                Ok(one) => news.extend(one),
                Err(odd) => undecodable.push(odd),
            }
            if at % TURN == TURN - 1 {
                if !self.has_synced() {
                    self.make(&self.handlers.lock(), std::mem::take(&mut news));
                }
                tokio::task::yield_now().await;
            }
        }
        let handlers = self.handlers.lock();
        news.extend(undecodable.iter().filter_map(|object| self.end_of_replaced(object)));
        self.make(&handlers, news);
        self.aside.keep_only(&undecodable);
        let news = undecodable.into_iter().filter(|object| self.aside.put(object.clone())).collect();
        self.synced.send_replace(true);
        news
    }

    /// The end of everything that is not among these.
    fn ends(&self, all: &[Item<K>], undecodable: &[Undecodable]) -> Vec<News<K>> {
        if self.objects.read().by_key.is_empty() {
            return Vec::new();
        }
        let mut keep: FxHashSet<Key> = all.iter().map(Item::key).collect();
        keep.extend(undecodable.iter().map(aside::key));
        let known: Vec<Arc<Key>> = self.objects.read().by_key.keys().cloned().collect();
        known.iter().filter(|key| !keep.contains(&***key)).filter_map(|key| self.end(key)).collect()
    }

    /// What is news of an object: nothing if it is known as it is.
    fn news(&self, key: &Key, item: Item<K>) -> Result<Option<News<K>>, Undecodable> {
        let known = self.known(key);
        if known.as_ref().is_some_and(|(_, slot)| slot.is_at(item.revision().as_deref())) {
            return Ok(None);
        }
        let object = item.read()?;
        let new = Slot::new(item, object.clone(), &self.ring);
        let (key, old) = match known {
            Some((key, slot)) => (key, Some(slot)),
            None => (Arc::new(key.clone()), None),
        };
        let before = old.as_ref().map(|slot| slot.peek());
        let moves = self.objects.read().moves(&key, before.as_deref(), Some(&object));
        Ok(Some(News { key, old, new: Some(new), moves, last: None }))
    }

    /// That an object is gone, if it is known.
    fn end(&self, key: &Key) -> Option<News<K>> {
        let (key, old) = self.known(key)?;
        let before = old.peek();
        let moves = self.objects.read().moves(&key, Some(&before), None);
        Some(News { key, old: Some(old), new: None, moves, last: None })
    }

    /// The end of what has the name of an object that cannot be read and is another one: it is gone for certain.
    fn end_of_replaced(&self, object: &Undecodable) -> Option<News<K>> {
        let uid = object.object.uid.as_deref().filter(|uid| !uid.is_empty())?;
        let key = aside::key(object);
        let (_, slot) = self.known(&key)?;
        if slot.is_another_than(uid) { self.end(&key) } else { None }
    }

    fn known(&self, key: &Key) -> Option<(Arc<Key>, Arc<Slot<K>>)> {
        let objects = self.objects.read();
        objects.by_key.get_key_value(key).map(|(key, slot)| (key.clone(), slot.clone()))
    }

    /// Changes the cache, everything at once, then tells of it.
    fn make(&self, handlers: &[Handler<K>], mut news: Vec<News<K>>) {
        if news.is_empty() {
            return;
        }
        {
            let mut objects = self.objects.write();
            news.iter_mut().for_each(|news| objects.make(news));
        }
        news.iter().for_each(|news| news.tell(handlers));
    }
}

impl<K: Cached> Objects<K> {
    fn all(&self) -> Vec<Arc<Slot<K>>> {
        self.by_key.values().cloned().collect()
    }

    fn under(&self, index: &str, value: &str) -> Vec<Arc<Slot<K>>> {
        self.index(index).under(value).filter_map(|key| self.by_key.get(key).cloned()).collect()
    }

    fn index(&self, name: &str) -> &Index<K> {
        self.indexes.iter().find(|index| index.name() == name).expect("indexes are added before they are used")
    }

    fn moves(&self, key: &Key, old: Option<&K>, new: Option<&K>) -> Vec<Move> {
        self.indexes.iter().map(|index| index.weigh(key, old, new)).collect()
    }

    fn make(&mut self, news: &mut News<K>) {
        let known = self.by_key.get(&*news.key).cloned();
        let is_known = known.as_ref().map(Arc::as_ptr) == news.old.as_ref().map(Arc::as_ptr);
        // An index may have been added since, or a list may name an object twice.
        if !is_known || news.moves.len() != self.indexes.len() {
            let (old, new) = (known.as_ref().map(|slot| slot.peek()), news.new.as_ref().map(|slot| slot.peek()));
            news.moves = self.moves(&news.key, old.as_deref(), new.as_deref());
            news.old = known;
        }
        for (index, change) in self.indexes.iter_mut().zip(std::mem::take(&mut news.moves)) {
            index.make(&news.key, change);
        }
        match &news.new {
            Some(slot) => self.by_key.insert(news.key.clone(), slot.clone()),
            None => self.by_key.remove(&*news.key),
        };
    }
}

#[cfg(test)]
mod tests;
