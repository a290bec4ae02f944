//! The next step for a pod: which sandbox to make, which containers to stop and which to start, in which order.
//!
//! [`plan`] sees the specification, what the runtime has and what the probes say, and nothing else; so it can be called at
//! any time and after any crash, and calling it again after its actions were done leads on to the next step or to none.

use k8s_openapi::api::core::v1::Pod;

use super::spec::{self, Kind};
use super::state::{Container, Life, Need, State};
use crate::probes::{self, Verdict, Verdicts};

/// Why a container is stopped: it decides how much time it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its startup probe gave up.
    StartupProbe,
    /// Its liveness probe gave up.
    LivenessProbe,
    Other,
}

/// A container to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    pub message: String,
    pub cause: Cause,
}

/// A container to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Its list in the specification.
    pub kind: Kind,
    /// Its place in that list.
    pub index: usize,
}

/// A sandbox to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSandbox {
    /// How many there were before.
    pub attempt: u32,
    /// Whether one that had worked before is replaced.
    pub replaces: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Stop everything there is of the pod first.
    pub kill_pod: bool,
    pub sandbox: Option<NewSandbox>,
    pub kill: Vec<Kill>,
    /// Start these, in this order.
    pub start: Vec<Start>,
    /// Stop and remove all containers, the one of this name last, and start over in the same sandbox.
    pub start_over: Option<String>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Decides the next step.
pub fn plan(pod: &Pod, state: &State, verdicts: &Verdicts) -> Plan {
    if let Need::New { attempt, replaces, .. } = state.need(pod) {
        return plan_sandbox(pod, state, attempt, replaces.is_some());
    }
    if let Some(name) = start_over(pod, state) {
        return Plan { start_over: Some(name.to_owned()), ..Plan::default() };
    }
    let mut plan = Plan::default();
    for (index, container) in spec::ephemeral_containers(pod).iter().enumerate() {
        if state.latest(&container.name).is_none() {
            plan.start.push(Start { kind: Kind::Ephemeral, index });
        }
    }
    match plan_init(pod, state, verdicts, &mut plan) {
        Initialized::Yes => {}
        Initialized::No => return plan,
        Initialized::Failed => return Plan { kill_pod: state.is_running(), ..Plan::default() },
    }
    plan_regular(pod, state, verdicts, plan)
}

/// The container whose end starts the whole pod over, if there is one.
pub fn start_over<'a>(pod: &'a Pod, state: &State) -> Option<&'a str> {
    if spec::is_deleting(pod) {
        return None;
    }
    let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
    let ended = all.find(|container| {
        let latest = state.active(&container.name).filter(|status| status.life == Life::Exited);
        latest.is_some_and(|status| spec::restarts_all(container, status.exit_code))
    });
    ended.map(|container| container.name.as_str())
}

/// A pod without a working sandbox starts over, unless it has nothing left to run.
fn plan_sandbox(pod: &Pod, state: &State, attempt: u32, replaces: bool) -> Plan {
    let stop_only = Plan { kill_pod: state.is_running(), ..Plan::default() };
    if spec::is_deleting(pod) {
        return stop_only;
    }
    // A pod that is never restarted, and had containers, has lived.
    if spec::restart_policy(pod) == "Never" && attempt != 0 && !state.containers.is_empty() {
        return stop_only;
    }
    let start: Vec<Start> = spec::containers(pod)
        .iter()
        .enumerate()
        .filter(|(_, container)| {
            let latest = state.latest(&container.name);
            let done =
                latest.is_some_and(|c| c.life == Life::Exited && !spec::restarts_after(container, pod, c.exit_code));
            !done
        })
        .map(|(index, _)| Start { kind: Kind::Regular, index })
        .collect();
    if start.is_empty() {
        return stop_only;
    }
    let start = if spec::init_containers(pod).is_empty() { start } else { vec![Start { kind: Kind::Init, index: 0 }] };
    Plan { kill_pod: state.is_running(), sandbox: Some(NewSandbox { attempt, replaces }), start, ..Plan::default() }
}

enum Initialized {
    Yes,
    No,
    Failed,
}

/// Init containers run one after the other; a sidecar counts as done once it has started, and is kept running from then on.
fn plan_init(pod: &Pod, state: &State, verdicts: &Verdicts, plan: &mut Plan) -> Initialized {
    let init = spec::init_containers(pod);
    // Once a regular container ran, the pod is initialized for good, whatever became of the init containers.
    let initialized = state.regular_started(pod);
    let reached = init.iter().rposition(|container| state.active(&container.name).is_some());
    let start = |plan: &mut Plan, index| plan.start.push(Start { kind: Kind::Init, index });
    for (index, container) in init.iter().enumerate() {
        let sidecar = spec::is_sidecar(container);
        // What comes before the last one that was made must have done its part, even if the runtime forgot it.
        let passed = initialized || reached.is_some_and(|reached| index < reached);
        let Some(status) = state.active(&container.name) else {
            if sidecar && passed {
                start(plan, index);
            } else if !passed {
                start(plan, index);
                return Initialized::No;
            }
            continue;
        };
        if sidecar {
            if !keep_sidecar(container, status, verdicts, plan, index) && !passed {
                return Initialized::No;
            }
            continue;
        }
        if passed {
            continue;
        }
        match status.life {
            Life::Exited if status.exit_code == 0 => {}
            Life::Exited if !spec::restarts_after(container, pod, status.exit_code) => return Initialized::Failed,
            Life::Unknown if spec::restart_policy(pod) == "Never" => return Initialized::Failed,
            Life::Running => return Initialized::No,
            Life::Exited | Life::Created => {
                start(plan, index);
                return Initialized::No;
            }
            Life::Unknown => {
                plan.kill.push(unknown("Init container", status));
                start(plan, index);
                return Initialized::No;
            }
        }
    }
    Initialized::Yes
}

/// Keeps a sidecar running; says whether those after it may start.
fn keep_sidecar(
    spec: &k8s_openapi::api::core::v1::Container,
    status: &Container,
    verdicts: &Verdicts,
    plan: &mut Plan,
    index: usize,
) -> bool {
    let mut again = |kill: Option<(String, Cause)>| {
        if let Some((message, cause)) = kill {
            plan.kill.push(Kill { id: status.id.clone(), name: status.name.clone(), message, cause });
        }
        plan.start.push(Start { kind: Kind::Init, index });
        false
    };
    let name = &spec.name;
    match status.life {
        Life::Created | Life::Exited => again(None),
        Life::Unknown => {
            let kill = unknown("Init container", status);
            again(Some((kill.message, kill.cause)))
        }
        Life::Running => {
            let startup = verdicts.get(&status.id, probes::Kind::Startup);
            if spec.startup_probe.is_some() && startup != Some(Verdict::Success) {
                if startup == Some(Verdict::Failure) {
                    return again(Some((format!("Init container {name} failed startup probe"), Cause::StartupProbe)));
                }
                return false;
            }
            if changed(spec, status) {
                return again(Some((format!("Init container {name} definition changed"), Cause::Other)));
            }
            if verdicts.get(&status.id, probes::Kind::Liveness) == Some(Verdict::Failure) {
                return again(Some((format!("Init container {name} failed liveness probe"), Cause::LivenessProbe)));
            }
            true
        }
    }
}

/// Regular containers all run at once; when none is left to run, the pod ends, sidecars and all.
fn plan_regular(pod: &Pod, state: &State, verdicts: &Verdicts, mut plan: Plan) -> Plan {
    let mut kept = 0;
    let mut started = false;
    for (index, container) in spec::containers(pod).iter().enumerate() {
        let mut start = |plan: &mut Plan| {
            started = true;
            plan.start.push(Start { kind: Kind::Regular, index });
        };
        let status = match state.latest(&container.name) {
            Some(status) if status.life == Life::Running => status,
            other => {
                if wants_start(container, pod, other) {
                    if let Some(status) = other.filter(|status| status.life == Life::Unknown) {
                        plan.kill.push(unknown("Container", status));
                    }
                    start(&mut plan);
                }
                continue;
            }
        };
        let name = &container.name;
        let restarts = spec::restarts_after(container, pod, 137);
        let (message, cause, restarts) = if changed(container, status) {
            (format!("Container {name} definition changed"), Cause::Other, true)
        } else if verdicts.get(&status.id, probes::Kind::Liveness) == Some(Verdict::Failure) {
            (format!("Container {name} failed liveness probe"), Cause::LivenessProbe, restarts)
        } else if verdicts.get(&status.id, probes::Kind::Startup) == Some(Verdict::Failure) {
            (format!("Container {name} failed startup probe"), Cause::StartupProbe, restarts)
        } else {
            kept += 1;
            continue;
        };
        let message = if restarts { format!("{message}, will be restarted") } else { message };
        plan.kill.push(Kill { id: status.id.clone(), name: name.clone(), message, cause });
        if restarts {
            start(&mut plan);
        }
    }
    if kept == 0 && !started {
        // What was to be stopped is stopped with the pod; sidecars are not started for nobody.
        return Plan { kill_pod: state.is_running(), ..Plan::default() };
    }
    plan
}

/// Whether a container that does not run should.
pub fn wants_start(container: &k8s_openapi::api::core::v1::Container, pod: &Pod, status: Option<&Container>) -> bool {
    if spec::is_deleting(pod) {
        return false;
    }
    match status {
        None => true,
        Some(status) => match status.life {
            Life::Running => false,
            Life::Created | Life::Unknown => true,
            Life::Exited => spec::restarts_after(container, pod, status.exit_code),
        },
    }
}

fn changed(spec: &k8s_openapi::api::core::v1::Container, status: &Container) -> bool {
    !status.hash.is_empty() && status.hash != spec::hash(spec)
}

fn unknown(what: &str, status: &Container) -> Kill {
    Kill {
        id: status.id.clone(),
        name: status.name.clone(),
        message: format!("{what} is in {:?} state, try killing it before restart", status.life.as_str()),
        cause: Cause::Other,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
