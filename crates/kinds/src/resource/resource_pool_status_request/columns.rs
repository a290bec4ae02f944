//! What a table shows of ResourcePoolStatusRequests.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{is_set, name, number, since};
use crate::table::{NAME, Printer, integer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Driver", own("The driver whose pools were asked for.")),
        text("Total", own("How many devices the pools have.")),
        text("Available", own("How many of them are free.")),
        text("Allocated", own("How many of them are in use.")),
        text("Unavailable", own("How many of them cannot be used.")),
        text("Errors", own("How many pools are not valid.")),
        integer("Pools", own("How many pools match.")),
        text("Status", own("How far the request is.")),
        text("Completed", own("How long ago it was answered.")),
    ],
    pool_status,
);

fn pool_status(request: &Value, now: Timestamp) -> Vec<Value> {
    let pools = value::list(request, "status.pools");
    let count = number(request, "status.poolCount");
    let mut ends = value::list(request, "status.conditions").iter().filter(|condition| {
        value::text(condition, "status") == "True" && matches!(value::text(condition, "type"), "Complete" | "Failed")
    });
    let end = ends.next();
    let kind = end.map_or("Pending", |condition| value::text(condition, "type"));
    let status = match kind {
        "Complete" if count > pools.len() as i64 => format!("Complete ({}/{count} pools)", pools.len()),
        kind => kind.to_owned(),
    };
    let counted = is_set(request, "status") && kind != "Failed";
    let shown = |sum: i64| json!(if counted { sum.to_string() } else { "-".to_owned() });
    let sum = |field: &str| shown(pools.iter().map(|pool| number(pool, field)).sum());
    let completed = end
        .filter(|_| kind == "Complete")
        .map_or_else(|| "<none>".to_owned(), |end| since(end, "lastTransitionTime", now));
    vec![
        name(request),
        json!(value::text(request, "spec.driver")),
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        shown(pools.iter().filter(|pool| is_set(pool, "validationError")).count() as i64),
        json!(count),
        json!(status),
        json!(completed),
    ]
}
