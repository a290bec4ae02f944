//! The time, injected: scheduling itself never asks the machine.

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct FakeClock(parking_lot::Mutex<Timestamp>);

impl FakeClock {
    /// Moves on.
    pub fn advance(&self, by: std::time::Duration) {
        let mut now = self.0.lock();
        *now = now.saturating_add(by).unwrap_or(Timestamp::MAX);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
