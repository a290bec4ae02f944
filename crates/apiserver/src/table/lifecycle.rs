//! lifecycle.k8s.io: evictions that are asked for and carried out as objects.

use jiff::Timestamp;
use machinery::{Value, time, value};
use serde_json::json;

use super::cells::{age, between, condition, first, is_set, name, number, since, text_or};
use super::{AGE, NAME, Printer, of, text};

/// The printer of a kind of lifecycle.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    match kind {
        "Eviction" => Some(&EVICTION),
        "EvictionRequest" => Some(&EVICTION_REQUEST),
        _ => None,
    }
}

const REQUEST_SPEC: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionRequestSpec";
const EVICTION_SPEC: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionSpec";
const EVICTION_STATUS: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionStatus";
const RESPONDER: &str = "io.k8s.api.lifecycle.v1alpha1.ResponderStatus";

static EVICTION_REQUEST: Printer = Printer::new(
    &[
        NAME,
        text("Target", of(REQUEST_SPEC, "target")),
        text("Target Type", of(REQUEST_SPEC, "target")),
        text("Status", of("io.k8s.api.lifecycle.v1alpha1.EvictionRequestStatus", "conditions")),
        text("Requester", of(REQUEST_SPEC, "requester")),
        text("Intent", of(REQUEST_SPEC, "intent")),
        AGE,
    ],
    |request, now| {
        let [target, kind] = target(request);
        vec![
            name(request),
            target,
            kind,
            json!(status(request)),
            json!(value::text(request, "spec.requester")),
            json!(value::text(request, "spec.intent")),
            age(request, now),
        ]
    },
);

static EVICTION: Printer = Printer::new(
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

fn target(object: &Value) -> [Value; 2] {
    if is_set(object, "spec.target.pod") {
        [json!(value::text(object, "spec.target.pod.name")), json!("Pod")]
    } else {
        [json!("<unset>"), json!("<unset>")]
    }
}

fn status(object: &Value) -> String {
    let met = |kind: &str| condition(object, kind).filter(|condition| value::text(condition, "status") == "True");
    let shown =
        |condition: &Value| format!("{} ({})", value::text(condition, "type"), value::text(condition, "reason"));
    if let Some(condition) = met("TargetEvicted").or_else(|| met("Failed")) {
        return shown(condition);
    }
    if number(object, "status.observedGeneration") > 0 { "Progressing" } else { "Pending" }.to_owned()
}

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

fn requesters(object: &Value) -> String {
    let all = value::list(object, "status.requesters");
    let mut still: Vec<String> = all
        .iter()
        .filter(|requester| value::text(requester, "intent") != "Withdrawn")
        .map(|requester| value::text(requester, "name").to_owned())
        .collect();
    still.sort_unstable();
    match (all.is_empty(), still.is_empty()) {
        (true, _) => "<none>".to_owned(),
        (false, true) => "<withdrawn>".to_owned(),
        (false, false) => first(&still, 1),
    }
}
