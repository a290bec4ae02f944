//! Figures as Prometheus' protobuf messages, for scrapers that ask for them so.
//!
//! They are made from the text, so there is one place where each figure is written: `io.prometheus.client.MetricFamily`, one after
//! the other, each behind its length.

use std::collections::BTreeMap;

use gates::forms::Forms;

/// The media type of the answer.
pub const MEDIA: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores";

/// Whether a client prefers these messages to text.
pub fn is_wanted(forms: &Forms) -> bool {
    let choose = |media: &str, parameter: &dyn Fn(&str) -> String| match media {
        "application/vnd.google.protobuf" => (parameter("proto") == "io.prometheus.client.MetricFamily"
            && parameter("encoding") == "delimited")
            .then_some(true),
        "text/plain" => matches!(parameter("version").as_str(), "" | "0.0.4").then_some(false),
        _ => None,
    };
    forms.first(choose).unwrap_or(false)
}

/// The messages of a text.
pub fn encode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else { continue };
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
        let mut family = Family { name, help: unescaped(help), kind: Kind::of(kind), metrics: Vec::new() };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            family.add(line);
        }
        // A family without a series is none.
        if !family.metrics.is_empty() {
            bytes(&mut out, &family.message());
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn of(text: &str) -> Self {
        match text {
            "counter" => Self::Counter,
            "histogram" => Self::Histogram,
            _ => Self::Gauge,
        }
    }

    /// Its number among the types.
    fn number(self) -> u64 {
        match self {
            Self::Counter => 0,
            Self::Gauge => 1,
            Self::Histogram => 4,
        }
    }
}

type Labels = Vec<(String, String)>;

#[derive(Default)]
struct Metric {
    labels: Labels,
    value: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

struct Family<'a> {
    name: &'a str,
    help: String,
    kind: Kind,
    metrics: Vec<Metric>,
}

impl Family<'_> {
    /// Takes in a line: `name{label="value",...} number`.
    fn add(&mut self, line: &str) {
        let Some((series, value)) = line.rsplit_once(' ') else { return };
        let Some(value) = number(value) else { return };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut labels = read_labels(labels.strip_suffix('}').unwrap_or(labels));
        if self.kind != Kind::Histogram {
            self.metrics.push(Metric { labels, value, ..Metric::default() });
            return;
        }
        let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
        // The lines of one series follow each other.
        if self.metrics.last().is_none_or(|last| last.labels != labels) {
            self.metrics.push(Metric { labels, ..Metric::default() });
        }
        let Some(metric) = self.metrics.last_mut() else { return };
        match name.strip_prefix(self.name) {
            Some("_bucket") => {
                metric.buckets.extend(bound.and_then(|bound| number(&bound)).map(|at| (at, value as u64)))
            }
            Some("_sum") => metric.value = value,
            Some("_count") => metric.count = value as u64,
            _ => {}
        }
    }

    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        field(&mut out, 1, self.name.as_bytes());
        field(&mut out, 2, self.help.as_bytes());
        varint(&mut out, 3 << 3);
        varint(&mut out, self.kind.number());
        for metric in &self.metrics {
            field(&mut out, 4, &metric.message(self.kind));
        }
        out
    }
}

impl Metric {
    fn message(&self, kind: Kind) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.labels {
            let mut pair = Vec::new();
            field(&mut pair, 1, name.as_bytes());
            field(&mut pair, 2, value.as_bytes());
            field(&mut out, 1, &pair);
        }
        let mut inner = Vec::new();
        match kind {
            Kind::Histogram => {
                varint(&mut inner, 1 << 3);
                varint(&mut inner, self.count);
                double(&mut inner, 2, self.value);
                // The last one, which holds everything, goes without saying.
                for (bound, count) in self.buckets.iter().filter(|(bound, _)| bound.is_finite()) {
                    let mut bucket = Vec::new();
                    varint(&mut bucket, 1 << 3);
                    varint(&mut bucket, *count);
                    double(&mut bucket, 2, *bound);
                    field(&mut inner, 3, &bucket);
                }
                field(&mut out, 7, &inner);
            }
            Kind::Counter | Kind::Gauge => {
                double(&mut inner, 1, self.value);
                field(&mut out, if kind == Kind::Counter { 3 } else { 2 }, &inner);
            }
        }
        out
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

/// `a="x",b="y"`, in the order of the names.
fn read_labels(mut text: &str) -> Labels {
    let mut labels = BTreeMap::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut end = 0;
        let quoted = rest.as_bytes();
        while end < quoted.len() && quoted[end] != b'"' {
            end += if quoted[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(rest.len());
        labels.insert(name.trim_start_matches(',').to_owned(), unescaped(&rest[..end]));
        text = rest.get(end + 1..).unwrap_or_default();
    }
    labels.into_iter().collect()
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes behind their length.
fn bytes(out: &mut Vec<u8>, content: &[u8]) {
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn field(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | 2);
    bytes(out, content);
}

fn double(out: &mut Vec<u8>, number: u64, value: f64) {
    varint(out, number << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// As Prometheus describes it, as far as these figures need it.
    #[derive(Clone, PartialEq, Message)]
    struct FamilyMessage {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        help: String,
        #[prost(int32, tag = "3")]
        kind: i32,
        #[prost(message, repeated, tag = "4")]
        metrics: Vec<MetricMessage>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct MetricMessage {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Pair>,
        #[prost(message, optional, tag = "2")]
        gauge: Option<Number>,
        #[prost(message, optional, tag = "3")]
        counter: Option<Number>,
        #[prost(message, optional, tag = "7")]
        histogram: Option<HistogramMessage>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Pair {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Number {
        #[prost(double, tag = "1")]
        value: f64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct HistogramMessage {
        #[prost(uint64, tag = "1")]
        count: u64,
        #[prost(double, tag = "2")]
        sum: f64,
        #[prost(message, repeated, tag = "3")]
        buckets: Vec<Bucket>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Bucket {
        #[prost(uint64, tag = "1")]
        count: u64,
        #[prost(double, tag = "2")]
        bound: f64,
    }

    #[test]
    fn the_messages_say_what_the_text_says() {
        let text = "# HELP up [STABLE] Whether it is.\n# TYPE up gauge\nup 1\n# HELP none Nothing.\n# TYPE none counter\n\
            # HELP asked How often.\n# TYPE asked counter\nasked{verb=\"GET\",path=\"a\\\"b\"} 3\n\
            # HELP took How long.\n# TYPE took histogram\ntook_bucket{le=\"0.5\"} 1\ntook_bucket{le=\"+Inf\"} 2\ntook_sum 1.5\ntook_count 2\n";
        let encoded = encode(text);
        let mut rest = &encoded[..];
        let mut families = Vec::new();
        while !rest.is_empty() {
            families.push(FamilyMessage::decode_length_delimited(&mut rest).expect("a family"));
        }
        let [up, asked, took] = &families[..] else { panic!("{families:?}") };
        assert_eq!((&*up.name, &*up.help, up.kind), ("up", "[STABLE] Whether it is.", 1));
        assert_eq!(up.metrics[0].gauge, Some(Number { value: 1.0 }));
        let pair = |name: &str, value: &str| Pair { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(asked.metrics[0].labels, [pair("path", "a\"b"), pair("verb", "GET")]);
        assert_eq!((asked.kind, &asked.metrics[0].counter), (0, &Some(Number { value: 3.0 })));
        let buckets = vec![Bucket { count: 1, bound: 0.5 }];
        assert_eq!(took.metrics[0].histogram, Some(HistogramMessage { count: 2, sum: 1.5, buckets }));
        assert_eq!(took.kind, 4);
    }
}
