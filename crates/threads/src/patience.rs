//! How long somebody may take to answer, counted while this process was running.
//!
//! A machine that is overloaded, suspended or out of memory may not run this process for seconds. A timer then fires at the first chance, with
//! the answer already in the socket's buffer, or one step of many away. That the timer is late says so, and the time is given back.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

/// A timer that is later than this was not late by chance.
const LATE: Duration = Duration::from_millis(100);

/// The future's outcome, or nothing after so long.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut deadline = Instant::now() + limit;
    loop {
        tokio::select! {
            biased;
            outcome = &mut future => return Some(outcome),
            () = tokio::time::sleep_until(deadline) => {
                let late = deadline.elapsed();
                if late < LATE {
                    return None;
                }
                // Never more than it may take in all: a process that is always late must come to a verdict, too.
                deadline = Instant::now() + late.min(limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_not_waited_for() {
        let begun = Instant::now();
        assert_eq!(within(Duration::from_secs(1), std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed().as_secs(), 1);
        assert_eq!(within(Duration::from_secs(1), async { 7 }).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_ran_does_not_count() {
        let limit = Duration::from_secs(1);
        // Two steps, each at once; before the second the process stands still for longer than the limit.
        let answer = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            tokio::time::advance(Duration::from_secs(5)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            "well"
        };
        assert_eq!(within(limit, answer).await, Some("well"));
    }
}
