//! What brings a controller its turns: the queue, the caches that it reads, and which keys a change in one of them concerns.
//!
//! A folder's `start` names its caches where it makes its reconciler, one field after the other, and hands the whole to [`Inputs::run`]. That every
//! cache is full before the first turn is seen to here, so that no folder can forget one: half a cache looks like a cluster in which the other half is gone.

use client::Kind;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use informer::{Cached, Change, Filter, Informer, Key, Reconciler, WorkQueue};

use crate::context::Context;

/// A controller's queue and caches, until it runs.
pub struct Inputs {
    context: Context,
    pub queue: WorkQueue<Key>,
    filling: Vec<BoxFuture<'static, ()>>,
}

impl Inputs {
    pub(crate) fn new(context: Context, queue: WorkQueue<Key>) -> Self {
        Self { context, queue, filling: Vec::new() }
    }

    /// All objects of a kind, to be read.
    pub fn read<K: Kind>(&mut self) -> Informer<K> {
        self.read_some(Filter::default())
    }

    /// The objects that pass a filter, to be read.
    pub fn read_some<K: Kind>(&mut self, filter: Filter) -> Informer<K> {
        let informer = self.context.informers.filtered(filter);
        self.fill(&informer);
        informer
    }

    /// All objects of a kind, to be read; a change of one brings turns for the keys that the function names.
    pub fn watch<K: Kind, I: IntoIterator<Item = Key>>(
        &mut self,
        keys: impl Fn(&Change<K>) -> I + Send + Sync + 'static,
    ) -> Informer<K> {
        self.watch_some(Filter::default(), keys)
    }

    /// As [`Inputs::watch`], of the objects that pass a filter.
    pub fn watch_some<K: Kind, I: IntoIterator<Item = Key>>(
        &mut self,
        filter: Filter,
        keys: impl Fn(&Change<K>) -> I + Send + Sync + 'static,
    ) -> Informer<K> {
        let informer = self.read_some(filter);
        self.feed(&informer, keys);
        informer
    }

    /// Has changes in a cache that is read already bring turns.
    pub fn feed<K: Cached, I: IntoIterator<Item = Key>>(
        &self,
        informer: &Informer<K>,
        keys: impl Fn(&Change<K>) -> I + Send + Sync + 'static,
    ) {
        informer::feed(informer, &self.queue, keys);
    }

    /// Has the first turn wait for a cache that was made elsewhere.
    pub fn fill<K: Cached>(&mut self, informer: &Informer<K>) {
        let informer = informer.clone();
        self.filling.push(async move { informer.synced().await }.boxed());
    }

    /// Waits until every cache is full.
    pub async fn filled(&mut self) {
        join_all(std::mem::take(&mut self.filling)).await;
    }

    /// Works on the queue until the end, once every cache is full.
    pub async fn run<R: Reconciler>(mut self, reconciler: R, workers: usize) {
        self.filled().await;
        self.context.run(reconciler, self.queue, workers).await;
    }
}

/// The key of the object that changed, whatever became of it.
pub fn changed<K: Cached>(change: &Change<K>) -> [Key; 1] {
    [Key::of(change.object().meta())]
}

/// The key of the object that changed, unless it is gone.
pub fn present<K: Cached>(change: &Change<K>) -> Option<Key> {
    change.after().map(|object| Key::of(object.meta()))
}
