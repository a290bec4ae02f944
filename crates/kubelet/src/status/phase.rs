//! The phase: one word for the whole pod.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, PodStatus};

use super::{View, conditions, containers};
use crate::pod::spec;

/// Counts of containers by what became of them.
#[derive(Default)]
struct Count {
    unknown: u32,
    running: u32,
    waiting: u32,
    stopped: u32,
    succeeded: u32,
    stopped_for_good: u32,
}

/// What the containers' states make of the pod.
pub(super) fn phase(view: &View<'_>, status: &PodStatus) -> &'static str {
    let pod = view.pod;
    let initialized = view.state.regular_started(pod);
    let (mut pending_init, mut pending_sidecars, mut failed_for_good) = (0, 0, 0);
    let mut count = Count::default();
    for container in spec::init_containers(pod) {
        let status = find(&status.init_container_statuses, &container.name);
        let state = status.as_ref().and_then(|s| s.state.as_ref());
        let last = status.as_ref().and_then(|s| s.last_state.as_ref()).and_then(|s| s.terminated.as_ref());
        if spec::is_sidecar(container) {
            match state {
                Some(state) if state.running.is_some() => {
                    if status.as_ref().and_then(|s| s.started) != Some(true) {
                        pending_sidecars += 1;
                    }
                    count.running += 1;
                }
                // A sidecar that ended says nothing about the pod.
                Some(state) if state.terminated.is_some() || last.is_some() => {}
                Some(state) if state.waiting.is_some() => {
                    pending_sidecars += 1;
                    count.waiting += 1;
                }
                _ => count.unknown += 1,
            }
            continue;
        }
        let ended = state.and_then(|s| s.terminated.as_ref()).or(match state {
            Some(state) if state.waiting.is_some() => last,
            _ => None,
        });
        match ended {
            Some(ended) if ended.exit_code != 0 => {
                if !comes_back(view, container, ended) {
                    failed_for_good += 1;
                }
            }
            Some(_) => {}
            None => pending_init += 1,
        }
    }
    count_regular(view, status, &mut count);
    if failed_for_good > 0 {
        return "Failed";
    }
    if pending_init > 0 || (pending_sidecars > 0 && !initialized) || count.waiting > 0 {
        return "Pending";
    }
    if count.running > 0 && count.unknown == 0 {
        return "Running";
    }
    if count.running == 0 && count.stopped > 0 && count.unknown == 0 {
        let end = if count.stopped == count.succeeded { "Succeeded" } else { "Failed" };
        if view.terminal && !spec::is_static(pod) {
            return end;
        }
        return if count.stopped == count.stopped_for_good { end } else { "Running" };
    }
    "Pending"
}

/// Whether a container runs again after this end: by its own rules, or because all of them do.
fn comes_back(view: &View<'_>, container: &Container, ended: &ContainerStateTerminated) -> bool {
    spec::restarts_after(container, view.pod, ended.exit_code)
        || ended.reason.as_deref() == Some(containers::RESTARTING_ALL)
        || conditions::all_restart(view)
}

fn count_regular(view: &View<'_>, status: &PodStatus, count: &mut Count) {
    for container in spec::containers(view.pod) {
        let status = find(&status.container_statuses, &container.name);
        let state = status.as_ref().and_then(|s| s.state.as_ref());
        let last = status.as_ref().and_then(|s| s.last_state.as_ref()).and_then(|s| s.terminated.as_ref());
        match state {
            Some(state) if state.running.is_some() => count.running += 1,
            Some(state) if state.terminated.is_some() || (state.waiting.is_some() && last.is_some()) => {
                count.stopped += 1;
                let ended = state.terminated.as_ref().or(last);
                if !ended.is_some_and(|ended| comes_back(view, container, ended)) {
                    count.stopped_for_good += 1;
                }
                if state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0) {
                    count.succeeded += 1;
                }
            }
            Some(state) if state.waiting.is_some() => count.waiting += 1,
            _ => count.unknown += 1,
        }
    }
}

fn find(list: &Option<Vec<ContainerStatus>>, name: &str) -> Option<ContainerStatus> {
    list.iter().flatten().find(|status| status.name == name).cloned()
}
