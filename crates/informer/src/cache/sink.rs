//! A cache of any kind, for the reflector: it moves objects without knowing what they are, so one compiled copy of it serves all kinds.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use client::Undecodable;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Item, Phase, Shared};
use crate::{Cached, Key};

/// An [`Item`] of whatever kind, on its way.
pub(crate) trait Entry: Any + Send + Sync {
    fn key(&self) -> Key;

    fn revision(&self) -> Option<Cow<'_, str>>;
}

impl<K: Cached> Entry for Item<K> {
    fn key(&self) -> Key {
        self.key()
    }

    fn revision(&self) -> Option<Cow<'_, str>> {
        self.revision()
    }
}

/// What the reflector tells a cache. Each is said where [`Shared`] does it.
pub(crate) trait Sink: Send + Sync {
    fn set_phase(&self, phase: Phase);

    fn has_synced(&self) -> bool;

    fn apply(&self, entry: Arc<dyn Entry>) -> Option<Undecodable>;

    fn remove(&self, entry: Arc<dyn Entry>);

    fn set_aside(&self, object: Undecodable) -> Option<Undecodable>;

    fn remove_unread(&self, object: &Undecodable);

    fn replace(&self, all: Vec<Arc<dyn Entry>>, undecodable: Vec<Undecodable>) -> BoxFuture<'_, Vec<Undecodable>>;

    fn cool(&self) -> BoxFuture<'_, ()>;
}

impl<K: Cached> Sink for Shared<K> {
    fn set_phase(&self, phase: Phase) {
        self.set_phase(phase);
    }

    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    fn apply(&self, entry: Arc<dyn Entry>) -> Option<Undecodable> {
        self.apply(item(entry))
    }

    fn remove(&self, entry: Arc<dyn Entry>) {
        self.remove(&item(entry));
    }

    fn set_aside(&self, object: Undecodable) -> Option<Undecodable> {
        self.set_aside(object)
    }

    fn remove_unread(&self, object: &Undecodable) {
        self.remove_unread(object);
    }

    fn replace(&self, all: Vec<Arc<dyn Entry>>, undecodable: Vec<Undecodable>) -> BoxFuture<'_, Vec<Undecodable>> {
        self.replace(all.into_iter().map(item).collect(), undecodable).boxed()
    }

    fn cool(&self) -> BoxFuture<'_, ()> {
        self.cool().boxed()
    }
}

fn item<K: Cached>(entry: Arc<dyn Entry>) -> Item<K> {
    let item = (entry as Arc<dyn Any + Send + Sync>).downcast().expect("a cache and its source are of one kind");
    Arc::unwrap_or_clone(item)
}
