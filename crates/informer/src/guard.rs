//! Panics that stay where they happen: with the key in hand, or with one loop of many.
//!
//! [`caught`] and [`caught_call`] are for one piece of work on one key; [`restarted`] is for loops that are to run as long as their
//! process. Each panic is counted in `trireme_panics_total` and logged by the name of the part.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;

use crate::{Backoff, Clock, metrics};

/// The first and the longest wait before a loop that panicked begins again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A loop that ran for so long did not panic for the reason that it panicked for before.
const SETTLED: Duration = Duration::from_secs(300);

/// The result of work on a key; nothing when it panicked. Whatever the work holds must be no worse for being left half done.
pub async fn caught<T>(part: &str, key: &(dyn Display + Sync), work: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(work).catch_unwind().await.inspect_err(|_| metrics::panicked(part, key)).ok()
}

/// As [`caught`], for work that waits for nothing.
pub fn caught_call<T>(part: &str, key: &dyn Display, work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).inspect_err(|_| metrics::panicked(part, key)).ok()
}

/// Runs a loop to its end. When it panics instead, it is begun again after a while.
pub async fn restarted<T, F: Future<Output = T>>(part: &str, clock: &dyn Clock, mut begin: impl FnMut() -> F) -> T {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1, 0.0);
    loop {
        let begun = clock.monotonic();
        let run = async { begin().await };
        if let Ok(result) = AssertUnwindSafe(run).catch_unwind().await {
            return result;
        }
        if clock.monotonic() - begun > SETTLED {
            backoff.reset();
        }
        let wait = backoff.delay();
        metrics::panicked_loop(part, wait);
        clock.sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use jiff::Timestamp;

    use super::*;
    use crate::clock::Fake;

    fn panics(part: &str) -> bool {
        let mut text = String::new();
        metrics::write(&mut text);
        text.contains(&format!("trireme_panics_total{{in=\"{part}\"}}"))
    }

    #[tokio::test]
    async fn a_loop_that_panics_is_counted_and_begins_again_after_a_while() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let runs = Arc::new(AtomicU32::new(0));
        let (counted, own) = (runs.clone(), clock.clone());
        let kept = tokio::spawn(async move {
            restarted("a test's loop", &*own, || {
                let run = counted.fetch_add(1, Ordering::SeqCst);
                async move { if run < 2 { panic!("on purpose") } else { "done" } }
            })
            .await
        });
        for wait in [1, 2] {
            let wait = Duration::from_secs(wait);
            while clock.next_wake() != Some(wait) {
                tokio::task::yield_now().await;
            }
            clock.advance(wait);
        }
        assert_eq!(kept.await.unwrap(), "done");
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert!(panics("a test's loop"));
    }

    #[tokio::test]
    async fn work_that_panics_has_no_result_and_is_counted() {
        assert_eq!(caught("a test's work", &"key", async { panic!("on purpose") }).await, None::<()>);
        assert_eq!(caught("a test's work", &"key", async { 1 }).await, Some(1));
        assert_eq!(caught_call("a test's call", &"key", || panic!("on purpose")), None::<()>);
        assert!(panics("a test's work") && panics("a test's call"));
    }
}
