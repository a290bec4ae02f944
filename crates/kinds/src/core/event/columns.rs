//! What a table shows of Events.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{is_set, name, number, since, text_or};
use crate::table::{NAME, Printer, of, text};

const EVENT_TYPE: &str = "io.k8s.api.core.v1.Event";

pub static TABLE: Printer = Printer::new(
    &[
        text("Last Seen", of(EVENT_TYPE, "lastTimestamp")),
        text("Type", of(EVENT_TYPE, "type")),
        text("Reason", of(EVENT_TYPE, "reason")),
        text("Object", of(EVENT_TYPE, "involvedObject")),
        text("Subobject", of("io.k8s.api.core.v1.ObjectReference", "fieldPath")).wide(),
        text("Source", of(EVENT_TYPE, "source")).wide(),
        text("Message", of(EVENT_TYPE, "message")),
        text("First Seen", of(EVENT_TYPE, "firstTimestamp")).wide(),
        text("Count", of(EVENT_TYPE, "count")).wide(),
        NAME.wide(),
    ],
    event,
);

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = since(event, if is_set(event, "firstTimestamp") { "firstTimestamp" } else { "eventTime" }, now);
    let (last, count) = if is_set(event, "series") {
        (since(event, "series.lastObservedTime", now), number(event, "series.count"))
    } else {
        let last = if is_set(event, "lastTimestamp") { since(event, "lastTimestamp", now) } else { first.clone() };
        // An event of the newer API that happened once has no count.
        (last, number(event, "count").max(1))
    };
    let kind = value::text(event, "involvedObject.kind").to_lowercase();
    let object = match value::text(event, "involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(event, "source.component", value::text(event, "reportingComponent"));
    let instance = text_or(event, "source.host", value::text(event, "reportingInstance"));
    vec![
        json!(last),
        json!(value::text(event, "type")),
        json!(value::text(event, "reason")),
        json!(object),
        json!(value::text(event, "involvedObject.fieldPath")),
        json!(if instance.is_empty() { component } else { format!("{component}, {instance}") }),
        json!(value::text(event, "message").trim()),
        json!(first),
        json!(count),
        name(event),
    ]
}
