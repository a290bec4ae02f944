//! One JSON object per line and figure, with what was hoped for.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// A line under construction.
pub struct Line(Map<String, Value>);

impl Line {
    /// A line about one bench.
    pub fn new(bench: &str) -> Self {
        Self(Map::from_iter([("bench".to_owned(), json!(bench))]))
    }

    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), json!(value));
        self
    }

    pub fn figure(mut self, name: &str, value: f64) -> Self {
        self.0.insert(name.to_owned(), json!((value * 100.0).round() / 100.0));
        self
    }

    /// As [`Line::figure`], for small numbers: a hundredth would say nothing of them.
    pub fn precise(mut self, name: &str, value: f64) -> Self {
        self.0.insert(name.to_owned(), json!((value * 1e4).round() / 1e4));
        self
    }

    /// Adds percentiles of latencies.
    pub fn latencies(self, latencies: &mut [Duration]) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| quantile_ms(latencies, share);
        let (half, most, all) = (at(0.5), at(0.99), at(1.0));
        self.figure("p50_ms", half).figure("p99_ms", most).figure("max_ms", all)
    }

    /// Says what the figure should not exceed, and whether it does not.
    pub fn at_most(self, name: &str, wanted: f64) -> Self {
        self.judge(name, wanted, |value| value <= wanted)
    }

    /// Says what the figure should reach, and whether it does.
    pub fn at_least(self, name: &str, wanted: f64) -> Self {
        self.judge(name, wanted, |value| value >= wanted)
    }

    fn judge(mut self, name: &str, wanted: f64, met: impl Fn(f64) -> bool) -> Self {
        let value = self.0.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        self.0.insert(format!("{name}_wanted"), json!(wanted));
        let before = self.0.get("met").and_then(Value::as_bool).unwrap_or(true);
        self.0.insert("met".to_owned(), json!(before && met(value)));
        self
    }

    pub fn print(self) {
        println!("{}", Value::Object(self.0));
    }
}

/// The latency, in milliseconds, that this share of the sorted ones does not exceed.
pub fn quantile_ms(sorted: &[Duration], share: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1) as f64 * share) as usize;
    sorted.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
}
