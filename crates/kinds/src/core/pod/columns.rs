//! Pods. Most of what people know of a pod they know from its STATUS, which is not a field but computed from many.

use jiff::Timestamp;
use machinery::{Value, time, value};
use serde_json::json;

use crate::table::cells::{age, between, is_true, name, number, text_or};
use crate::table::{AGE, Column, NAME, Printer, of, own, text};

const STATUS: &str = "io.k8s.api.core.v1.PodStatus";
const SPEC: &str = "io.k8s.api.core.v1.PodSpec";

const COLUMNS: [Column; 9] = [
    NAME,
    text("Ready", own("How many of the pod's containers are ready, and how many there are.")),
    text("Status", own("What the containers of the pod are doing, in a word.")),
    text("Restarts", own("How often containers of the pod were restarted, and when the last time was.")),
    AGE,
    text("IP", of(STATUS, "podIP")).wide(),
    text("Node", of(SPEC, "nodeName")).wide(),
    text("Nominated Node", of(STATUS, "nominatedNodeName")).wide(),
    text("Readiness Gates", of(SPEC, "readinessGates")).wide(),
];

pub static TABLE: Printer = Printer { conditions, ..Printer::new(&COLUMNS, cells) };

/// A pod that has ended says so, so that clients may leave it out.
fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match value::text(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let story = summarize(pod);
    let restarts = match story.restarted {
        Some(at) if story.restarts != 0 => format!("{} ({} ago)", story.restarts, between(at, now)),
        _ => story.restarts.to_string(),
    };
    let address = value::list(pod, "status.podIPs").first().map_or("", |address| value::text(address, "ip"));
    vec![
        name(pod),
        json!(format!("{}/{}", story.ready, story.total)),
        json!(story.reason),
        json!(restarts),
        age(pod, now),
        json!(if address.is_empty() { "<none>" } else { address }),
        json!(text_or(pod, "spec.nodeName", "<none>")),
        json!(text_or(pod, "status.nominatedNodeName", "<none>")),
        json!(gates(pod)),
    ]
}

/// What the cells say about a pod's containers.
#[derive(Default)]
struct Story {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    /// When a container ended the last time before it was started again.
    restarted: Option<Timestamp>,
}

impl Story {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += number(container, "restartCount");
        let ended = time::parse_clamped(value::text(container, "lastState.terminated.finishedAt"));
        self.restarted = self.restarted.max(ended);
    }
}

fn summarize(pod: &Value) -> Story {
    let phase = value::text(pod, "status.phase");
    let init = value::list(pod, "spec.initContainers");
    let sidecars = init.iter().filter(|container| is_sidecar(container)).count();
    let mut story = Story {
        reason: text_or(pod, "status.reason", phase),
        total: value::list(pod, "spec.containers").len() + sidecars,
        ..Story::default()
    };
    let gated = |condition: &Value| {
        value::text(condition, "type") == "PodScheduled" && value::text(condition, "reason") == "SchedulingGated"
    };
    if value::list(pod, "status.conditions").iter().any(gated) {
        story.reason = "SchedulingGated".to_owned();
    }
    let (initializing, sidecar_restarts) = summarize_init(pod, init, &mut story);
    if !initializing || is_true(pod, "Initialized") {
        // What happened before the pod was initialized no longer matters, except to containers that go on running.
        story.restarts = sidecar_restarts.restarts;
        story.restarted = sidecar_restarts.restarted;
        summarize_main(pod, &mut story);
    }
    if value::at(pod, "metadata.deletionTimestamp").is_some() {
        if value::text(pod, "status.reason") == "NodeLost" {
            story.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Failed" | "Succeeded") {
            story.reason = "Terminating".to_owned();
        }
    }
    story
}

/// The containers that run one after the other. Whether one of them is still at it, and the restarts of those that stay.
fn summarize_init(pod: &Value, init: &[Value], story: &mut Story) -> (bool, Story) {
    let mut sidecars = Story::default();
    for (index, status) in value::list(pod, "status.initContainerStatuses").iter().enumerate() {
        let named = |container: &&Value| value::text(container, "name") == value::text(status, "name");
        let sidecar = init.iter().find(named).is_some_and(is_sidecar);
        story.count_restarts(status);
        if sidecar {
            sidecars.count_restarts(status);
        }
        let terminated = value::at(status, "state.terminated").filter(|state| state.is_object());
        if terminated.is_some_and(|state| number(state, "exitCode") == 0) {
            continue;
        }
        if sidecar && value::flag(status, "started") {
            story.ready += usize::from(value::flag(status, "ready"));
            continue;
        }
        let waiting = value::text(status, "state.waiting.reason");
        story.reason = match terminated {
            Some(state) => format!("Init:{}", ending(state)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", init.len()),
        };
        return (true, sidecars);
    }
    (false, sidecars)
}

/// The containers that run together. The first one that is not well gives its reason, so they are read backwards.
fn summarize_main(pod: &Value, story: &mut Story) {
    let mut running = false;
    let mut failure = None;
    for status in value::list(pod, "status.containerStatuses").iter().rev() {
        story.count_restarts(status);
        let waiting = value::text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            story.reason = waiting.to_owned();
        } else if let Some(state) = value::at(status, "state.terminated").filter(|state| state.is_object()) {
            story.reason = ending(state);
            if number(state, "exitCode") != 0 {
                failure = Some(story.reason.clone());
            }
        } else if value::flag(status, "ready") && value::at(status, "state.running").is_some_and(Value::is_object) {
            running = true;
            story.ready += 1;
        }
    }
    // A container that is through does not make a pod complete while another still runs or has failed.
    if story.reason == "Completed" {
        if running && is_true_anywhere(pod, "Ready") {
            story.reason = "Running".to_owned();
        } else if let Some(failure) = failure {
            story.reason = failure;
        } else if running {
            story.reason = "NotReady".to_owned();
        }
    }
}

/// How a container ended: its reason, or its signal, or its exit code.
fn ending(state: &Value) -> String {
    match (value::text(state, "reason"), number(state, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(state, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(container: &Value) -> bool {
    value::text(container, "restartPolicy") == "Always"
}

fn is_true_anywhere(pod: &Value, kind: &str) -> bool {
    value::list(pod, "status.conditions")
        .iter()
        .any(|condition| value::text(condition, "type") == kind && value::text(condition, "status") == "True")
}

fn gates(pod: &Value) -> String {
    let gates = value::list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| is_true(pod, value::text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len())
}
