//! resource.k8s.io: devices.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, is_set, name, number, since};
use super::{AGE, NAME, Printer, integer, of, own, text};

/// The printer of a kind of resource.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "DeviceClass" | "ResourceClaimTemplate" => &NAME_AND_AGE,
        "DeviceTaintRule" => &TAINT_RULE,
        "ResourceClaim" => &CLAIM,
        "ResourcePoolStatusRequest" => &POOL_STATUS,
        "ResourceSlice" => &SLICE,
        _ => return None,
    })
}

static NAME_AND_AGE: Printer = Printer::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);

static CLAIM: Printer = Printer::new(
    &[NAME, text("State", own("How far the claim is: pending, allocated, reserved, deleted.")), AGE],
    |claim, now| vec![name(claim), json!(state(claim)), age(claim, now)],
);

fn state(claim: &Value) -> String {
    let (deleted, allocated) = (is_set(claim, "metadata.deletionTimestamp"), is_set(claim, "status.allocation"));
    let reserved = allocated && !value::list(claim, "status.reservedFor").is_empty();
    let states =
        [(deleted, "deleted"), (!allocated && !deleted, "pending"), (allocated, "allocated"), (reserved, "reserved")];
    states.into_iter().filter(|(is, _)| *is).map(|(_, state)| state).collect::<Vec<_>>().join(",")
}

const SLICE_SPEC: &str = "io.k8s.api.resource.v1.ResourceSliceSpec";

static SLICE: Printer = Printer::new(
    &[
        NAME,
        text("Node", of(SLICE_SPEC, "nodeName")),
        text("Driver", of(SLICE_SPEC, "driver")),
        text("Pool", of("io.k8s.api.resource.v1.ResourcePool", "name")),
        AGE,
    ],
    |slice, now| {
        let field = |path| json!(value::text(slice, path));
        vec![name(slice), field("spec.nodeName"), field("spec.driver"), field("spec.pool.name"), age(slice, now)]
    },
);

const TAINT: &str = "io.k8s.api.resource.v1.DeviceTaint";

static TAINT_RULE: Printer = Printer::new(
    &[
        NAME,
        text("Key", of(TAINT, "key")),
        text("Value", of(TAINT, "value")),
        text("Effect", of(TAINT, "effect")),
        text("TimeAdded", of(TAINT, "timeAdded")),
        AGE,
    ],
    |rule, now| {
        let field = |path| json!(value::text(rule, path));
        let added = "spec.taint.timeAdded";
        vec![
            name(rule),
            field("spec.taint.key"),
            field("spec.taint.value"),
            field("spec.taint.effect"),
            json!(if is_set(rule, added) { since(rule, added, now) } else { String::new() }),
            age(rule, now),
        ]
    },
);

static POOL_STATUS: Printer = Printer::new(
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
