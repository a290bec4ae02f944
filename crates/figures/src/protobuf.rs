//! Figures as Prometheus' protobuf messages, for scrapers that ask for them so.
//!
//! They are made from the text, so there is one place where each figure is written: `io.prometheus.client.MetricFamily`, one after
//! the other, each behind its length. A histogram of a page with native buckets ([`page`](super::page())) has both kinds.

use std::collections::BTreeMap;

use super::native::{Counts, Native, ZERO_THRESHOLD, runs};

/// The messages of a text.
pub(crate) fn encode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else { continue };
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
        let mut family = Family { name, help: unescaped(help), kind: Kind::of(kind), metrics: Vec::new() };
        while let Some(line) = lines.next_if(|line| !line.starts_with("# HELP ")) {
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
    /// When it was taken, in milliseconds since 1970.
    time: Option<i64>,
    count: u64,
    buckets: Vec<(f64, u64)>,
    native: Option<Native>,
}

struct Family<'a> {
    name: &'a str,
    help: String,
    kind: Kind,
    metrics: Vec<Metric>,
}

impl Family<'_> {
    /// Takes in a line: `name{label="value",...} number`, with a time behind it or without, or the native buckets of the series before.
    fn add(&mut self, line: &str) {
        if let Some(native) = Native::read(line) {
            if let Some(metric) = self.metrics.last_mut() {
                metric.native = Some(native);
            }
            return;
        }
        // What labels say may hold blanks and braces, numbers do not.
        let Some((series, numbers)) = line.rsplit_once("} ").or_else(|| line.split_once(' ')) else { return };
        let mut numbers = numbers.split(' ');
        let Some(value) = numbers.next().and_then(number) else { return };
        let time = numbers.next().and_then(|time| time.parse().ok());
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut labels = read_labels(labels);
        if self.kind != Kind::Histogram {
            self.metrics.push(Metric { labels, value, time, ..Metric::default() });
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
                if let Some(native) = &self.native {
                    append_native(&mut inner, native);
                }
                field(&mut out, 7, &inner);
            }
            Kind::Counter | Kind::Gauge => {
                double(&mut inner, 1, self.value);
                field(&mut out, if kind == Kind::Counter { 3 } else { 2 }, &inner);
            }
        }
        if let Some(time) = self.time {
            varint(&mut out, 6 << 3);
            varint(&mut out, time as u64);
        }
        out
    }
}

fn append_native(out: &mut Vec<u8>, native: &Native) {
    varint(out, 5 << 3);
    varint(out, zigzag(native.schema.into()));
    double(out, 6, ZERO_THRESHOLD);
    varint(out, 7 << 3);
    varint(out, native.zero);
    let mut side = |counts: &Counts, span_field: u64, delta_field: u64| {
        let (runs, deltas) = runs(counts);
        for (gap, length) in runs {
            let mut span = Vec::new();
            varint(&mut span, 1 << 3);
            varint(&mut span, zigzag(gap.into()));
            varint(&mut span, 2 << 3);
            varint(&mut span, length.into());
            field(out, span_field, &span);
        }
        for delta in deltas {
            varint(out, delta_field << 3);
            varint(out, zigzag(delta));
        }
    };
    side(&native.negative, 9, 10);
    side(&native.positive, 12, 13);
}

/// Signed numbers with small ones short.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
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
    use crate::{Buckets, Counter, Histogram, native};

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
        #[prost(int64, optional, tag = "6")]
        time: Option<i64>,
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
        #[prost(sint32, optional, tag = "5")]
        schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        zero_count: Option<u64>,
        #[prost(message, repeated, tag = "9")]
        negative_spans: Vec<Span>,
        #[prost(sint64, repeated, packed = "false", tag = "10")]
        negative_deltas: Vec<i64>,
        #[prost(message, repeated, tag = "12")]
        positive_spans: Vec<Span>,
        #[prost(sint64, repeated, packed = "false", tag = "13")]
        positive_deltas: Vec<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Span {
        #[prost(sint32, tag = "1")]
        offset: i32,
        #[prost(uint32, tag = "2")]
        length: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Bucket {
        #[prost(uint64, tag = "1")]
        count: u64,
        #[prost(double, tag = "2")]
        bound: f64,
    }

    fn decoded(text: &str) -> Vec<FamilyMessage> {
        let encoded = encode(text);
        let mut rest = &encoded[..];
        let mut families = Vec::new();
        while !rest.is_empty() {
            families.push(FamilyMessage::decode_length_delimited(&mut rest).expect("a family"));
        }
        families
    }

    #[test]
    fn the_messages_say_what_the_text_says() {
        let text = "# HELP up [STABLE] Whether it is.\n# TYPE up gauge\nup 1\n# HELP none Nothing.\n# TYPE none counter\n\
            # HELP asked How often.\n# TYPE asked counter\nasked{verb=\"GET\",path=\"a\\\"} b\"} 3 1500\n\
            # HELP took How long.\n# TYPE took histogram\ntook_bucket{le=\"0.5\"} 1\ntook_bucket{le=\"+Inf\"} 2\ntook_sum 1.5\ntook_count 2\n";
        let families = decoded(text);
        let [up, asked, took] = &families[..] else { panic!("{families:?}") };
        assert_eq!((&*up.name, &*up.help, up.kind), ("up", "[STABLE] Whether it is.", 1));
        assert_eq!(up.metrics[0].gauge, Some(Number { value: 1.0 }));
        let pair = |name: &str, value: &str| Pair { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(asked.metrics[0].labels, [pair("path", "a\"} b"), pair("verb", "GET")]);
        assert_eq!((asked.kind, &asked.metrics[0].counter), (0, &Some(Number { value: 3.0 })));
        assert_eq!((asked.metrics[0].time, up.metrics[0].time), (Some(1500), None));
        let buckets = vec![Bucket { count: 1, bound: 0.5 }];
        let expected = HistogramMessage { count: 2, sum: 1.5, buckets, ..HistogramMessage::default() };
        assert_eq!(took.metrics[0].histogram, Some(expected));
        assert_eq!(took.kind, 4);
    }

    /// A histogram of a page for native buckets has both kinds, each series its own.
    #[test]
    fn native_buckets_are_told_beside_classic_ones() {
        static TOOK: Histogram = Histogram::new("took", "How long.", &["verb"], Buckets::At(&[0.5]));
        for value in [0.25, 0.25, 1.0, 0.0, -2.0] {
            TOOK.observe(&["GET"], value);
        }
        TOOK.observe(&["PUT"], 1.0);
        static UP: Counter = Counter::new("up", "Whether it is.", &[]);
        let families = |first_line: &str| {
            let mut page = first_line.to_owned();
            crate::write(&[&TOOK, &UP], &mut page);
            decoded(&page)
        };
        let [took, up] = &families(native::PAGE)[..] else { panic!("two families") };
        assert_eq!((&*took.name, &*up.name, took.metrics.len()), ("took", "up", 2));
        let get = took.metrics[0].histogram.as_ref().expect("a histogram");
        assert_eq!((get.count, &*get.buckets), (5, &[Bucket { count: 4, bound: 0.5 }][..]));
        assert_eq!((get.schema, get.zero_count, get.zero_threshold), (Some(3), Some(1), Some(ZERO_THRESHOLD)));
        assert_eq!(get.positive_spans, [Span { offset: -16, length: 1 }, Span { offset: 15, length: 1 }]);
        assert_eq!(get.positive_deltas, [2, -1]);
        assert_eq!((&*get.negative_spans, &*get.negative_deltas), (&[Span { offset: 8, length: 1 }][..], &[1][..]));
        let put = took.metrics[1].histogram.as_ref().expect("a histogram");
        assert_eq!((&*put.positive_spans, &*put.positive_deltas), (&[Span { offset: 0, length: 1 }][..], &[1][..]));
        // Text has no words for them, so nobody writes them there.
        let classic = families("").remove(0).metrics.remove(0).histogram.expect("a histogram");
        assert_eq!((classic.count, classic.schema, classic.positive_spans.len()), (5, None, 0));
    }
}
