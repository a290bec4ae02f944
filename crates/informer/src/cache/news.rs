//! What becomes of one object, and how handlers are told.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::change::Change;
use super::index::Move;
use super::slot::Slot;
use crate::{Cached, Key, metrics};

pub(super) type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// What becomes of one object. Everything is read before the cache is changed, so that readers do not wait for it, and for handlers again, one at a
/// time, because there may be very many.
pub(super) struct News<K> {
    pub(super) key: Arc<Key>,
    pub(super) old: Option<Arc<Slot<K>>>,
    /// None if it is gone.
    pub(super) new: Option<Arc<Slot<K>>>,
    /// What it changes in each index.
    pub(super) moves: Vec<Move>,
    /// Of what is gone, the last state of all, if it was told.
    pub(super) last: Option<Arc<K>>,
}

impl<K: Cached> News<K> {
    /// Tells the handlers.
    pub(super) fn tell(&self, handlers: &[Handler<K>]) {
        if handlers.is_empty() {
            return;
        }
        match (&self.old, &self.new) {
            (None, None) => {}
            (None, Some(new)) => tell(handlers, &Change::Added(new.peek())),
            (Some(old), None) => {
                tell(handlers, &Change::Deleted(self.last.clone().unwrap_or_else(|| old.peek())));
            }
            (Some(old), Some(new)) => {
                let (old, new) = (old.peek(), new.peek());
                if old.meta().uid == new.meta().uid {
                    tell(handlers, &Change::Modified { old, new });
                } else {
                    // One of the same name took its place.
                    tell(handlers, &Change::Deleted(old));
                    tell(handlers, &Change::Added(new));
                }
            }
        }
    }
}

fn tell<K: Cached>(handlers: &[Handler<K>], change: &Change<K>) {
    for handler in handlers {
        call(handler, change);
    }
}

/// A handler that panics must not take the cache of everybody else with it.
pub(super) fn call<K: Cached>(handler: impl Fn(&Change<K>), change: &Change<K>) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
        // The handler does not say whose it is, the message of the panic does.
        metrics::panicked("an informer's handler", &Key::of(change.object().meta()));
    }
}
