//! Ending: stopping what runs within the grace period, giving back what was taken, and letting the API forget the pod.

use std::time::{Duration, Instant};

use informer::EventType;

use super::stop::{Stopper, own_grace};
use super::{Order, Worker, ordered};
use crate::cri_config;
use crate::pod::spec;

/// Between tries to stop or clean up.
const AGAIN: Duration = Duration::from_secs(2);

impl Worker {
    /// Stops what runs, within the pod's time.
    pub(super) async fn terminate(&mut self) {
        // What was being made is made first, so that it is seen and ended with the rest. Each call has a deadline.
        self.calls.close();
        self.calls.wait().await;
        self.probes.stop_for_termination();
        self.stop_within_grace().await;
        self.probes.stop();
    }

    /// Gives back what the pod had, reports its end, and waits until nobody wants to see it any more.
    pub(super) async fn release(&mut self) {
        self.give_back().await;
        self.report(true);
        ordered(self.orders.clone(), |order| order.gone || spec::is_deleting(&order.pod)).await;
    }

    /// Removes what is left of the pod, and lets the API forget it.
    pub(super) async fn remove(&mut self) {
        let order = self.orders.borrow_and_update().clone();
        self.take(&order.pod);
        self.remove_traces().await;
        if let Some(writer) = self.writer.as_ref().filter(|_| !order.gone) {
            writer.delete();
            ordered(self.orders.clone(), |order| order.gone).await;
        }
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
            match self.stop_or_shorter(grace, spent).await {
                None => continue,
                Some(Ok(())) => {
                    let read = self.read().await;
                    if read.is_ok() && !self.state.is_running() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    let message = format!("error killing pod: {error}");
                    self.shared.event(&self.pod, EventType::Warning, "FailedKillPod", message);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Stops everything, or says nothing because less time is given now. What readiness probes say meanwhile is reported: others
    /// stop sending traffic by it.
    async fn stop_or_shorter(&mut self, grace: i64, spent: i64) -> Option<Result<(), node::cri::Error>> {
        let (shared, pod, state) = (self.shared.clone(), self.pod.clone(), self.state.clone());
        let stopper = Stopper { shared: &shared, pod: &pod, state: &state };
        let stopped = stopper.all(Some((grace - spent).max(0)));
        let shorter = ordered(self.orders.clone(), move |next| self::grace(next) < grace);
        let mut verdicts = self.verdicts.subscribe();
        tokio::pin!(stopped, shorter);
        loop {
            tokio::select! {
                stopped = &mut stopped => return Some(stopped),
                () = &mut shorter => return None,
                Ok(()) = verdicts.changed() => self.report(false),
            }
        }
    }

    /// Volumes, the cgroup, and what is remembered about the pod.
    async fn give_back(&mut self) {
        let uid = self.uid().to_owned();
        // What a driver was being asked for is there, or not, before it is taken away.
        self.mounts.close();
        self.mounts.wait().await;
        self.volumes = None;
        self.shared.config_maps.release(&uid);
        self.shared.secrets.release(&uid);
        self.shared.trust_bundles.release(&uid);
        self.shared.claims.release(&uid);
        self.shared.tokens.forget(&uid);
        self.shared.images.forget(&uid);
        self.shared.allocations.remove(&uid);
        self.shared.figures.forget(&uid);
        self.shared.users.release(&uid);
        loop {
            let removed = self.shared.give_back_volumes(&uid).await;
            let cgroups = self.remove_cgroups(&uid).await;
            match (removed, cgroups) {
                (Ok(()), Ok(())) => return,
                (volumes, cgroups) => {
                    let (volumes, cgroups) = (volumes.err(), cgroups.err());
                    tracing::warn!(uid, ?volumes, ?cgroups, "pod's resources not given back yet");
                    // A driver may take long to come back; that the containers ended is true already.
                    self.report(false);
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
        self.detach();
        let logs = cri_config::log_folder(&self.shared.facts(), &self.pod);
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
