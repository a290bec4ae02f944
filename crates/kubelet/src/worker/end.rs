//! Ending: stopping what runs within the grace period, giving back what was taken, and letting the API forget the pod.

use std::time::{Duration, Instant};

use futures::future::join_all;
use informer::EventType;

use super::{Order, Worker, told};
use crate::config;
use crate::pod::plan::Cause;
use crate::pod::spec;
use crate::pod::state::{Container, Life, TERMINATION_GRACE_PERIOD};
use crate::volumes;

/// Even a container that is given no time gets this much, so that few are killed in the middle of leaving.
const LEAST_GRACE: i64 = 2;
/// Between tries to stop or clean up.
const AGAIN: Duration = Duration::from_secs(2);

impl Worker {
    /// Takes the pod to its end.
    pub(super) async fn end(&mut self) {
        // What was being made is made first, so that it is seen and ended with the rest. Each call has a deadline.
        self.calls.close();
        self.calls.wait().await;
        self.stop_within_grace().await;
        self.probes.stop();
        self.give_back().await;
        self.report(true);
        loop {
            let order = self.orders.borrow_and_update().clone();
            self.take(&order.pod);
            if order.gone || spec::is_deleting(&self.pod) {
                self.remove_traces().await;
                match &self.writer {
                    Some(writer) if !order.gone => writer.delete(),
                    _ => break,
                }
            }
            if order.gone || self.orders.wait_for(|next| next.gone || spec::is_deleting(&next.pod)).await.is_err() {
                break;
            }
            if spec::is_deleting(&self.pod) && !self.orders.borrow().gone {
                // Already on its way; only its going is left to be seen.
                if self.orders.wait_for(|next| next.gone).await.is_err() {
                    break;
                }
            }
        }
        let uid = self.uid().to_owned();
        self.shared.owners.lock().retain(|_, owner| *owner != uid);
    }

    /// Stops everything; a shorter grace period that comes in on the way is followed at once.
    async fn stop_within_grace(&mut self) {
        let since = self.shared.clock.monotonic();
        loop {
            let order = self.orders.borrow_and_update().clone();
            self.take(&order.pod);
            self.verdict = order.end.as_ref().map(|end| end.verdict.clone()).or(self.verdict.take());
            let grace = grace(&order);
            let spent = i64::try_from((self.shared.clock.monotonic() - since).as_secs()).unwrap_or(i64::MAX);
            if self.read().await.is_err() {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            self.report(false);
            let shorter = told(self.orders.clone(), |next| self::grace(next) < grace);
            let stopped = tokio::select! {
                stopped = self.stop_everything(Some((grace - spent).max(0))) => stopped,
                () = shorter => continue,
            };
            match stopped {
                Ok(()) => {
                    let read = self.read().await;
                    if read.is_ok() && !self.state.is_running() {
                        return;
                    }
                }
                Err(error) => {
                    let message = format!("error killing pod: {error}");
                    self.shared.event(&self.pod, EventType::Warning, "FailedKillPod", message);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Stops all containers, sidecars last and in the reverse of their order, then the sandboxes.
    pub(super) async fn stop_everything(&self, grace: Option<i64>) -> Result<(), node::cri::Error> {
        let running: Vec<&Container> =
            self.state.containers.iter().filter(|c| matches!(c.life, Life::Running | Life::Unknown)).collect();
        let place = |container: &&Container| {
            spec::init_containers(&self.pod).iter().position(|s| s.name == container.name && spec::is_sidecar(s))
        };
        let (mut sidecars, others): (Vec<&Container>, Vec<&Container>) =
            running.into_iter().partition(|c| place(c).is_some());
        sidecars.sort_by_key(|container| std::cmp::Reverse(place(container)));
        let since = self.shared.clock.monotonic();
        let stopped = join_all(others.iter().map(|c| self.kill(&c.id, &c.name, "", Cause::Other, grace))).await;
        stopped.into_iter().collect::<Result<(), _>>()?;
        for sidecar in sidecars {
            let spent = i64::try_from((self.shared.clock.monotonic() - since).as_secs()).unwrap_or(i64::MAX);
            let whole = grace.unwrap_or_else(|| own_grace(&self.pod));
            self.kill(&sidecar.id, &sidecar.name, "", Cause::Other, Some((whole - spent).max(0))).await?;
        }
        for sandbox in &self.state.sandboxes {
            self.shared.runtime.stop_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    /// Stops a container: its hook first, then the signal, then the end.
    pub(super) async fn kill(
        &self,
        id: &str,
        name: &str,
        message: &str,
        cause: Cause,
        grace: Option<i64>,
    ) -> Result<(), node::cri::Error> {
        let member = spec::member(&self.pod, name);
        let kind = member.as_ref().map_or(spec::Kind::Regular, |m| m.kind);
        let message = if message.is_empty() { format!("Stopping container {name}") } else { message.to_owned() };
        self.shared.container_event(&self.pod, kind, name, EventType::Normal, "Killing", &message);
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
            let ip = self.ip();
            let run = crate::hooks::run(&*self.shared.runtime, id, &self.pod, &member.container, &ip, hook);
            let limit = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            if let Ok(Err(why)) = tokio::time::timeout(limit, run).await {
                tracing::debug!(pod = %spec::long_name(&self.pod), container = name, why, "preStop hook failed");
                self.shared.container_event(
                    &self.pod,
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

    /// Volumes, the cgroup, and what is remembered about the pod.
    async fn give_back(&mut self) {
        let uid = self.uid().to_owned();
        self.volumes = None;
        self.shared.config_maps.release(&uid);
        self.shared.secrets.release(&uid);
        self.shared.trust_bundles.release(&uid);
        self.shared.tokens.forget(&uid);
        self.shared.images.forget(&uid);
        self.shared.allocations.remove(&uid);
        self.shared.figures.forget(&uid);
        self.shared.users.release(&uid);
        loop {
            let views = self.shared.release_views(&uid).await;
            let (root, pod) = (self.shared.settings.root.clone(), uid.clone());
            // Once its directory is gone nobody would know that a pod had views.
            let work =
                move || if views.is_ok() { volumes::remove(&root, &pod).map_err(|e| e.to_string()) } else { views };
            let removed = tokio::task::spawn_blocking(work).await;
            let cgroups = self.remove_cgroups(&uid).await;
            match (removed, cgroups) {
                (Ok(Ok(())), Ok(())) => return,
                (removed, cgroups) => {
                    let volumes = removed.map(Result::err);
                    tracing::warn!(uid, ?volumes, cgroups = ?cgroups.err(), "pod's resources not given back yet");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    async fn remove_cgroups(&self, uid: &str) -> Result<(), node::cgroups::Error> {
        let Some(cgroups) = &self.shared.cgroups else { return Ok(()) };
        self.shared.share_processors().await?;
        let begun = Instant::now();
        for name in self.shared.possible_cgroups(uid) {
            cgroups.remove(&name).await?;
        }
        self.shared.figures.cgroups.observe(&["destroy"], begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Containers, sandboxes and logs: nobody will ask for them any more.
    async fn remove_traces(&mut self) {
        loop {
            let removed = async {
                self.read().await?;
                for container in &self.state.containers {
                    self.shared.runtime.remove_container(&container.id).await?;
                }
                for sandbox in &self.state.sandboxes {
                    self.shared.runtime.remove_sandbox(&sandbox.id).await?;
                }
                Ok::<(), node::cri::Error>(())
            };
            match removed.await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(pod = %spec::long_name(&self.pod), %error, "pod's containers not removed yet");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        let logs = config::log_folder(&self.shared.facts(), &self.pod);
        if let Err(error) = std::fs::remove_dir_all(&logs)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, logs = %logs.display(), "logs not removed");
        }
    }
}

/// The seconds a pod is given by this order.
fn grace(order: &Order) -> i64 {
    let own = own_grace(&order.pod);
    order.end.as_ref().and_then(|end| end.grace).map_or(own, |grace| grace.min(own))
}

fn own_grace(pod: &k8s_openapi::api::core::v1::Pod) -> i64 {
    let of_deletion = pod.metadata.deletion_grace_period_seconds;
    of_deletion.or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds).unwrap_or(30)
}
