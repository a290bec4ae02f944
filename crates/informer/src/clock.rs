//! Time as something that is handed in: the machine's own, or a test's that moves only when the test moves it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A source of time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Wall-clock time, as written into objects. It may jump.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary beginning; it never goes back. Deadlines inside a process are measured with it.
    fn monotonic(&self) -> Duration;

    /// Resolves once this much monotonic time has gone by.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

#[derive(Debug)]
pub struct Real {
    start: Instant,
}

impl Real {
    /// A clock whose monotonic time starts now.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self { start: Instant::now() })
    }
}

impl Clock for Real {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

/// A clock that stands still until [`Fake::advance`] moves it.
#[derive(Debug)]
pub struct Fake {
    inner: Mutex<FakeInner>,
}

#[derive(Debug)]
struct FakeInner {
    wall: Timestamp,
    monotonic: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl Fake {
    /// A clock that shows this time.
    pub fn at(wall: Timestamp) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new(FakeInner { wall, monotonic: Duration::ZERO, sleepers: Vec::new() }) })
    }

    /// Moves both times forward and wakes whoever slept long enough, the earliest first.
    pub fn advance(&self, by: Duration) {
        let mut inner = self.inner.lock();
        inner.wall = add(inner.wall, by);
        inner.monotonic += by;
        let now = inner.monotonic;
        let mut due: Vec<_> = inner.sleepers.extract_if(.., |(deadline, _)| *deadline <= now).collect();
        due.sort_by_key(|(deadline, _)| *deadline);
        drop(inner);
        for (_, waker) in due {
            // A sleeper that was dropped in the meantime needs no waking.
            let _ = waker.send(());
        }
    }

    /// Moves the wall clock alone, as an administrator or NTP may do.
    pub fn jump(&self, to: Timestamp) {
        self.inner.lock().wall = to;
    }

    /// How long until the next sleeper is due; `None` when nobody sleeps.
    pub fn next_wake(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        inner.sleepers.retain(|(_, waker)| !waker.is_closed());
        let now = inner.monotonic;
        inner.sleepers.iter().map(|(deadline, _)| deadline.saturating_sub(now)).min()
    }
}

impl Clock for Fake {
    fn now(&self) -> Timestamp {
        self.inner.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.inner.lock().monotonic
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            return futures::future::ready(()).boxed();
        }
        let (waker, wait) = oneshot::channel();
        let mut inner = self.inner.lock();
        let deadline = inner.monotonic.saturating_add(duration);
        inner.sleepers.push((deadline, waker));
        // The clock going away ends every sleep too: nothing will ever wake it.
        wait.map(|_| ()).boxed()
    }
}

/// `at + by`, held at the end of representable time.
pub fn add(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// How long `later` is after `earlier`; zero if it is not.
pub fn since(later: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fake_clock_wakes_sleepers_only_when_their_time_has_come() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let mut long = clock.sleep(Duration::from_secs(2));
        let mut short = clock.sleep(Duration::from_secs(1));
        assert_eq!(clock.next_wake(), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_millis(1500));
        assert!(futures::poll!(&mut short).is_ready());
        assert!(futures::poll!(&mut long).is_pending());
        clock.advance(Duration::from_millis(500));
        assert!(futures::poll!(&mut long).is_ready());
        assert_eq!(clock.now(), Timestamp::from_second(2).expect("in range"));
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn differences_never_go_below_zero() {
        let later = add(Timestamp::UNIX_EPOCH, Duration::from_secs(5));
        assert_eq!(since(later, Timestamp::UNIX_EPOCH), Duration::from_secs(5));
        assert_eq!(since(Timestamp::UNIX_EPOCH, later), Duration::ZERO);
    }
}
