//! One version of one object in a cache: its text for as long as it is the version, and its struct for as long as somebody works with it.
//!
//! A struct of a pod takes four times the room of its text, and the text is there anyway: in the server's process it is the watch cache's own. So a
//! cache keeps texts. An object is read when it comes, because indexes and handlers want to know what is in it, and when somebody asks for it; the
//! structs of the last [`STRUCTS`] of them are kept, and shared by all who ask, until they were not asked for in two turns of [`COOLING`]. A
//! controller at work finds what it works with; a cluster in which nothing happens holds no structs.
//!
//! The structs that are kept stand in a ring, oldest first. Who has to go is asked whether it was used since it was asked last, and if so it stands
//! in line once more; so a look at everything does not drive out what is in use.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{Original, Undecodable};
use machinery::selector::LabelSelector;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Cached, Key};

/// How many structs a cache keeps beside texts.
pub(super) const STRUCTS: usize = 4_096;
/// After a struct was not asked for so long, and at most twice as long, it goes.
pub(super) const COOLING: Duration = Duration::from_secs(10);

/// An object on its way into a cache.
pub enum Item<K> {
    /// As a struct, which is kept.
    Struct(Arc<K>),
    /// As a text, which is kept, and how to read it.
    Text(Original, Read<K>),
}

/// Makes a struct of a text.
pub type Read<K> = fn(&Original) -> Result<K, Undecodable>;

impl<K: Cached> Item<K> {
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Struct(object) => Key::of(object.meta()),
            Self::Text(original, _) => Key::new(original.namespace(), original.name()),
        }
    }

    pub(crate) fn revision(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Struct(object) => object.meta().resource_version.as_deref().map(Cow::Borrowed),
            Self::Text(original, _) => Some(original.revision()),
        }
    }

    /// The struct, whether it is kept or not.
    pub(super) fn read(&self) -> Result<Arc<K>, Undecodable> {
        match self {
            Self::Struct(object) => Ok(object.clone()),
            Self::Text(original, read) => read(original).map(Arc::new),
        }
    }
}

impl<K> Clone for Item<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Struct(object) => Self::Struct(object.clone()),
            Self::Text(original, read) => Self::Text(original.clone(), *read),
        }
    }
}

impl<K: Cached> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({})", self.key())
    }
}

pub(super) struct Slot<K> {
    /// Where there is none, the struct stays.
    text: Option<(Original, Read<K>)>,
    object: Mutex<Option<Arc<K>>>,
    /// Asked for since the ring looked last.
    used: AtomicBool,
}

impl<K: Cached> Slot<K> {
    /// Of an object that was read just now.
    pub(super) fn new(item: Item<K>, object: Arc<K>, ring: &Ring<K>) -> Arc<Self> {
        let text = match item {
            Item::Struct(_) => None,
            Item::Text(original, read) => Some((original, read)),
        };
        let slot = Arc::new(Self { text, object: Mutex::new(Some(object)), used: AtomicBool::new(false) });
        if slot.text.is_some() {
            ring.push(&slot);
        }
        slot
    }

    /// The struct. If it has to be read it is kept, for others and for later.
    pub(super) fn get(self: &Arc<Self>, ring: &Ring<K>) -> Arc<K> {
        self.used.store(true, Relaxed);
        let read = match self.known() {
            Ok(object) => return object,
            Err((original, read)) => self.decode(original, *read),
        };
        let mut object = self.object.lock();
        // Somebody may have read it at the same time.
        let kept = object.get_or_insert_with(|| read.clone()).clone();
        let is_ours = Arc::ptr_eq(&kept, &read);
        drop(object);
        if is_ours {
            ring.push(self);
        }
        kept
    }

    /// The struct. If it has to be read it is not kept, and a look is no reason to keep it.
    pub(super) fn peek(&self) -> Arc<K> {
        self.known().unwrap_or_else(|(original, read)| self.decode(original, *read))
    }

    fn known(&self) -> Result<Arc<K>, &(Original, Read<K>)> {
        if let Some(object) = &*self.object.lock() {
            return Ok(object.clone());
        }
        Err(self.text.as_ref().expect("a slot without a text keeps its struct"))
    }

    fn decode(&self, original: &Original, read: Read<K>) -> Arc<K> {
        Arc::new(read(original).expect("reading is the same each time, and it was read when it came"))
    }

    fn cool(&self) {
        let object = self.object.lock().take();
        drop(object);
    }

    pub(super) fn is_selected(&self, by: &LabelSelector) -> bool {
        match &self.text {
            Some((original, _)) => original.is_selected(by),
            None => {
                let object = self.peek();
                let labels = object.meta().labels.as_ref();
                by.matches(|key| labels?.get(key).map(String::as_str))
            }
        }
    }

    pub(super) fn is_at(&self, revision: Option<&str>) -> bool {
        match &self.text {
            Some((original, _)) => Some(&*original.revision()) == revision,
            None => self.peek().meta().resource_version.as_deref() == revision,
        }
    }

    /// Whether it is a version of an object with another uid than this.
    pub(super) fn is_another_than(&self, uid: &str) -> bool {
        match &self.text {
            Some((original, _)) => original.uid() != uid,
            None => self.peek().meta().uid.as_ref().is_some_and(|known| known != uid),
        }
    }
}

/// The structs that are kept beside texts, oldest first.
pub(super) struct Ring<K> {
    slots: Mutex<VecDeque<Weak<Slot<K>>>>,
    filled: Notify,
}

impl<K> Default for Ring<K> {
    fn default() -> Self {
        Self { slots: Mutex::default(), filled: Notify::new() }
    }
}

impl<K: Cached> Ring<K> {
    fn push(&self, slot: &Arc<Slot<K>>) {
        let mut slots = self.slots.lock();
        if slots.is_empty() {
            self.filled.notify_one();
        }
        slots.push_back(Arc::downgrade(slot));
        while slots.len() > STRUCTS
            && let Some(oldest) = slots.pop_front()
        {
            match oldest.upgrade() {
                // It is no longer a version of anything.
                None => {}
                Some(slot) if slot.used.swap(false, Relaxed) => slots.push_back(oldest),
                Some(slot) => slot.cool(),
            }
        }
    }

    /// Lets go of structs that nobody asks for. While there are none, it sleeps.
    pub(super) async fn cool(&self) {
        loop {
            if self.slots.lock().is_empty() {
                self.filled.notified().await;
            }
            tokio::time::sleep(COOLING).await;
            self.age();
        }
    }

    /// Lets go of those that were not used since the last turn.
    pub(super) fn age(&self) {
        let mut slots = std::mem::take(&mut *self.slots.lock());
        slots.retain(|slot| match slot.upgrade() {
            None => false,
            Some(slot) if slot.used.swap(false, Relaxed) => true,
            Some(slot) => {
                slot.cool();
                false
            }
        });
        let mut now = self.slots.lock();
        slots.append(&mut now);
        *now = slots;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.lock().len()
    }
}
