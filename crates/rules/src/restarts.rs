//! How long a container that keeps ending, or that the runtime refuses, has to wait before it is started again.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

/// First and longest wait, and after how long of running well it starts over.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const FORGET: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
struct Entry {
    delay: Duration,
    noted: Timestamp,
}

#[derive(Debug, Default)]
pub struct Restarts(HashMap<String, Entry>);

impl Restarts {
    /// How long the container, which ended at `ended`, still has to wait, out of which wait; nothing when it may start.
    /// Starting it has to be noted with [`Restarts::note`].
    pub fn wait(&self, key: &str, ended: Timestamp, now: Timestamp) -> Option<(Duration, Duration)> {
        let entry = self.0.get(key)?;
        if since(now, entry.noted) > FORGET {
            return None;
        }
        let left = entry.delay.saturating_sub(since(now, ended));
        (!left.is_zero()).then_some((left, entry.delay))
    }

    /// Notes that a container that ended at `ended` is started again.
    pub fn note(&mut self, key: &str, ended: Timestamp, now: Timestamp) {
        let entry = self.0.get(key).filter(|entry| since(ended, entry.noted) <= FORGET);
        let delay = entry.map_or(FIRST, |entry| (entry.delay * 2).min(LONGEST));
        self.0.insert(key.to_owned(), Entry { delay, noted: now });
    }
}

/// Containers that the runtime would not make. Each refusal is told in the pod's status in other words, with the name that the container
/// would have had, so without this the echo of one would begin the next try.
#[derive(Debug, Default)]
pub struct Refusals(HashMap<String, Timestamp>);

impl Refusals {
    pub fn note(&mut self, key: &str, now: Timestamp) {
        self.0.insert(key.to_owned(), now);
    }

    /// How long the runtime is not asked again; nothing when it may be.
    pub fn wait(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let left = FIRST.saturating_sub(since(now, *self.0.get(key)?));
        (!left.is_zero()).then_some(left)
    }
}

fn since(later: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_waits_double() {
        let mut restarts = Restarts::default();
        assert_eq!(restarts.wait("a", at(0), at(0)), None);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..7 {
            restarts.note("a", at(now), at(now));
            // It ends again one second later.
            let ended = now + 1;
            let (left, delay) = restarts.wait("a", at(ended), at(ended)).unwrap();
            assert_eq!(left, delay);
            waits.push(delay.as_secs());
            now = ended + delay.as_secs() as i64;
            assert_eq!(restarts.wait("a", at(ended), at(now)), None);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn what_the_runtime_refused_is_asked_for_again_later() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.wait("a", at(0)), None);
        refusals.note("a", at(0));
        assert_eq!(refusals.wait("a", at(1)), Some(Duration::from_secs(9)));
        assert_eq!(refusals.wait("changed", at(1)), None);
        assert_eq!(refusals.wait("a", at(10)), None);
    }

    #[test]
    fn running_well_for_long_enough_forgets_it() {
        let mut restarts = Restarts::default();
        restarts.note("a", at(0), at(0));
        restarts.note("a", at(5), at(5));
        assert_eq!(restarts.wait("a", at(5000), at(5000)), None);
        restarts.note("a", at(5000), at(5000));
        assert_eq!(restarts.wait("a", at(5001), at(5001)).unwrap().1, FIRST);
    }
}
