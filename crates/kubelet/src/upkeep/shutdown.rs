//! The machine's shutdown: pods are ended in the order of their priority, each group within its time, before the machine is
//! allowed to go down. Announced by systemd-logind; ending Trireme itself ends no pod.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use node::logind::{self, Announcements};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::pods::Pods;
use crate::status::Verdict;
use crate::worker::End;

/// From this priority on a pod is the system's own.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;
/// Before listening again when the bus went away.
const AGAIN: Duration = Duration::from_secs(5);

/// The time of the pods from one priority on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// From this one on.
    pub priority: i32,
    pub seconds: i64,
}

/// Times by priority, lowest first; none for a node that just goes down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config(pub Vec<Period>);

impl Config {
    /// So much for all, and of that so much for critical pods.
    pub fn new(whole: Duration, critical: Duration) -> Self {
        if whole.is_zero() || critical > whole {
            return Self::default();
        }
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Self(vec![
            Period { priority: 0, seconds: seconds(whole - critical) },
            Period { priority: SYSTEM_CRITICAL, seconds: seconds(critical) },
        ])
    }

    fn whole(&self) -> Duration {
        Duration::from_secs(self.0.iter().map(|period| u64::try_from(period.seconds).unwrap_or(0)).sum())
    }

    /// Pods by the period they have, the least important first.
    fn groups(&self, pods: Vec<Arc<Pod>>) -> Vec<(Period, Vec<Arc<Pod>>)> {
        let mut groups: Vec<(Period, Vec<Arc<Pod>>)> = self.0.iter().map(|period| (*period, Vec::new())).collect();
        for pod in pods {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
            // One that is lower than all of them has the lowest.
            let place = self.0.iter().rposition(|period| period.priority <= priority).unwrap_or(0);
            if let Some((_, members)) = groups.get_mut(place) {
                members.push(pod);
            }
        }
        groups.retain(|(_, members)| !members.is_empty());
        groups
    }
}

fn verdict() -> Verdict {
    let message = "Pod was terminated in response to imminent node shutdown.";
    Verdict { reason: "Terminated".to_owned(), message: message.to_owned(), disruption: Some(message.to_owned()) }
}

/// Why new pods do not start.
pub fn refusal() -> Verdict {
    Verdict {
        reason: "NodeShutdown".to_owned(),
        message: "Pod was rejected as the node is shutting down.".to_owned(),
        disruption: None,
    }
}

/// Waits for the shutdown.
pub struct Shutdown {
    pub(crate) config: Config,
    pub(crate) pods: Pods,
    /// Set while the machine goes down.
    pub(crate) begun: watch::Sender<bool>,
    /// Told when that changed.
    pub(crate) status_changed: Arc<Notify>,
}

impl Shutdown {
    /// Holds shutdowns up until it is stopped, where somebody announces them.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.config.0.is_empty() {
            return;
        }
        if !logind::present() {
            tracing::warn!("no systemd here: a shutdown of the machine cannot be held up for pods to end");
            return;
        }
        while !stop.is_cancelled() {
            tokio::select! {
                held = self.hold() => if let Err(error) = held {
                    tracing::warn!(%error, "shutdowns are not held up; trying again");
                },
                () = stop.cancelled() => return,
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn hold(&self) -> Result<(), logind::Error> {
        logind::allow_delay(self.config.whole()).await?;
        let mut announcements = Announcements::listen()?;
        let mut lock = Some(logind::inhibit()?);
        loop {
            let begins = announcements.next().await?;
            self.begun.send_replace(begins);
            self.status_changed.notify_one();
            if begins {
                tracing::info!("the machine is about to go down; ending pods");
                self.end_all().await;
                lock = None;
            } else if lock.is_none() {
                lock = Some(logind::inhibit()?);
            }
        }
    }

    /// Ends all pods, group by group.
    pub(crate) async fn end_all(&self) {
        for (period, members) in self.config.groups(self.pods.active()) {
            let ends =
                members.iter().map(|pod| self.pods.end(pod, End { verdict: verdict(), grace: Some(period.seconds) }));
            let limit = Duration::from_secs(u64::try_from(period.seconds).unwrap_or(0));
            if tokio::time::timeout(limit, join_all(ends)).await.is_err() {
                tracing::warn!(priority = period.priority, "pods did not end in their time");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec;
    use serde_json::json;

    #[test]
    fn pods_end_by_priority_each_group_in_its_time() {
        let config = Config::new(Duration::from_secs(30), Duration::from_secs(10));
        assert_eq!(config.0.iter().map(|p| p.seconds).collect::<Vec<_>>(), [20, 10]);
        assert_eq!(config.whole(), Duration::from_secs(30));
        let pod = |name: &str, priority: i32| -> Arc<Pod> {
            serde_json::from_value(
                json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": []}}),
            )
            .map(Arc::new)
            .unwrap()
        };
        let pods = vec![pod("low", -5), pod("system", 2_000_001_000), pod("usual", 0), pod("high", 1000)];
        let groups = config.groups(pods);
        let names = |index: usize| groups[index].1.iter().map(|p| spec::name(p).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (names(0), names(1)),
            (vec!["low".into(), "usual".into(), "high".into()], vec!["system".to_owned()])
        );
        assert_eq!(Config::new(Duration::ZERO, Duration::ZERO), Config::default());
    }
}
