//! The kubelet's conditions, with their reasons and messages.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::{View, seconds};
use crate::pod::plan;
use crate::pod::spec;
use crate::pod::state::Need;

/// The conditions that are ours to write; all others are kept as they are.
pub(super) const OURS: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];

/// All conditions of the pod: others' as they are, then ours.
pub(super) fn all(view: &View<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let api = view.pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let mut out: Vec<PodCondition> = api.iter().filter(|c| !OURS.contains(&c.type_.as_str())).cloned().collect();
    // A disruption is noted once, when it happens, and must not be lost to an older copy of the pod.
    if let Some(disruption) = find(view.old.conditions.as_deref().unwrap_or_default(), "DisruptionTarget") {
        out.retain(|c| c.type_ != "DisruptionTarget");
        out.push(disruption.clone());
    }
    if let Some(why) = view.verdict.and_then(|verdict| verdict.disruption.as_ref()) {
        out.retain(|c| c.type_ != "DisruptionTarget");
        let mut noted = new("DisruptionTarget", true, "TerminationByKubelet", why);
        noted.observed_generation = view.pod.metadata.generation;
        transition(&mut noted, view.old.conditions.as_deref().unwrap_or_default(), view.now);
        out.push(noted);
    }
    let containers = containers_ready(view, status);
    let ready = ready(view, &out, &containers);
    let ours = [sandbox(view), initialized(view, status), ready, containers, new("PodScheduled", true, "", "")];
    let generation = view.pod.metadata.generation;
    for mut condition in ours.into_iter().chain(resize(view)).chain(restarting(view)) {
        condition.observed_generation = generation;
        transition(&mut condition, view.old.conditions.as_deref().unwrap_or_default(), view.now);
        out.push(condition);
    }
    out
}

fn find<'a>(list: &'a [PodCondition], name: &str) -> Option<&'a PodCondition> {
    list.iter().find(|condition| condition.type_ == name)
}

/// A condition that did not change keeps the time it changed last.
fn transition(condition: &mut PodCondition, old: &[PodCondition], now: Timestamp) {
    let same = find(old, &condition.type_).filter(|old| old.status == condition.status);
    condition.last_transition_time =
        same.and_then(|old| old.last_transition_time.clone()).or_else(|| Some(seconds(now)));
}

fn new(name: &str, holds: bool, reason: &str, message: &str) -> PodCondition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodCondition {
        type_: name.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: text(reason),
        message: text(message),
        ..PodCondition::default()
    }
}

/// Whether all containers of the pod are being restarted: one ended with a rule that says so, or they are on their way already,
/// the one that ended among them.
pub(super) fn all_restart(view: &View<'_>) -> bool {
    if view.terminal || !spec::could_restart_all(view.pod) {
        return false;
    }
    let before = find(view.old.conditions.as_deref().unwrap_or_default(), "AllContainersRestarting");
    before.is_some_and(|condition| condition.status == "True") || plan::start_over(view.pod, view.state).is_some()
}

/// Whether the pod is being started over, for pods that may be.
fn restarting(view: &View<'_>) -> Option<PodCondition> {
    spec::could_restart_all(view.pod).then(|| match plan::start_over(view.pod, view.state) {
        Some(_) if !view.terminal => new(
            "AllContainersRestarting",
            true,
            "RestartAllContainersStarted",
            "container exited with restart policy rule",
        ),
        _ => new("AllContainersRestarting", false, "", ""),
    })
}

/// A change of resources that waits, and one that is on its way.
fn resize(view: &View<'_>) -> impl Iterator<Item = PodCondition> {
    let pending = view.resize.pending.as_ref();
    let pending = pending.map(|(reason, message)| new("PodResizePending", true, reason, message));
    let progress = view.resize.progress.as_ref().map(|error| match error {
        Some(why) => new("PodResizeInProgress", true, "Error", why),
        None => new("PodResizeInProgress", true, "", ""),
    });
    pending.into_iter().chain(progress)
}

fn sandbox(view: &View<'_>) -> PodCondition {
    match view.state.need(view.pod) {
        Need::Nothing => new("PodReadyToStartContainers", true, "", ""),
        Need::New { why, .. } => new("PodReadyToStartContainers", false, "PodSandboxNotReady", why),
    }
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.init_container_statuses.iter().chain(status.container_statuses.iter()).flatten()
}

fn initialized(view: &View<'_>, status: &PodStatus) -> PodCondition {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in spec::init_containers(view.pod) {
        match statuses(status).find(|s| s.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(s) => {
                let done = if spec::is_sidecar(container) { s.started == Some(true) } else { s.ready };
                if !done {
                    incomplete.push(container.name.as_str());
                }
            }
        }
    }
    if status.phase.as_deref() == Some("Succeeded") && unknown.is_empty() {
        return new("Initialized", true, "PodCompleted", "");
    }
    let started = spec::containers(view.pod).iter().any(|container| {
        let state = statuses(status).find(|s| s.name == container.name).and_then(|s| s.state.as_ref());
        let past = statuses(status).find(|s| s.name == container.name).and_then(|s| s.last_state.as_ref());
        state.is_some_and(|s| s.running.is_some() || s.terminated.is_some())
            || past.is_some_and(|s| s.terminated.is_some())
    });
    let message = message(&[("unknown", &unknown), ("incomplete", &incomplete)]);
    let before = find(view.old.conditions.as_deref().unwrap_or_default(), "Initialized");
    let was = spec::could_restart_all(view.pod) && before.is_some_and(|condition| condition.status == "True");
    if started || was || message.is_empty() {
        return new("Initialized", true, "", "");
    }
    new("Initialized", false, "ContainersNotInitialized", &message)
}

fn containers_ready(view: &View<'_>, status: &PodStatus) -> PodCondition {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = spec::init_containers(view.pod).iter().filter(|c| spec::is_sidecar(c));
    for container in sidecars.chain(spec::containers(view.pod)) {
        match statuses(status).find(|s| s.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(s) if !s.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    match status.phase.as_deref() {
        Some("Succeeded") if unknown.is_empty() => return new("ContainersReady", false, "PodCompleted", ""),
        Some("Failed") => return new("ContainersReady", false, "PodFailed", ""),
        _ => {}
    }
    let message = message(&[("unknown", &unknown), ("unready", &unready)]);
    if message.is_empty() {
        return new("ContainersReady", true, "", "");
    }
    new("ContainersReady", false, "ContainersNotReady", &message)
}

fn ready(view: &View<'_>, others: &[PodCondition], containers: &PodCondition) -> PodCondition {
    if containers.status != "True" {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return new("Ready", false, &text(&containers.reason), &text(&containers.message));
    }
    let gates = view.pod.spec.as_ref().and_then(|s| s.readiness_gates.as_deref()).unwrap_or_default();
    let unready: Vec<String> = gates
        .iter()
        .filter_map(|gate| match find(others, &gate.condition_type) {
            None => {
                Some(format!("corresponding condition of pod readiness gate {:?} does not exist.", gate.condition_type))
            }
            Some(c) if c.status != "True" => Some(format!(
                "the status of pod readiness gate {:?} is not \"True\", but {}",
                gate.condition_type, c.status
            )),
            Some(_) => None,
        })
        .collect();
    if unready.is_empty() {
        return new("Ready", true, "", "");
    }
    new("Ready", false, "ReadinessGatesNotReady", &unready.join(", "))
}

/// `containers with unready status: [a b], ...`
fn message(lists: &[(&str, &[&str])]) -> String {
    let parts = lists.iter().filter(|(_, names)| !names.is_empty());
    parts
        .map(|(word, names)| format!("containers with {word} status: [{}]", names.join(" ")))
        .collect::<Vec<_>>()
        .join(", ")
}
