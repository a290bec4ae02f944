//! Reads a kubelet's `/metrics/resource`: five families of Prometheus' text, everything else is passed over.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::{Batch, Containers, PodKey, Point};

/// What is known so far of something that is measured.
#[derive(Default, Clone, Copy)]
struct Partial {
    start: Option<Timestamp>,
    time: Option<Timestamp>,
    cpu: u64,
    memory: u64,
}

impl Partial {
    /// Zero means not measured: whatever runs has used something.
    fn complete(self) -> Option<Point> {
        let time = self.time.filter(|_| self.cpu != 0 && self.memory != 0)?;
        Some(Point { start: self.start, time, cpu: self.cpu, memory: self.memory })
    }
}

/// Adds what a node's kubelet said at `now` to a batch.
pub fn read(text: &str, node: &str, now: Timestamp, batch: &mut Batch) {
    let mut own = Partial::default();
    let mut pods: HashMap<PodKey, HashMap<String, Partial>> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(Series { name, labels, value, time }) = series(line) else { continue };
        let time = time.unwrap_or(now);
        match name {
            "node_cpu_usage_seconds_total" => (own.cpu, own.time) = (nanos(value), Some(time)),
            "node_memory_working_set_bytes" => (own.memory, own.time) = (value as u64, Some(time)),
            "container_cpu_usage_seconds_total"
            | "container_memory_working_set_bytes"
            | "container_start_time_seconds" => {
                let Some((key, container)) = container(labels) else { continue };
                let point = pods.entry(key).or_default().entry(container).or_default();
                match name {
                    "container_cpu_usage_seconds_total" => (point.cpu, point.time) = (nanos(value), Some(time)),
                    // Rates are of CPU time: its moment counts where both have one.
                    "container_memory_working_set_bytes" => {
                        point.memory = value as u64;
                        point.time.get_or_insert(time);
                    }
                    _ => point.start = Timestamp::from_nanosecond((value * 1e9) as i128).ok(),
                }
            }
            _ => {}
        }
    }
    batch.nodes.extend(own.complete().map(|point| (node.to_owned(), point)));
    for (key, containers) in pods {
        let complete = |(name, point): (String, Partial)| Some((name, point.complete()?));
        if let Some(containers) = containers.into_iter().map(complete).collect::<Option<Containers>>() {
            batch.pods.insert(key, containers);
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

struct Series<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
    time: Option<Timestamp>,
}

/// `name{label="value",...} value [milliseconds]`.
fn series(line: &str) -> Option<Series<'_>> {
    let (name, labels, rest) = match line.find(['{', ' '])? {
        at if line.as_bytes()[at] == b'{' => {
            let end = end_of_labels(&line[at..])? + at;
            (&line[..at], &line[at + 1..end], &line[end + 1..])
        }
        at => (&line[..at], "", &line[at..]),
    };
    let mut words = rest.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    let time = words.next().and_then(|millis| Timestamp::from_millisecond(millis.parse().ok()?).ok());
    Some(Series { name, labels, value, time })
}

/// Where the brace is that closes a text of labels, whose values may hold braces and escaped quotes.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Names of namespaces, pods and containers hold nothing that is escaped.
fn container(labels: &str) -> Option<(PodKey, String)> {
    let label = |wanted: &str| {
        labels.split(',').find_map(|label| {
            let (name, value) = label.trim().split_once('=')?;
            (name == wanted).then(|| value.trim_matches('"').to_owned())
        })
    };
    Some(((label("namespace")?, label("pod")?), label("container")?))
}
