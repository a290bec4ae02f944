//! Distributions, counted into upstream's buckets.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::native::{self, Native};
use super::text;
use super::{Family, Head, Series};

/// Where the buckets of a histogram end.
#[derive(Debug, Clone, Copy)]
pub enum Buckets {
    At(&'static [f64]),
    /// At `start`, and then so many times in all `factor` times as far: multiplied one by one, as upstream does, whose bounds show it
    /// (`9.999999999999999e-06`).
    Exponential {
        start: f64,
        /// How much further the next is.
        factor: f64,
        /// How many there are.
        count: usize,
    },
}

impl Buckets {
    fn bounds(self) -> Cow<'static, [f64]> {
        match self {
            Self::At(bounds) => Cow::Borrowed(bounds),
            Self::Exponential { start, factor, count } => {
                std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct Distribution {
    bounds: Cow<'static, [f64]>,
    /// How many fell into each bucket and not into the one before.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    native: Native,
}

impl Distribution {
    /// Nothing was seen yet.
    pub fn new(buckets: Buckets) -> Self {
        let bounds = buckets.bounds();
        Self { counts: vec![0; bounds.len()], bounds, count: 0, sum: 0.0, native: Native::default() }
    }

    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.counts.get_mut(bucket) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += value;
        self.native.observe(value);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts all that another one of the same buckets counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.native.merge(&other.native);
    }

    /// Appends the series under a name, with these labels (without braces, and none at all if empty).
    pub(crate) fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count;
            // Writing to a string cannot fail; this holds for all of these lines.
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {below}", text::number(*bound));
        }
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count);
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        let _ = writeln!(text, "{name}_sum{open}{labels}{close} {}", text::number(self.sum));
        let _ = writeln!(text, "{name}_count{open}{labels}{close} {}", self.count);
        if native::is_wanted(text) {
            self.native.write(text);
        }
    }
}

#[derive(Debug)]
pub struct Histogram {
    head: Head,
    buckets: Buckets,
    series: Series<Distribution>,
}

impl Histogram {
    /// A family. One without labels is written from the beginning.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: Buckets,
    ) -> Self {
        Self { head: Head { name, help, labels }, buckets, series: Series::new() }
    }

    /// Counts one more with these values.
    pub fn observe(&self, values: &[&str], value: f64) {
        let new = || Distribution::new(self.buckets);
        self.series.change(&self.head, values, new, |series| series.observe(value));
    }

    /// How many were seen with these values.
    pub fn count(&self, values: &[&str]) -> u64 {
        let all = self.series.0.lock();
        all.iter().find(|(known, _)| known.iter().eq(values)).map_or(0, |(_, series)| series.count)
    }
}

impl Family for Histogram {
    fn write(&self, text: &mut String) {
        if self.head.labels.is_empty() {
            self.series.change(&self.head, &[], || Distribution::new(self.buckets), |_| {});
        }
        let lines = |text: &mut String, labels: &str, series: &Distribution| series.write(text, self.head.name, labels);
        self.series.write(&self.head, "histogram", text, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_their_bounds_are_upstreams() {
        static TOOK: Histogram = Histogram::new(
            "took_seconds",
            "[ALPHA] How long.",
            &["name"],
            Buckets::Exponential { start: 1e-8, factor: 10.0, count: 10 },
        );
        for seconds in [1e-8, 0.5, 11.0] {
            TOOK.observe(&["a"], seconds);
        }
        let mut text = String::new();
        TOOK.write(&mut text);
        let line = |le: &str| format!("took_seconds_bucket{{name=\"a\",le=\"{le}\"}} ");
        for (le, count) in [("1e-08", 1), ("9.999999999999999e-06", 1), ("0.1", 1), ("1", 2), ("10", 2), ("+Inf", 3)] {
            let wanted = format!("{}{count}\n", line(le));
            assert!(text.contains(&wanted), "{wanted} in {text}");
        }
        assert!(
            text.ends_with("took_seconds_sum{name=\"a\"} 11.50000001\ntook_seconds_count{name=\"a\"} 3\n"),
            "{text}"
        );
        assert_eq!(TOOK.count(&["a"]), 3);
    }

    #[test]
    fn one_without_labels_is_there_from_the_beginning() {
        static TRIES: Histogram = Histogram::new("tries", "[ALPHA] Tries.", &[], Buckets::At(&[1.0, 5.0]));
        let mut text = String::new();
        TRIES.write(&mut text);
        let expected = "# HELP tries [ALPHA] Tries.\n# TYPE tries histogram\ntries_bucket{le=\"1\"} 0\ntries_bucket{le=\"5\"} 0\n\
            tries_bucket{le=\"+Inf\"} 0\ntries_sum 0\ntries_count 0\n";
        assert_eq!(text, expected);
    }
}
