//! The status of each container: what it does now, what it did last, whether it is started and ready.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, VolumeMountStatus,
};

use super::{View, conditions};
use crate::pod::plan::wants_start;
use crate::pod::spec::{self, Kind};
use crate::pod::state::{Container as Runtime, Life, time};
use crate::probes::{self, Verdict};

/// Reason of a container that goes because all containers of its pod are restarted.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// Of `spec.containers`, in the order of their names.
pub(super) fn regular(view: &View<'_>) -> Vec<ContainerStatus> {
    let old = view.old.container_statuses.as_deref().unwrap_or_default();
    sorted(spec::containers(view.pod).iter().map(|c| one(view, Kind::Regular, c, old)).collect())
}

/// Of `spec.initContainers`, in their own order.
pub(super) fn init(view: &View<'_>) -> Vec<ContainerStatus> {
    let old = view.old.init_container_statuses.as_deref().unwrap_or_default();
    spec::init_containers(view.pod).iter().map(|c| one(view, Kind::Init, c, old)).collect()
}

/// Of `spec.ephemeralContainers`, in the order of their names.
pub(super) fn ephemeral(view: &View<'_>) -> Vec<ContainerStatus> {
    let old = view.old.ephemeral_container_statuses.as_deref().unwrap_or_default();
    let members = spec::members(view.pod).filter(|member| member.kind == Kind::Ephemeral);
    sorted(members.map(|member| one(view, Kind::Ephemeral, &member.container, old)).collect())
}

fn sorted(mut list: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

fn one(view: &View<'_>, kind: Kind, container: &Container, old: &[ContainerStatus]) -> ContainerStatus {
    let old = old.iter().find(|status| status.name == container.name);
    let mut seen = view.state.containers.iter().filter(|c| c.name == container.name);
    let (latest, previous) = (seen.next(), seen.next());
    let mut status = match latest {
        Some(latest) => from_runtime(view, container, latest, previous, old),
        None => without_runtime(view, container, old),
    };
    status.volume_mounts = volume_mounts(container, latest);
    explain(view, kind, container, latest, &mut status);
    judge(view, kind, container, latest, &mut status);
    status
}

fn from_runtime(
    view: &View<'_>,
    spec: &Container,
    latest: &Runtime,
    previous: Option<&Runtime>,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let in_force = view.allocation.and_then(|allocation| allocation.in_force(&latest.id));
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        restart_count: i32::try_from(latest.restarts).unwrap_or(i32::MAX),
        image: latest.image.clone(),
        image_id: latest.image_ref.clone(),
        container_id: Some(format!("{}://{}", view.runtime, latest.id)),
        state: Some(state(view, latest, old)),
        last_state: previous.map(|previous| state(view, previous, None)),
        allocated_resources: spec.resources.as_ref().and_then(|r| r.requests.clone()),
        resources: in_force.or(spec.resources.as_ref()).cloned(),
        user: latest.user.as_ref().map(|user| ContainerUser {
            linux: Some(LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: (!user.supplemental_groups.is_empty()).then(|| user.supplemental_groups.clone()),
            }),
        }),
        ..ContainerStatus::default()
    };
    if let Some(old) = old {
        // The runtime may have removed what ran before; the API still knows it.
        status.restart_count = status.restart_count.max(old.restart_count);
        if status.last_state.is_none() {
            let new_one = old.container_id != status.container_id;
            let ended = old.state.as_ref().filter(|state| new_one && state.terminated.is_some());
            status.last_state = ended.or(old.last_state.as_ref()).cloned();
        }
        if latest.life == Life::Unknown && old.state.as_ref().is_some_and(|s| s.running.is_some()) {
            status.restart_count = old.restart_count + 1;
        }
    }
    status
}

fn state(view: &View<'_>, container: &Runtime, old: Option<&ContainerStatus>) -> ContainerState {
    let at = |nanos: i64| (nanos != 0).then(|| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time(nanos)));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match container.life {
        Life::Running => ContainerState {
            running: Some(ContainerStateRunning { started_at: at(container.started_at) }),
            ..Default::default()
        },
        Life::Exited => ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: container.exit_code,
                reason: text(&container.reason),
                message: text(&container.message),
                started_at: at(container.started_at),
                finished_at: at(container.finished_at),
                container_id: Some(format!("{}://{}", view.runtime, container.id)),
                signal: None,
            }),
            ..Default::default()
        },
        // It ran and does not any more, and nobody knows how it ended. "Never ran" would be wrong.
        Life::Unknown if old.and_then(|o| o.state.as_ref()).is_some_and(|s| s.running.is_some()) => {
            lost("The container could not be located when the pod was terminated")
        }
        Life::Created | Life::Unknown => waiting("", ""),
    }
}

fn lost(message: &str) -> ContainerState {
    ended("ContainerStatusUnknown", message)
}

/// An end that nobody saw.
fn ended(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..Default::default()
    }
}

/// The runtime has no such container: it was not made yet, or it is gone.
fn without_runtime(view: &View<'_>, spec: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
    let initial = if spec::init_containers(view.pod).is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(waiting(initial, "")),
        ..ContainerStatus::default()
    };
    let Some(old) = old else { return status };
    if conditions::all_restart(view) && old.state.as_ref().is_some_and(|state| state.waiting.is_none()) {
        let message = "The container is removed because RestartAllContainers in place";
        status.state = Some(waiting(RESTARTING_ALL, message));
        status.last_state = Some(ended(RESTARTING_ALL, message));
        status.restart_count = old.restart_count + 1;
        return status;
    }
    if old.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        return old.clone();
    }
    status.restart_count = old.restart_count;
    status.last_state = old.last_state.clone();
    let ran = old.state.as_ref().is_some_and(|state| state.running.is_some());
    if ran && status.last_state.as_ref().is_none_or(|state| state.terminated.is_none()) {
        status.last_state = Some(lost(
            "The container could not be located when the pod was deleted.  The container used to be Running",
        ));
        if !spec::is_deleting(view.pod) {
            status.restart_count += 1;
        }
    }
    status
}

/// A container that should run and does not waits; why, if it is known.
fn explain(view: &View<'_>, kind: Kind, spec: &Container, latest: Option<&Runtime>, status: &mut ContainerStatus) {
    if kind == Kind::Init {
        if latest.is_some_and(|c| c.life == Life::Exited && c.exit_code == 0) && !spec::is_sidecar(spec) {
            return;
        }
        let waits = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
        if latest.is_none() && waits && !spec::is_sidecar(spec) && view.state.regular_created(view.pod) {
            status.state = Some(ContainerState {
                terminated: Some(ContainerStateTerminated {
                    reason: Some("Completed".to_owned()),
                    message: Some(
                        "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
                            .to_owned(),
                    ),
                    ..Default::default()
                }),
                ..Default::default()
            });
            return;
        }
    }
    if view.terminal || !wants_start(spec, view.pod, latest) {
        return;
    }
    let Some(why) = view.waiting.get(&spec.name) else { return };
    if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        status.last_state = status.state.take();
    }
    status.state = Some(waiting(&why.reason, &why.message));
}

/// Started and ready, as the probes say.
fn judge(view: &View<'_>, kind: Kind, spec: &Container, latest: Option<&Runtime>, status: &mut ContainerStatus) {
    if kind == Kind::Ephemeral {
        return;
    }
    let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    let verdict = |kind| latest.and_then(|c| view.verdicts.get(&c.id, kind));
    let started = running && (spec.startup_probe.is_none() || verdict(probes::Kind::Startup) == Some(Verdict::Success));
    status.started = Some(started);
    status.ready = if kind == Kind::Init && !spec::is_sidecar(spec) {
        status.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|ended| ended.exit_code == 0)
    } else {
        started && (spec.readiness_probe.is_none() || verdict(probes::Kind::Readiness) == Some(Verdict::Success))
    };
}

fn volume_mounts(spec: &Container, latest: Option<&Runtime>) -> Option<Vec<VolumeMountStatus>> {
    let recursive = |path: &String| latest.is_some_and(|container| container.recursive_read_only.contains(path));
    let word = |path: &String| if recursive(path) { "Enabled" } else { "Disabled" }.to_owned();
    let mounts = spec.volume_mounts.as_ref()?.iter().map(|mount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: (mount.read_only == Some(true)).then(|| word(&mount.mount_path)),
        ..Default::default()
    });
    Some(mounts.collect())
}
