//! The task behind one probe of one container: when to ask, and when the answers make a verdict.
//!
//! [`Tally`] counts, purely; the task asks, waits and tells. A container that has just passed its startup probe is asked at once
//! whether it is ready; whether it lives is asked at the usual time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::{Clock, guard};
use k8s_openapi::api::core::v1::Probe;

use super::prober::Outcome;
use super::{Kind, Verdict};

/// Counts answers until they make a verdict.
#[derive(Debug)]
pub struct Tally {
    kind: Kind,
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    run: u32,
}

impl Tally {
    /// For a probe with its thresholds.
    pub fn new(kind: Kind, probe: &Probe) -> Self {
        let threshold = |value: Option<i32>, default| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|&v| v > 0).unwrap_or(default)
        };
        Self {
            kind,
            success_threshold: threshold(probe.success_threshold, 1),
            failure_threshold: threshold(probe.failure_threshold, 3),
            last: None,
            run: 0,
        }
    }

    /// Takes an answer; the verdict when there are enough in a row.
    pub fn add(&mut self, good: bool) -> Option<Verdict> {
        self.run = if self.last == Some(good) { self.run + 1 } else { 1 };
        self.last = Some(good);
        let needed = if good { self.success_threshold } else { self.failure_threshold };
        (self.run >= needed).then_some(if good { Verdict::Success } else { Verdict::Failure })
    }

    /// Whether a verdict is the last one: a started container stays started, a dead one is replaced.
    pub fn is_final(&self, verdict: Verdict) -> bool {
        self.kind == Kind::Startup || (self.kind == Kind::Liveness && verdict == Verdict::Failure)
    }
}

/// What a task needs of the outside.
pub struct Ask {
    /// Asks the container once.
    pub ask: Box<dyn Fn() -> BoxFuture<'static, Outcome> + Send + Sync>,
    /// Done once the container has passed its startup probe, for the other kinds.
    pub started: BoxFuture<'static, ()>,
    /// Told of every verdict.
    pub on_verdict: Box<dyn Fn(Verdict) + Send + Sync>,
    /// Told of every answer that is not good, for events.
    pub on_bad_outcome: Box<dyn Fn(&Outcome) + Send + Sync>,
}

/// Probes until the last verdict. `age` is how long the container has been running.
pub async fn run(kind: Kind, probe: Probe, age: Duration, clock: Arc<dyn Clock>, mut ask: Ask) {
    let seconds = |value: Option<i32>, default| value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default);
    let period = Duration::from_secs(seconds(probe.period_seconds, 10).max(1));
    let delay = Duration::from_secs(seconds(probe.initial_delay_seconds, 0)).saturating_sub(age);
    let mut tally = Tally::new(kind, &probe);
    clock.sleep(delay).await;
    let mut started = kind == Kind::Startup;
    loop {
        started = started || (&mut ask.started).now_or_never().is_some();
        if started {
            // A mistake of ours says nothing about the container.
            let outcome = guard::caught("probe", &kind.as_str(), (ask.ask)()).await;
            if let Some(outcome) = outcome.as_ref().filter(|outcome| **outcome != Outcome::Success) {
                (ask.on_bad_outcome)(outcome);
            }
            let good = match outcome {
                Some(Outcome::Success | Outcome::Warning(_)) => Some(true),
                Some(Outcome::Failure(_)) => Some(false),
                Some(Outcome::Error(_)) | None => None,
            };
            if let Some(verdict) = good.and_then(|good| tally.add(good)) {
                (ask.on_verdict)(verdict);
                if tally.is_final(verdict) {
                    return;
                }
            }
        }
        if started || kind == Kind::Liveness {
            clock.sleep(period).await;
        } else {
            tokio::select! {
                () = clock.sleep(period) => {}
                () = &mut ask.started => started = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use informer::clock::Fake;
    use jiff::Timestamp;
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// Runs a probe of the kind in which time stands still; its questions are sent to the receiver.
    fn asked(kind: Kind, clock: &Arc<Fake>) -> (oneshot::Sender<()>, mpsc::UnboundedReceiver<Kind>) {
        let (start, started) = oneshot::channel();
        let (sender, receiver) = mpsc::unbounded_channel();
        let ask = Ask {
            ask: Box::new(move || {
                sender.send(kind).unwrap();
                std::future::ready(Outcome::Success).boxed()
            }),
            started: started.map(drop).boxed(),
            on_verdict: Box::new(|_| ()),
            on_bad_outcome: Box::new(|_| ()),
        };
        tokio::spawn(run(kind, Probe::default(), Duration::ZERO, clock.clone(), ask));
        (start, receiver)
    }

    #[tokio::test]
    async fn a_container_that_has_started_is_asked_at_once_whether_it_is_ready() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let (start_ready, mut ready) = asked(Kind::Readiness, &clock);
        let (start_live, mut live) = asked(Kind::Liveness, &clock);
        // Both wait for their next time.
        while clock.next_wake() != Some(Duration::from_secs(10)) {
            tokio::task::yield_now().await;
        }
        assert!(ready.is_empty(), "before it has started nobody asks");
        start_ready.send(()).unwrap();
        start_live.send(()).unwrap();
        assert_eq!(ready.recv().await, Some(Kind::Readiness));
        assert!(live.is_empty(), "whether it lives is asked when it is time");
        clock.advance(Duration::from_secs(10));
        assert_eq!(live.recv().await, Some(Kind::Liveness));
    }

    #[tokio::test]
    async fn a_question_that_panics_says_nothing_and_the_next_one_is_asked() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let (sender, mut verdicts) = mpsc::unbounded_channel();
        let panicked = std::sync::atomic::AtomicBool::new(false);
        let ask = Ask {
            ask: Box::new(move || {
                let again = panicked.swap(true, std::sync::atomic::Ordering::Relaxed);
                async move { if again { Outcome::Success } else { panic!("on purpose") } }.boxed()
            }),
            started: std::future::ready(()).boxed(),
            on_verdict: Box::new(move |verdict| sender.send(verdict).unwrap()),
            on_bad_outcome: Box::new(|outcome| panic!("nothing to report: {outcome:?}")),
        };
        tokio::spawn(run(Kind::Readiness, Probe::default(), Duration::ZERO, clock.clone(), ask));
        while clock.next_wake() != Some(Duration::from_secs(10)) {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(10));
        assert_eq!(verdicts.recv().await, Some(Verdict::Success));
    }

    #[test]
    fn verdicts_need_their_threshold_in_a_row() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Default::default() };
        let mut tally = Tally::new(Kind::Readiness, &probe);
        let answers = [true, false, true, true, false, false, true, false, false, false];
        let verdicts: Vec<Option<Verdict>> = answers.iter().map(|&good| tally.add(good)).collect();
        use Verdict::{Failure, Success};
        assert_eq!(verdicts, [None, None, None, Some(Success), None, None, None, None, None, Some(Failure)]);
    }

    #[test]
    fn startup_ends_with_any_verdict_and_liveness_with_a_bad_one() {
        let probe = Probe::default();
        assert!(Tally::new(Kind::Startup, &probe).is_final(Verdict::Success));
        assert!(Tally::new(Kind::Liveness, &probe).is_final(Verdict::Failure));
        assert!(!Tally::new(Kind::Liveness, &probe).is_final(Verdict::Success));
        assert!(!Tally::new(Kind::Readiness, &probe).is_final(Verdict::Failure));
    }
}
