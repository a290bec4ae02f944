//! Syncing: read, report, plan, act; again until the plan is empty.

use std::time::{Duration, Instant};

use futures::future::join_all;
use informer::EventType;
use node::cgroups::Limits;

use super::{Turn, Worker};
use crate::pod::plan::{self, Cause, Plan};
use crate::pod::state::Life;
use crate::pod::{resources, spec};
use crate::status::Verdict;

/// After a failure that no news would announce the end of.
pub(super) const AGAIN: Duration = Duration::from_secs(10);
/// Between looks at a container whose end was announced before its state says so.
const SETTLE: Duration = Duration::from_millis(10);
/// Steps in one turn; more of them would be a loop.
const STEPS: usize = 64;

impl Worker {
    /// Brings the pod as far as it gets.
    pub(super) async fn sync(&mut self) -> Turn {
        self.allocate();
        // Waiting for what was announced is no step: a busy machine takes its time.
        let (mut steps, mut unsettled) = (0, 0);
        while steps < STEPS {
            if let Err(error) = self.read().await {
                tracing::warn!(pod = %spec::long_name(&self.pod), %error, "runtime not readable");
                return Turn::Wait(Some(Duration::from_secs(1)));
            }
            if !self.settled() && unsettled < 100 {
                unsettled += 1;
                tokio::time::sleep(SETTLE).await;
                continue;
            }
            steps += 1;
            self.note_probes();
            if let Some(verdict) = self.refused.take().or_else(|| self.overdue()) {
                self.verdict = Some(verdict);
                return Turn::Finished;
            }
            self.report(false);
            if matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
                return Turn::Finished;
            }
            let step = match self.actuate().await {
                Some(step) => step,
                None => {
                    let plan = plan::plan(&self.pod, &self.state, &self.verdicts.borrow().clone());
                    self.step(plan).await
                }
            };
            match step {
                Step::Again => {}
                Step::Wait(delay) => {
                    // What could not be started is part of the status.
                    self.report(false);
                    self.prune().await;
                    return Turn::Wait(self.sooner(delay));
                }
            }
        }
        tracing::error!(pod = %spec::long_name(&self.pod), "pod does not come to rest");
        Turn::Wait(Some(AGAIN))
    }

    /// Whether everything that was announced to have ended is seen as ended.
    fn settled(&self) -> bool {
        let mut exits = self.news.exits.lock();
        exits.retain(|id| {
            let container = self.state.containers.iter().any(|c| c.id == *id && c.life == Life::Running);
            let sandbox = self.state.sandboxes.iter().any(|s| s.id == *id && s.ready);
            container || sandbox
        });
        exits.is_empty()
    }

    /// The pod's deadline, if it has passed.
    fn overdue(&self) -> Option<Verdict> {
        let left = self.until_deadline()?;
        left.is_zero().then(|| Verdict {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
            disruption: None,
        })
    }

    fn until_deadline(&self) -> Option<Duration> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.status.start_time.as_ref()?.0;
        let deadline = informer::clock::add(started, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        Some(informer::clock::since(deadline, self.now()))
    }

    /// The earliest of what was asked for, the pod's deadline and the next look at its volumes.
    fn sooner(&self, delay: Option<Duration>) -> Option<Duration> {
        let volumes = self.volumes.as_ref().and_then(|v| v.due).map(|at| informer::clock::since(at, self.now()));
        [delay, self.until_deadline(), volumes].into_iter().flatten().min()
    }

    async fn step(&mut self, plan: Plan) -> Step {
        if plan.is_empty() {
            // Volumes of running containers follow their objects.
            if self.state.is_running() && self.volumes_due() {
                return match self.make_volumes().await {
                    Ok(()) => Step::Wait(None),
                    Err(delay) => Step::Wait(Some(delay)),
                };
            }
            self.waiting.clear();
            return Step::Wait(None);
        }
        if let Some(name) = &plan.start_over {
            return self.start_over(name).await;
        }
        if plan.kill_pod {
            if plan.sandbox.as_ref().is_some_and(|sandbox| sandbox.replaces) {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.shared.event(&self.pod, EventType::Normal, "SandboxChanged", message);
            }
            if let Err(error) = self.stopper().all(None).await {
                self.shared.event(
                    &self.pod,
                    EventType::Warning,
                    "FailedKillPod",
                    format!("error killing pod: {error}"),
                );
                return Step::Wait(Some(AGAIN));
            }
            return Step::Again;
        }
        for kill in &plan.kill {
            if let Err(error) = self.stopper().one(&kill.id, &kill.name, &kill.message, kill.cause, None).await {
                tracing::warn!(pod = %spec::long_name(&self.pod), container = kill.name, %error, "container not killed");
                return Step::Wait(Some(AGAIN));
            }
        }
        if plan.start.is_empty() {
            return if plan.kill.is_empty() { Step::Wait(None) } else { Step::Again };
        }
        if let Some(why) = self.no_network() {
            let message = format!("network is not ready: {why}");
            if self.is_first_report(&message) {
                self.shared.event(&self.pod, EventType::Warning, "NetworkNotReady", message);
            }
            let mut network = self.shared.network.clone();
            // Until the network is there, or it is time to look whether the pod still wants it.
            let _ = tokio::time::timeout(AGAIN, network.wait_for(Option::is_none)).await;
            return Step::Again;
        }
        if let Err(error) = self.make_cgroup().await {
            let message = format!("unable to ensure pod container exists: {error}");
            self.shared.event(&self.pod, EventType::Warning, "FailedCreatePodContainer", message);
            return Step::Wait(Some(AGAIN));
        }
        if let Err(delay) = self.make_volumes().await {
            return Step::Wait(Some(delay));
        }
        if let Some(sandbox) = &plan.sandbox {
            self.shared.figures.started_pods.increment(&[]);
            if let Err(error) = self.make_sandbox(sandbox.attempt).await {
                self.shared.figures.failed_pods.increment(&[]);
                let message = format!("Failed to create pod sandbox: {error}");
                self.shared.event(&self.pod, EventType::Warning, "FailedCreatePodSandBox", message);
                return Step::Wait(Some(AGAIN));
            }
            // The address is known now, and the rest is planned with it.
            return Step::Again;
        }
        if let Err(error) = self.attach().await {
            let message = format!("network is not ready: {error}");
            if self.is_first_report(&message) {
                self.shared.event(&self.pod, EventType::Warning, "NetworkNotReady", message);
            }
            return Step::Wait(Some(AGAIN));
        }
        self.start_all(&plan.start).await
    }

    /// Stops and removes all containers, the one that caused it last: killed on the way, the next look sees it and goes on.
    async fn start_over(&mut self, name: &str) -> Step {
        let pod = self.pod.clone();
        if let Some(member) = spec::member(&pod, name)
            && let Err(failure) = self.check_restart(&member)
        {
            self.waiting.insert(name.to_owned(), failure.waiting);
            return Step::Wait(Some(failure.again));
        }
        let this = &*self;
        let running = this.state.containers.iter().filter(|c| matches!(c.life, Life::Running | Life::Unknown));
        let stopped = join_all(running.map(|c| async move {
            let message = format!("Container {} is stopped because all containers are restarted", c.name);
            this.stopper().one(&c.id, &c.name, &message, Cause::Other, None).await
        }));
        let mut failed = stopped.await.into_iter().find_map(Result::err);
        let (last, others): (Vec<_>, Vec<_>) = self.state.containers.iter().partition(|c| c.name == name);
        for container in others.into_iter().chain(last) {
            if failed.is_none() {
                failed = self.shared.runtime.remove_container(&container.id).await.err();
            }
        }
        match failed {
            None => Step::Again,
            Some(error) => {
                tracing::warn!(pod = %spec::long_name(&self.pod), %error, "containers not removed to start over");
                Step::Wait(Some(AGAIN))
            }
        }
    }

    /// Removes containers and sandboxes nobody will ask for any more: of every container the newest two are kept, for its
    /// status and for the log before the present one.
    async fn prune(&self) {
        let mut seen: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
        let mut kept = Vec::new();
        for container in &self.state.containers {
            let count = seen.entry(container.name.as_str()).or_default();
            *count += 1;
            if *count <= 2 || matches!(container.life, Life::Running | Life::Unknown) {
                kept.push(&container.sandbox);
            } else if let Err(error) = self.shared.runtime.remove_container(&container.id).await {
                tracing::debug!(%error, container = container.id, "old container not removed");
            }
        }
        for sandbox in self.state.sandboxes.iter().skip(1).filter(|s| !s.ready && !kept.contains(&&s.id)) {
            if let Err(error) = self.shared.runtime.remove_sandbox(&sandbox.id).await {
                tracing::debug!(%error, sandbox = sandbox.id, "old sandbox not removed");
            }
        }
    }

    fn no_network(&self) -> Option<String> {
        if spec::is_host_network(&self.pod) { None } else { self.shared.network.borrow().clone() }
    }

    pub(super) async fn make_cgroup(&self) -> Result<(), node::cgroups::Error> {
        let Some(cgroups) = &self.shared.cgroups else { return Ok(()) };
        self.shared.share_processors().await?;
        let name = self.shared.cgroup(&self.pod);
        let limits: Limits = resources::pod_limits(&self.pod, self.shared.settings.pod_pids);
        let begun = Instant::now();
        let made = cgroups.create(&name, &limits).await;
        self.shared.figures.cgroups.observe(&["create"], begun.elapsed().as_secs_f64());
        made
    }
}

/// What a step came to.
pub(super) enum Step {
    /// Something was done: look again.
    Again,
    /// Nothing more can be done now.
    Wait(Option<Duration>),
}
