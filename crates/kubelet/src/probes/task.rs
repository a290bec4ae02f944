//! The task behind one probe of one container: when to ask, and when the answers make a verdict.
//!
//! [`Tally`] counts, purely; the task asks, waits and tells.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use informer::Clock;
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
    /// Whether the container has passed its startup probe, for the other kinds.
    pub started: Box<dyn Fn() -> bool + Send + Sync>,
    /// Told of every verdict.
    pub tell: Box<dyn Fn(Verdict) + Send + Sync>,
    /// Told of every answer that is not good, for events.
    pub report: Box<dyn Fn(&Outcome) + Send + Sync>,
}

/// Probes until the last verdict. `age` is how long the container has been running.
pub async fn run(kind: Kind, probe: Probe, age: Duration, clock: Arc<dyn Clock>, ask: Ask) {
    let seconds = |value: Option<i32>, default| value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default);
    let period = Duration::from_secs(seconds(probe.period_seconds, 10).max(1));
    let delay = Duration::from_secs(seconds(probe.initial_delay_seconds, 0)).saturating_sub(age);
    let mut tally = Tally::new(kind, &probe);
    clock.sleep(delay).await;
    loop {
        if kind == Kind::Startup || (ask.started)() {
            let outcome = (ask.ask)().await;
            if outcome != Outcome::Success {
                (ask.report)(&outcome);
            }
            let good = match outcome {
                Outcome::Success | Outcome::Warning(_) => Some(true),
                Outcome::Failure(_) => Some(false),
                Outcome::Error(_) => None,
            };
            if let Some(verdict) = good.and_then(|good| tally.add(good)) {
                (ask.tell)(verdict);
                if tally.is_final(verdict) {
                    return;
                }
            }
        }
        clock.sleep(period).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
