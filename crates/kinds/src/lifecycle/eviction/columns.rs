//! lifecycle.k8s.io: evictions that are asked for and carried out as objects.

use jiff::Timestamp;
use machinery::{Value, time, value};
use serde_json::json;

use crate::lifecycle::targets::{requesters, status, target};
use crate::table::cells::{age, between, is_set, name, since, text_or};
use crate::table::{AGE, NAME, Printer, of, text};

const EVICTION_SPEC: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionSpec";
const EVICTION_STATUS: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionStatus";
const RESPONDER: &str = "io.k8s.api.lifecycle.v1alpha1.ResponderStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Target", of(EVICTION_SPEC, "target")),
        text("Target Type", of(EVICTION_SPEC, "target")),
        text("Status", of(EVICTION_STATUS, "conditions")),
        text("Active Responder", of("io.k8s.api.lifecycle.v1alpha1.TargetResponder", "state")),
        text("Responder Status", of(RESPONDER, "name")),
        text("Responder Expected Finish", of(RESPONDER, "expectedCompletionTime")),
        text("Requesters", of(EVICTION_STATUS, "requesters")),
        AGE,
        text("Responder Heartbeat", of(RESPONDER, "heartbeatTime")).wide(),
        text("Responder Status Message", of(RESPONDER, "message")).wide(),
    ],
    eviction,
);

fn eviction(object: &Value, now: Timestamp) -> Vec<Value> {
    let [target, kind] = target(object);
    let targets = value::list(object, "status.targetResponders");
    let state = |responder: &Value| value::text(responder, "state").to_owned();
    let is_processed = |responder: &&Value| matches!(&*state(responder), "Canceled" | "Interrupted" | "Completed");
    let is_active = |responder: &&Value| state(responder) == "Active";
    let begun = targets.iter().filter(|responder| is_processed(responder) || is_active(responder)).count();
    // The last one that was at work is shown when none is.
    let active = targets.iter().rfind(is_active).or_else(|| targets.iter().rfind(is_processed));
    let active_name = active.map_or("<unset>", |responder| value::text(responder, "name"));
    let report = active.and_then(|active| {
        let mut responders = value::list(object, "status.responders").iter();
        responders
            .find(|responder| value::text(responder, "name") == value::text(active, "name"))
            .map(|report| (active, report))
    });
    let (progress, finish) = report.map_or_else(
        || ("<unset>".to_owned(), "<unknown>".to_owned()),
        |(active, report)| responding(active, report, now),
    );
    let heartbeat = report
        .filter(|(_, report)| is_set(report, "heartbeatTime"))
        .map_or_else(|| "<unset>".to_owned(), |(_, report)| format!("{} ago", since(report, "heartbeatTime", now)));
    let message = report.map_or("", |(_, report)| value::text(report, "message").trim());
    vec![
        name(object),
        target,
        kind,
        json!(status(object)),
        json!(format!("{active_name} ({begun}/{})", targets.len())),
        json!(progress),
        json!(finish),
        json!(requesters(object)),
        age(object, now),
        json!(heartbeat),
        json!(if message.is_empty() { "<unset>" } else { message }),
    ]
}

/// What the active responder does, and when it means to be through.
fn responding(active: &Value, report: &Value, now: Timestamp) -> (String, String) {
    let state = text_or(active, "state", "");
    let mut finish = "<unknown>".to_owned();
    let progress = match state.as_str() {
        "Active" if is_set(report, "startTime") => {
            if let Some(expected) = time::parse_clamped(value::text(report, "expectedCompletionTime")) {
                finish = if expected > now {
                    format!("in {}", between(now, expected))
                } else {
                    format!("{} ago", between(expected, now))
                };
            }
            format!("Started ({} ago)", since(report, "startTime", now))
        }
        "Completed" if is_set(report, "completionTime") => {
            format!("{state} ({} ago)", since(report, "completionTime", now))
        }
        _ => state.clone(),
    };
    if matches!(state.as_str(), "Canceled" | "Interrupted" | "Completed") {
        finish = "-".to_owned();
    }
    (progress, finish)
}
