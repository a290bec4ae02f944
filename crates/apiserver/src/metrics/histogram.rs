//! Counts of how long things took, in upstream's buckets.

use std::fmt::Write as _;
use std::time::Duration;

/// The upper bounds of the buckets, in seconds. Requests and the store share them, so that the two can be compared.
pub const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// A distribution.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The upper bounds of the buckets, in seconds.
    bounds: &'static [f64],
    /// How many fell into each bucket and not into the one before.
    buckets: Box<[u64]>,
    count: u64,
    sum: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new(&BOUNDS)
    }
}

impl Histogram {
    /// With buckets of its own.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, buckets: vec![0; bounds.len()].into(), count: 0, sum: 0.0 }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds one.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Writes the series of `name` with these labels (without braces).
    pub fn write(&self, text: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            below += bucket;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {}", self.sum, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_their_bounds_belong_to_them() {
        let mut histogram = Histogram::default();
        for milliseconds in [5, 6, 25, 90_000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let mut text = String::new();
        histogram.write(&mut text, "x", "a=\"b\"");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
        assert_eq!(line("x_bucket{a=\"b\",le=\"0.005\"}").as_deref(), Some("x_bucket{a=\"b\",le=\"0.005\"} 1"));
        assert_eq!(line("x_bucket{a=\"b\",le=\"0.025\"}").as_deref(), Some("x_bucket{a=\"b\",le=\"0.025\"} 3"));
        assert_eq!(line("x_bucket{a=\"b\",le=\"60\"}").as_deref(), Some("x_bucket{a=\"b\",le=\"60\"} 3"));
        assert_eq!(line("x_bucket{a=\"b\",le=\"+Inf\"}").as_deref(), Some("x_bucket{a=\"b\",le=\"+Inf\"} 4"));
        assert_eq!(line("x_count").as_deref(), Some("x_count{a=\"b\"} 4"));
    }
}
