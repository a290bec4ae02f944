//! Counting values into exponential buckets, and writing them in the Prometheus text format.

use std::fmt::Write;

/// The buckets of a histogram: a first bound, a factor, and how many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets(pub f64, pub f64, pub usize);

impl Buckets {
    /// Whole attempts, waits: one millisecond to 16 seconds.
    pub const ATTEMPT: Self = Self(0.001, 2.0, 15);
    /// Extension points and events: a tenth of a millisecond to 200 milliseconds.
    pub const POINT: Self = Self(0.0001, 2.0, 12);
    /// Single plugins: ten microseconds to 22 milliseconds, finely.
    pub const PLUGIN: Self = Self(0.00001, 1.5, 20);
    /// From the queue to a node: ten milliseconds to 88 minutes.
    pub const SLI: Self = Self(0.01, 2.0, 20);
    /// Finding whom to evict, and evicting them: a millisecond to 33 seconds.
    pub const EVICTION: Self = Self(0.001, 2.0, 16);

    fn bound(self, index: usize) -> f64 {
        self.0 * self.1.powi(index as i32)
    }
}

/// A histogram.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Buckets,
    counts: Box<[u64]>,
    sum: f64,
    count: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new(buckets: Buckets) -> Self {
        Self { buckets, counts: vec![0; buckets.2].into(), sum: 0.0, count: 0 }
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        // Most values lie in the first buckets, and there are few: a scan beats a logarithm.
        let mut bound = self.buckets.0;
        for count in &mut self.counts {
            if value <= bound {
                *count += 1;
                return;
            }
            bound *= self.buckets.1;
        }
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes the series of one set of labels, such as `queue="active"`.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let separator = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (index, count) in self.counts.iter().enumerate() {
            total += count;
            let bound = self.buckets.bound(index);
            let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"+Inf\"}} {}", self.count);
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braces} {}", self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_their_bucket_and_all_above() {
        let mut histogram = Histogram::new(Buckets(1.0, 2.0, 3));
        [0.5, 1.0, 3.0, 100.0].into_iter().for_each(|value| histogram.observe(value));
        let mut text = String::new();
        histogram.write(&mut text, "m", "a=\"b\"");
        let expected = "m_bucket{a=\"b\",le=\"1\"} 2\nm_bucket{a=\"b\",le=\"2\"} 2\nm_bucket{a=\"b\",le=\"4\"} 3\n\
                        m_bucket{a=\"b\",le=\"+Inf\"} 4\nm_sum{a=\"b\"} 104.5\nm_count{a=\"b\"} 4\n";
        assert_eq!(text, expected);
    }
}
