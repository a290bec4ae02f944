//! The table of events at the end of most descriptions.

use jiff::Timestamp;
use machinery::{Value, time, value};

use crate::show::{at, int, since};
use crate::writer::{Writer, put};

pub fn write(out: &mut Writer, mut events: Vec<&Value>, now: Timestamp) {
    if events.is_empty() {
        return out.field(0, "Events", "<none>");
    }
    // The table has columns of its own.
    out.flush();
    events.sort_by_key(|event| time::parse_clamped(value::text(event, "lastTimestamp")));
    put!(out, 0, "Events:\n  Type\tReason\tAge\tFrom\tMessage\n");
    put!(out, 1, "----\t------\t----\t----\t-------\n");
    for event in events {
        let source = match value::text(event, "source.component") {
            "" => value::text(event, "reportingComponent"),
            component => component,
        };
        let message = value::text(event, "message").trim();
        let message = match value::text(event, "involvedObject.fieldPath") {
            "" => message.to_owned(),
            path => format!("{path}: {message}"),
        };
        let (kind, reason) = (value::text(event, "type"), value::text(event, "reason"));
        put!(out, 1, "{kind}\t{reason}\t{}\t{source}\t{message}\n", interval(event, now));
    }
}

/// When it happened, and how often since when.
fn interval(event: &Value, now: Timestamp) -> String {
    let first = match at(event, "eventTime") {
        Some(_) => since(event, "eventTime", now),
        None => since(event, "firstTimestamp", now),
    };
    if let Some(series) = at(event, "series") {
        return format!("{} (x{} over {first})", since(series, "lastObservedTime", now), int(series, "count"));
    }
    match int(event, "count") {
        count @ 2.. => format!("{} (x{count} over {first})", since(event, "lastTimestamp", now)),
        _ => first,
    }
}
