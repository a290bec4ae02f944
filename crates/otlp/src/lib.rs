//! Spans on their way to a collector: OpenTelemetry's protocol over gRPC, as upstream's components send them.
//!
//! Whoever works hands a span over and goes on ([`hops::export`]): a queue takes it, or, when the collector is slow or away and the queue is
//! full, it is dropped and counted. One task makes batches of what is queued, five seconds after the first at the latest, and sends them. It sleeps
//! while there is nothing to send. Sizes and times are those of OpenTelemetry's own batches.

mod configuration;
mod encode;
mod sender;

pub use configuration::Configuration;
pub use sender::{Sender, start};

use figures::{Counter, Family};

/// The messages of the wire contract, and a server of them for tests.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
}

static EXPORTED: Counter =
    Counter::new("trireme_trace_spans_exported_total", "[ALPHA] Spans that a collector has taken.", &[]);

static DROPPED: Counter = Counter::new(
    "trireme_trace_spans_dropped_total",
    "[ALPHA] Spans that were to be exported and were not, by reason: the queue was full, or the collector did not take them.",
    &["reason"],
);

/// Appends the figures of exporters.
pub fn write_metrics(text: &mut String) {
    figures::write(&[&EXPORTED as &dyn Family, &DROPPED], text);
}
