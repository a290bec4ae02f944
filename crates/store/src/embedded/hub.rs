//! From the commit to the watchers: the most recent events, and a bounded queue per watcher.
//!
//! Everything here happens under one short lock, which is what makes history and live events meet without a seam: a
//! watcher attaches between two publications, never during one. The writer never waits for a watcher; one whose queue is
//! full is let go and learns of it once it has read what it was sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::memory::Committed;
use crate::{Event, Revision};

/// Events kept at hand, so that a watcher that is a little behind needs no file.
const RECENT: usize = 4096;
/// How many bytes of keys and values they may keep alive.
const RECENT_BYTES: usize = 4 << 20;

/// The events' way out.
#[derive(Debug)]
pub(super) struct Hub {
    inner: Mutex<Inner>,
    queue: usize,
}

#[derive(Debug)]
struct Inner {
    /// The latest revision published.
    revision: Revision,
    /// The latest events, without holes, up to `revision`.
    recent: VecDeque<Arc<Event>>,
    recent_bytes: usize,
    /// Watchers by prefix. Looked up once per length of prefix that anyone watches, not once per watcher.
    watchers: FxHashMap<Arc<[u8]>, Vec<Watcher>>,
    lengths: BTreeMap<usize, usize>,
    next_id: u64,
    closed: bool,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    after: Revision,
    queue: mpsc::Sender<Arc<Event>>,
    lagged: Arc<AtomicBool>,
}

/// How an attempt to attach ended.
pub(super) enum Attach {
    /// Events from now on come through here.
    Live(Subscription),
    /// The watcher wants older events than are at hand; it has to read files, up to this revision at first.
    Behind(Revision),
    /// There will be no further event.
    Closed,
}

impl Hub {
    /// Starts after `revision`, with watchers' queues of the given length.
    pub(super) fn new(revision: Revision, queue: usize) -> Self {
        let inner = Inner {
            revision,
            recent: VecDeque::new(),
            recent_bytes: 0,
            watchers: FxHashMap::default(),
            lengths: BTreeMap::new(),
            next_id: 0,
            closed: false,
        };
        Self { inner: Mutex::new(inner), queue }
    }

    /// Hands durable changes, in order, to whom they concern.
    pub(super) fn publish(&self, changes: &[Committed]) {
        let mut inner = self.inner.lock();
        for Committed { event, .. } in changes {
            inner.revision = event.revision;
            inner.deliver(event);
            inner.remember(event);
        }
    }

    /// Joins the live events under `prefix`, if all after `after` are at hand.
    pub(super) fn attach(self: &Arc<Self>, prefix: &str, after: Revision) -> Attach {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Attach::Closed;
        }
        if after < inner.revision - inner.recent.len() as u64 {
            return Attach::Behind(inner.revision);
        }
        let newer = inner.recent.iter().filter(|e| e.revision > after && e.key.starts_with(prefix));
        let backlog = newer.cloned().collect();
        let (sender, receiver) = mpsc::channel(self.queue);
        let lagged = Arc::new(AtomicBool::new(false));
        let prefix: Arc<[u8]> = Arc::from(prefix.as_bytes());
        let id = inner.next_id;
        inner.next_id += 1;
        let watcher = Watcher { id, after, queue: sender, lagged: Arc::clone(&lagged) };
        inner.watchers.entry(Arc::clone(&prefix)).or_default().push(watcher);
        *inner.lengths.entry(prefix.len()).or_default() += 1;
        Attach::Live(Subscription { hub: Arc::clone(self), prefix, id, backlog, receiver, lagged })
    }

    /// The events after `after` up to `upto`, if they are all at hand.
    pub(super) fn recent(&self, after: Revision, upto: Revision) -> Option<Vec<Arc<Event>>> {
        let inner = self.inner.lock();
        let oldest = inner.revision - inner.recent.len() as u64;
        let wanted = inner.recent.iter().filter(|e| e.revision > after && e.revision <= upto);
        (after >= oldest && upto <= inner.revision).then(|| wanted.cloned().collect())
    }

    pub(super) fn watchers(&self) -> usize {
        self.inner.lock().lengths.values().sum()
    }

    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.watchers.clear();
        inner.lengths.clear();
        inner.recent.clear();
    }

    fn detach(&self, prefix: &[u8], id: u64) {
        let mut inner = self.inner.lock();
        let Some(watchers) = inner.watchers.get_mut(prefix) else { return };
        let before = watchers.len();
        watchers.retain(|w| w.id != id);
        let gone = before - watchers.len();
        if watchers.is_empty() {
            inner.watchers.remove(prefix);
        }
        inner.forget(prefix.len(), gone);
    }
}

impl Inner {
    fn deliver(&mut self, event: &Arc<Event>) {
        let key = event.key.as_bytes();
        let mut let_go = Vec::new();
        for (&length, _) in self.lengths.range(..=key.len()) {
            let Some(watchers) = self.watchers.get_mut(&key[..length]) else { continue };
            let before = watchers.len();
            watchers.retain(|w| w.offer(event));
            if watchers.len() < before {
                let_go.push((length, before - watchers.len()));
            }
        }
        for (length, count) in let_go {
            if self.watchers.get(&key[..length]).is_some_and(Vec::is_empty) {
                self.watchers.remove(&key[..length]);
            }
            self.forget(length, count);
        }
    }

    fn forget(&mut self, length: usize, count: usize) {
        if let Some(left) = self.lengths.get_mut(&length) {
            *left -= count;
            if *left == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    fn remember(&mut self, event: &Arc<Event>) {
        self.recent_bytes += size(event);
        self.recent.push_back(Arc::clone(event));
        while self.recent.len() > RECENT || self.recent_bytes > RECENT_BYTES {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.recent_bytes -= size(&oldest);
        }
    }
}

impl Watcher {
    /// Whether the watcher stays.
    fn offer(&self, event: &Arc<Event>) -> bool {
        if event.revision <= self.after {
            return true;
        }
        match self.queue.try_send(Arc::clone(event)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lagged.store(true, Ordering::Release);
                false
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

/// A watcher's end of the live events; dropping it ends the watch.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    prefix: Arc<[u8]>,
    id: u64,
    /// Events from before it attached.
    backlog: VecDeque<Arc<Event>>,
    receiver: mpsc::Receiver<Arc<Event>>,
    lagged: Arc<AtomicBool>,
}

impl Subscription {
    /// The next event; `None` when the hub let go of this watcher.
    pub(super) async fn next(&mut self) -> Option<Arc<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Some(event),
            None => self.receiver.recv().await,
        }
    }

    /// Was it let go for being too slow, rather than because the store closed?
    pub(super) fn lagged(&self) -> bool {
        self.lagged.load(Ordering::Acquire)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.detach(&self.prefix, self.id);
    }
}

fn size(event: &Event) -> usize {
    event.key.len() + event.value.as_ref().map_or(0, |v| v.len()) + event.previous.as_ref().map_or(0, |p| p.value.len())
}
