//! A work queue: each item at most once in it, each item with at most one worker, failures retried later and later.
//!
//! An item added while a worker has it waits until the worker is done and is then handed out again: what changed meanwhile is not lost, and two workers
//! never have the same item. Delayed items lie in a heap; there is no task behind the queue, the waiting workers themselves sleep until the next is due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashSet};
use tokio::sync::Notify;

use crate::Clock;
use crate::backoff::exponential;
use crate::metrics::QueueMetrics;

/// The first retry of an item comes after this.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// No retry of an item waits longer.
const MAX_DELAY: Duration = Duration::from_secs(1000);
/// All retries together: one every this often, after a burst.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const RETRY_BURST: u32 = 100;

/// What can be queued.
pub trait Item: Clone + Eq + Hash + Ord + fmt::Debug + Send + 'static {}
impl<T: Clone + Eq + Hash + Ord + fmt::Debug + Send + 'static> Item for T {}

/// The queue. Cheap to clone.
pub struct WorkQueue<T: Item> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    wake: Notify,
    clock: Arc<dyn Clock>,
    base: Duration,
    cap: Duration,
    metrics: Arc<QueueMetrics>,
}

struct State<T> {
    ready: VecDeque<T>,
    /// Everything that is to be worked on, with when it was asked for: what is in `ready`, and what was added while a worker had it.
    dirty: HashMap<T, Duration, FxBuildHasher>,
    working: FxHashSet<T>,
    /// The heap may hold stale entries; `due` is the truth.
    delayed: BinaryHeap<Reverse<(Duration, T)>>,
    due: HashMap<T, Duration, FxBuildHasher>,
    failures: HashMap<T, u32, FxBuildHasher>,
    bucket: Bucket,
    closed: bool,
}

/// Spreads the retries of many items over time.
#[derive(Default)]
struct Bucket {
    /// When the bucket would be full again.
    full_at: Duration,
}

impl Bucket {
    /// How long the next retry has to wait.
    fn take(&mut self, now: Duration) -> Duration {
        self.full_at = self.full_at.max(now) + RETRY_INTERVAL;
        (self.full_at - now).saturating_sub(RETRY_INTERVAL * RETRY_BURST)
    }
}

impl<T: Item> WorkQueue<T> {
    /// An empty queue; the name is for metrics.
    pub fn new(name: &str, clock: Arc<dyn Clock>) -> Self {
        Self::with_delays(name, clock, BASE_DELAY, MAX_DELAY)
    }

    /// An empty queue whose retries wait `base`, then twice as long, up to `cap`.
    pub fn with_delays(name: &str, clock: Arc<dyn Clock>, base: Duration, cap: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::default(),
            working: FxHashSet::default(),
            delayed: BinaryHeap::new(),
            due: HashMap::default(),
            failures: HashMap::default(),
            bucket: Bucket::default(),
            closed: false,
        };
        let metrics = QueueMetrics::register(name, clock.clone());
        Self { inner: Arc::new(Inner { state: Mutex::new(state), wake: Notify::new(), clock, base, cap, metrics }) }
    }

    /// Asks for work on an item, now.
    pub fn add(&self, item: T) {
        let now = self.inner.clock.monotonic();
        let mut state = self.inner.state.lock();
        if state.add(item, now) {
            self.inner.metrics.adds.fetch_add(1, Relaxed);
            self.inner.metrics.depth.store(state.ready.len() as u64, Relaxed);
            drop(state);
            self.inner.wake.notify_one();
        }
    }

    /// Asks for work on an item after a while. Of several delays the shortest holds.
    pub fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        let at = self.inner.clock.monotonic().saturating_add(delay);
        let mut state = self.inner.state.lock();
        if state.closed || state.due.get(&item).is_some_and(|known| *known <= at) {
            return;
        }
        state.due.insert(item.clone(), at);
        state.delayed.push(Reverse((at, item)));
        drop(state);
        self.inner.wake.notify_one();
    }

    /// Asks for work on an item after a failure: later after every further one.
    pub fn add_rate_limited(&self, item: T) {
        let now = self.inner.clock.monotonic();
        let delay = {
            let mut state = self.inner.state.lock();
            let shared = state.bucket.take(now);
            let failures = state.failures.entry(item.clone()).or_default();
            let own = exponential(self.inner.base, self.inner.cap, *failures);
            *failures += 1;
            own.max(shared)
        };
        self.inner.metrics.retries.fetch_add(1, Relaxed);
        self.add_after(item, delay);
    }

    /// The item's failures are history.
    pub fn forget(&self, item: &T) {
        self.inner.state.lock().failures.remove(item);
    }

    /// How often the item failed in a row.
    pub fn failures(&self, item: &T) -> u32 {
        self.inner.state.lock().failures.get(item).copied().unwrap_or_default()
    }

    /// How many items wait for a worker.
    pub fn len(&self) -> usize {
        self.inner.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next item, when there is one; `None` once the queue is shut down.
    pub async fn take(&self) -> Option<Taken<T>> {
        loop {
            let now = self.inner.clock.monotonic();
            let next_due = {
                let mut state = self.inner.state.lock();
                if state.closed {
                    drop(state);
                    // The word goes on from worker to worker.
                    self.inner.wake.notify_one();
                    return None;
                }
                state.promote(now);
                if let Some(item) = state.ready.pop_front() {
                    let asked = state.dirty.remove(&item).unwrap_or(now);
                    state.working.insert(item.clone());
                    self.inner.metrics.depth.store(state.ready.len() as u64, Relaxed);
                    self.inner.metrics.begun(now, now.saturating_sub(asked));
                    let more = !state.ready.is_empty() || !state.delayed.is_empty();
                    drop(state);
                    if more {
                        // Somebody else must look after what is left while this worker works.
                        self.inner.wake.notify_one();
                    }
                    return Some(Taken { queue: self.clone(), item, since: now });
                }
                state.delayed.peek().map(|Reverse((at, _))| *at)
            };
            match next_due {
                None => self.inner.wake.notified().await,
                Some(at) => tokio::select! {
                    () = self.inner.wake.notified() => {}
                    () = self.inner.clock.sleep(at.saturating_sub(now)) => {}
                },
            }
        }
    }

    /// Hands out nothing more.
    pub fn shut_down(&self) {
        self.inner.state.lock().closed = true;
        self.inner.wake.notify_waiters();
        self.inner.wake.notify_one();
    }

    fn done(&self, item: &T) {
        let mut state = self.inner.state.lock();
        state.working.remove(item);
        if state.dirty.contains_key(item) {
            state.ready.push_back(item.clone());
            drop(state);
            self.inner.wake.notify_one();
        }
    }
}

impl<T: Item> State<T> {
    /// Whether it was not asked for already.
    fn add(&mut self, item: T, now: Duration) -> bool {
        if self.closed || self.dirty.contains_key(&item) {
            return false;
        }
        self.dirty.insert(item.clone(), now);
        if !self.working.contains(&item) {
            self.ready.push_back(item);
        }
        true
    }

    fn promote(&mut self, now: Duration) {
        while let Some(Reverse((at, _))) = self.delayed.peek()
            && *at <= now
        {
            let Some(Reverse((at, item))) = self.delayed.pop() else { break };
            if self.due.get(&item) == Some(&at) {
                self.due.remove(&item);
                self.add(item, now);
            }
        }
    }
}

impl<T: Item> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T: Item> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkQueue({}, {} ready)", self.inner.metrics.name, self.len())
    }
}

/// An item in a worker's hands; dropping it says that the worker is done.
#[derive(Debug)]
pub struct Taken<T: Item> {
    queue: WorkQueue<T>,
    item: T,
    since: Duration,
}

impl<T: Item> Taken<T> {
    pub fn item(&self) -> &T {
        &self.item
    }
}

impl<T: Item> Drop for Taken<T> {
    fn drop(&mut self) {
        self.queue.inner.metrics.ended(self.since);
        self.queue.done(&self.item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Fake;
    use futures::FutureExt;
    use jiff::Timestamp;

    fn queue() -> (WorkQueue<u32>, Arc<Fake>) {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        (WorkQueue::new("test", clock.clone()), clock)
    }

    /// What can be taken without waiting.
    fn now(queue: &WorkQueue<u32>) -> Option<Taken<u32>> {
        queue.take().now_or_never().flatten()
    }

    #[tokio::test]
    async fn an_item_is_queued_once_and_has_one_worker_at_a_time() {
        let (queue, _) = queue();
        queue.add(1);
        queue.add(1);
        queue.add(2);
        let first = now(&queue).expect("1 is ready");
        assert_eq!(*first.item(), 1);
        queue.add(1);
        let second = now(&queue).expect("2 is ready");
        assert_eq!(*second.item(), 2);
        assert!(now(&queue).is_none(), "1 is still in a worker's hands");
        drop(first);
        assert_eq!(now(&queue).map(|taken| *taken.item()), Some(1), "what was added meanwhile is not lost");
        assert!(now(&queue).is_none());
    }

    #[tokio::test]
    async fn of_several_delays_the_shortest_holds() {
        let (queue, clock) = queue();
        queue.add_after(1, Duration::from_secs(10));
        queue.add_after(1, Duration::from_secs(3));
        queue.add_after(1, Duration::from_secs(20));
        assert!(now(&queue).is_none());
        clock.advance(Duration::from_secs(3));
        assert_eq!(now(&queue).map(|taken| *taken.item()), Some(1));
        clock.advance(Duration::from_secs(60));
        assert!(now(&queue).is_none(), "the longer delays were given up");
    }

    #[tokio::test]
    async fn failures_wait_longer_each_time_until_forgotten() {
        let (queue, clock) = queue();
        for delay in [5, 10, 20, 40] {
            queue.add_rate_limited(7);
            clock.advance(Duration::from_millis(delay - 1));
            assert!(now(&queue).is_none());
            clock.advance(Duration::from_millis(1));
            assert!(now(&queue).is_some());
        }
        assert_eq!(queue.failures(&7), 4);
        queue.forget(&7);
        assert_eq!(queue.failures(&7), 0);
    }

    #[tokio::test]
    async fn many_failures_at_once_are_spread_out() {
        let (queue, clock) = queue();
        for item in 0..102 {
            queue.add_rate_limited(item);
        }
        clock.advance(Duration::from_millis(5));
        let mut taken = 0;
        while now(&queue).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 100, "a burst passes");
        clock.advance(Duration::from_millis(195));
        assert!(now(&queue).is_some() && now(&queue).is_some(), "the others come one by one");
    }

    #[tokio::test]
    async fn workers_wake_for_delayed_items_and_for_the_end() {
        let (queue, clock) = queue();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    while let Some(item) = queue.take().await {
                        taken.push(*item.item());
                    }
                    taken
                })
            })
            .collect();
        queue.add_after(1, Duration::from_secs(1));
        queue.add_after(2, Duration::from_secs(2));
        for _ in 0..2 {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            clock.advance(Duration::from_secs(1));
        }
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        queue.shut_down();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.await.expect("workers do not panic"));
        }
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    }
}
