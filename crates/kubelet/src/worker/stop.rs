//! Stopping what runs: containers in their order, each with its hook and its time, then the sandboxes.

use std::time::Duration;

use futures::future::join_all;
use informer::EventType;
use k8s_openapi::api::core::v1::Pod;

use super::Worker;
use crate::pod::plan::Cause;
use crate::pod::spec;
use crate::pod::state::{Container, Life, State, TERMINATION_GRACE_PERIOD};
use crate::shared::Shared;

/// Even a container that is given no time gets this much, so that few are killed in the middle of leaving.
const LEAST_GRACE: i64 = 2;

/// What stopping needs of a worker, so that the worker can go on while something stops.
pub(super) struct Stopper<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pod: &'a Pod,
    /// What was running when it was last looked at.
    pub(super) state: &'a State,
}

impl Worker {
    pub(super) fn stopper(&self) -> Stopper<'_> {
        Stopper { shared: &self.shared, pod: &self.pod, state: &self.state }
    }
}

impl Stopper<'_> {
    /// Stops all containers, sidecars last and in the reverse of their order, then the sandboxes.
    pub(super) async fn all(&self, grace: Option<i64>) -> Result<(), node::cri::Error> {
        let running: Vec<&Container> =
            self.state.containers.iter().filter(|c| matches!(c.life, Life::Running | Life::Unknown)).collect();
        let place = |container: &&Container| {
            spec::init_containers(self.pod).iter().position(|s| s.name == container.name && spec::is_sidecar(s))
        };
        let (mut sidecars, others): (Vec<&Container>, Vec<&Container>) =
            running.into_iter().partition(|c| place(c).is_some());
        sidecars.sort_by_key(|container| std::cmp::Reverse(place(container)));
        let since = self.shared.clock.monotonic();
        let stopped = join_all(others.iter().map(|c| self.one(&c.id, &c.name, "", Cause::Other, grace))).await;
        stopped.into_iter().collect::<Result<(), _>>()?;
        for sidecar in sidecars {
            let spent = i64::try_from((self.shared.clock.monotonic() - since).as_secs()).unwrap_or(i64::MAX);
            let whole = grace.unwrap_or_else(|| own_grace(self.pod));
            self.one(&sidecar.id, &sidecar.name, "", Cause::Other, Some((whole - spent).max(0))).await?;
        }
        for sandbox in &self.state.sandboxes {
            self.shared.runtime.stop_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    /// Stops a container: its hook first, then the signal, then the end.
    pub(super) async fn one(
        &self,
        id: &str,
        name: &str,
        message: &str,
        cause: Cause,
        grace: Option<i64>,
    ) -> Result<(), node::cri::Error> {
        let member = spec::member(self.pod, name);
        let kind = member.as_ref().map_or(spec::Kind::Regular, |m| m.kind);
        let message = if message.is_empty() { format!("Stopping container {name}") } else { message.to_owned() };
        self.shared.container_event(self.pod, kind, name, EventType::Normal, "Killing", &message);
        let probe = member.as_ref().and_then(|m| match cause {
            Cause::StartupProbe => m.container.startup_probe.clone(),
            Cause::LivenessProbe => m.container.liveness_probe.clone(),
            Cause::Other => None,
        });
        let of_probe = probe.and_then(|probe| probe.termination_grace_period_seconds);
        let noted = || {
            let container = self.state.containers.iter().find(|c| c.id == id)?;
            container.annotations.get(TERMINATION_GRACE_PERIOD)?.parse().ok()
        };
        let own = self.pod.metadata.deletion_grace_period_seconds.or(of_probe);
        let own = own.or_else(|| self.pod.spec.as_ref()?.termination_grace_period_seconds).or_else(noted);
        let mut grace = grace.or(own).unwrap_or(LEAST_GRACE);
        let hook = member.as_ref().and_then(|m| m.container.lifecycle.as_ref()?.pre_stop.as_ref());
        if let (Some(member), Some(hook)) = (&member, hook)
            && grace > 0
        {
            let since = self.shared.clock.monotonic();
            let facts = self.shared.facts();
            let ip = self.state.ip(self.pod, &facts.host_ips);
            let run = crate::worker::hooks::run(&*self.shared.runtime, id, self.pod, &member.container, ip, hook);
            let limit = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            if let Ok(Err(why)) = tokio::time::timeout(limit, run).await {
                tracing::debug!(pod = %spec::long_name(self.pod), container = name, why, "preStop hook failed");
                self.shared.container_event(
                    self.pod,
                    kind,
                    name,
                    EventType::Warning,
                    "FailedPreStopHook",
                    "PreStopHook failed",
                );
            }
            grace -= i64::try_from((self.shared.clock.monotonic() - since).as_secs()).unwrap_or(grace);
        }
        let grace = Duration::from_secs(u64::try_from(grace.max(LEAST_GRACE)).unwrap_or(0));
        self.shared.runtime.stop_container(id, grace).await
    }
}

/// The seconds that a pod asks for itself.
pub(super) fn own_grace(pod: &Pod) -> i64 {
    let of_deletion = pod.metadata.deletion_grace_period_seconds;
    of_deletion.or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds).unwrap_or(30)
}
