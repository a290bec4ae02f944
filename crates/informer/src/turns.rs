//! Parts that work in turns: handlers note what changed and wake the part, and one turn at a time puts into effect whatever was noted.

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A part that works in turns.
pub trait Turns: Send {
    /// Puts into effect what was noted. It may be dropped in the middle, which must harm nothing.
    fn take_turn(&mut self) -> impl Future<Output = ()> + Send;
}

/// Takes a turn whenever somebody notified, until the end, which does not wait for a turn. What is noted during one brings another.
pub async fn turns(part: &mut impl Turns, wake: &Notify, shutdown: &CancellationToken) {
    loop {
        tokio::select! {
            () = wake.notified() => {}
            () = shutdown.cancelled() => return,
        }
        tokio::select! {
            () = part.take_turn() => {}
            () = shutdown.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Twice {
        wake: Arc<Notify>,
        shutdown: CancellationToken,
        taken: u32,
    }

    impl Turns for Twice {
        async fn take_turn(&mut self) {
            self.taken += 1;
            if self.taken == 1 {
                self.wake.notify_one();
            } else {
                self.shutdown.cancel();
                std::future::pending::<()>().await;
            }
        }
    }

    #[tokio::test]
    async fn notes_of_one_turn_bring_the_next_and_the_end_waits_for_none() {
        let (wake, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
        wake.notify_one();
        let mut part = Twice { wake: wake.clone(), shutdown: shutdown.clone(), taken: 0 };
        turns(&mut part, &wake, &shutdown).await;
        assert_eq!(part.taken, 2);
    }
}
