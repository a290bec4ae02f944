//! The loop around every controller: take a key, reconcile it, and decide when to come back.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Cached, Change, Informer, Key, WorkQueue, metrics};

/// When to look at a key again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Done,
    /// After this long, even if nothing changes.
    After(Duration),
}

impl Action {
    /// `After` what is there; `Done` otherwise.
    pub fn after(delay: Option<Duration>) -> Self {
        delay.map_or(Self::Done, Self::After)
    }
}

/// Brings what is to where it should be, one key at a time.
pub trait Reconciler: Send + Sync + 'static {
    /// Why a turn failed.
    type Error: Display + Send + 'static;

    /// Reads the caches, decides and acts. It may be called for any key at any time, and may be cut off between any two instructions.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// The uid of the object behind a key, if the turns are to be seen among the hops of what happened to it.
    fn uid(&self, _key: &Key) -> Option<String> {
        None
    }
}

/// Works on the queue with so many workers until it is stopped. Errors and panics are retried with back-off.
pub async fn run<R: Reconciler>(
    name: &'static str,
    reconciler: Arc<R>,
    queue: WorkQueue<Key>,
    workers: usize,
    stop: CancellationToken,
) {
    work(name, reconciler, queue, workers, stop).await;
}

/// Why a turn failed, of whatever reconciler.
type Failure = Box<dyn Display + Send>;

/// A [`Reconciler`] of whatever kind: the loop around it is compiled once.
trait AnyReconciler: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Action, Failure>>;

    fn uid(&self, key: &Key) -> Option<String>;
}

impl<R: Reconciler> AnyReconciler for R {
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Action, Failure>> {
        Box::pin(async move { Reconciler::reconcile(self, key).await.map_err(|error| Box::new(error) as Failure) })
    }

    fn uid(&self, key: &Key) -> Option<String> {
        Reconciler::uid(self, key)
    }
}

fn work(
    name: &'static str,
    reconciler: Arc<dyn AnyReconciler>,
    queue: WorkQueue<Key>,
    workers: usize,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // A set of tasks, because it takes its workers along when it is dropped: a controller that is cut off must not go on working.
        let mut working = JoinSet::new();
        let label = hops::label(name);
        for _ in 0..workers {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            working.spawn(async move {
                while let Some(taken) = queue.take().await {
                    turn(name, label, &*reconciler, &queue, taken.item()).await;
                }
            });
        }
        stop.cancelled().await;
        queue.shut_down();
        // Workers finish the key they have.
        while working.join_next().await.is_some() {}
    })
}

/// One turn of one key. An error or a panic costs the key a delay that grows, and no other key anything.
async fn turn(name: &str, label: hops::Label, reconciler: &dyn AnyReconciler, queue: &WorkQueue<Key>, key: &Key) {
    let mut hop = hops::start(hops::Hop::Controllers, "reconcile").by(label);
    if hops::export::exports(hops::export::Part::ControlPlane)
        && let Some(uid) = reconciler.uid(key)
    {
        hop = hop.after(hops::export::cause_of(&uid));
    }
    let work = AssertUnwindSafe(reconciler.reconcile(key)).catch_unwind();
    let (outcome, decided) = hops::turn(hop.context(), work).await;
    match outcome {
        Ok(Ok(Action::Done)) => queue.forget(key),
        Ok(Ok(Action::After(delay))) => {
            queue.forget(key);
            queue.add_after(key.clone(), delay);
        }
        Ok(Err(error)) => {
            tracing::debug!(controller = name, %key, %error, "reconciling failed; trying again");
            queue.add_rate_limited(key.clone());
        }
        Err(_) => {
            metrics::panicked(name, key);
            queue.add_rate_limited(key.clone());
        }
    }
    if let Some(uid) = reconciler.uid(key) {
        hop.note(decided.note()).end(&uid, "", 0);
    }
}

/// Queues, for every change that an informer tells of, the keys that the function names.
pub fn feed<K: Cached, I: IntoIterator<Item = Key>>(
    informer: &Informer<K>,
    queue: &WorkQueue<Key>,
    keys: impl Fn(&Change<K>) -> I + Send + Sync + 'static,
) {
    let queue = queue.clone();
    informer.subscribe(move |change| keys(change).into_iter().for_each(|key| queue.add(key)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Fake};
    use jiff::Timestamp;
    use parking_lot::Mutex;

    /// Fails, panics, then asks to be called again once.
    struct Stubborn {
        calls: Mutex<u32>,
        done: CancellationToken,
    }

    impl Reconciler for Stubborn {
        type Error = String;

        async fn reconcile(&self, _: &Key) -> Result<Action, String> {
            let call = {
                let mut calls = self.calls.lock();
                *calls += 1;
                *calls
            };
            match call {
                1 => Err("an error".to_owned()),
                2 => panic!("a mistake"),
                3 => Ok(Action::After(Duration::from_secs(30))),
                _ => {
                    self.done.cancel();
                    Ok(Action::Done)
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_retried_and_delays_are_kept() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let queue = WorkQueue::new("stubborn", clock.clone());
        let stop = CancellationToken::new();
        let reconciler = Arc::new(Stubborn { calls: Mutex::new(0), done: stop.clone() });
        queue.add(Key::new("a", "b"));
        let running = tokio::spawn(run("stubborn", reconciler.clone(), queue.clone(), 2, stop));
        while !running.is_finished() {
            // With tokio's time paused this returns once everybody else waits.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Some(next) = clock.next_wake() {
                clock.advance(next);
            }
        }
        assert_eq!(*reconciler.calls.lock(), 4);
        assert!(clock.now() >= Timestamp::from_second(30).expect("in range"));
        assert_eq!(queue.failures(&Key::new("a", "b")), 0);
    }

    /// Panics on one key, fails on another, and works on all others.
    struct Picky(Mutex<Vec<String>>, CancellationToken);

    impl Reconciler for Picky {
        type Error = String;

        async fn reconcile(&self, key: &Key) -> Result<Action, String> {
            match key.name.as_str() {
                "poison" => panic!("a mistake"),
                "broken" => Err("an error".to_owned()),
                name => {
                    let mut done = self.0.lock();
                    done.push(name.to_owned());
                    if done.len() == 100 {
                        self.1.cancel();
                    }
                    Ok(Action::Done)
                }
            }
        }
    }

    /// With a single worker, which a bad key must not keep, and without a clock that moves, so that nobody waits for one.
    #[tokio::test]
    async fn a_key_that_panics_or_fails_delays_no_other_key() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let queue = WorkQueue::new("picky", clock);
        let stop = CancellationToken::new();
        let reconciler = Arc::new(Picky(Mutex::default(), stop.clone()));
        let (poison, broken) = (Key::new("a", "poison"), Key::new("a", "broken"));
        [poison.clone(), broken.clone()].into_iter().for_each(|key| queue.add(key));
        (0..100).for_each(|number| queue.add(Key::new("a", number.to_string())));
        run("picky", reconciler.clone(), queue.clone(), 1, stop).await;
        assert_eq!(reconciler.0.lock().len(), 100);
        assert_eq!((queue.failures(&poison), queue.failures(&broken)), (1, 1), "both are tried again, later");
        assert_eq!(metrics::PANICS.value(&["picky"]) as u32, 1);
    }
}
