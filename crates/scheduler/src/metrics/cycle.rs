//! What one scheduling cycle measured, collected without a lock and added in one go.

use std::sync::Arc;
use std::time::Duration;

use informer::Clock;

use super::{Point, Status};

/// Of so many cycles one also times its plugins one by one: timing all of them would cost more than they do.
const SAMPLED: u32 = 10;

/// The measurements of a cycle.
pub struct Cycle {
    clock: Arc<dyn Clock>,
    number: u32,
    sampled: bool,
    last: Duration,
    pub(super) points: Vec<(Point, Status, f64)>,
    pub(super) plugins: Vec<(&'static str, Point, Status, f64)>,
    pub(super) evaluations: Vec<(&'static str, Point, u64)>,
}

impl Cycle {
    /// Measures by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            number: 0,
            sampled: false,
            last: Duration::ZERO,
            points: Vec::new(),
            plugins: Vec::new(),
            evaluations: Vec::new(),
        }
    }

    pub fn begin(&mut self) {
        self.points.clear();
        self.plugins.clear();
        self.evaluations.clear();
        self.number = self.number.wrapping_add(1);
        self.sampled = self.number.is_multiple_of(SAMPLED);
        self.last = self.clock.monotonic();
    }

    /// Time begins anew: what came since the last point is nobody's.
    pub fn restart(&mut self) {
        self.last = self.clock.monotonic();
    }

    /// An extension point is done; it began where the last one ended.
    pub fn point(&mut self, point: Point, status: Status) {
        let now = self.clock.monotonic();
        self.points.push((point, status, now.saturating_sub(self.last).as_secs_f64()));
        self.last = now;
    }

    /// Whether this cycle times its plugins.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Runs a plugin, timing it in a sampled cycle.
    pub fn plugin<T>(
        &mut self,
        name: &'static str,
        point: Point,
        run: impl FnOnce() -> T,
        status: impl FnOnce(&T) -> Status,
    ) -> T {
        if !self.sampled {
            return run();
        }
        let began = self.clock.monotonic();
        let outcome = run();
        let took = self.clock.monotonic().saturating_sub(began).as_secs_f64();
        self.plugins.push((name, point, status(&outcome), took));
        outcome
    }

    /// A plugin was asked about so many nodes.
    pub fn evaluated(&mut self, plugin: &'static str, point: Point, times: u64) {
        if times > 0 {
            self.evaluations.push((plugin, point, times));
        }
    }
}
