//! What all pods of the node may use together, set on the cgroup that they are in.
//!
//! That is what the machine has without what is reserved. Eviction's thresholds are not taken off: pods are to be ended before
//! the kernel ends some process, and the kernel must leave room for that.

use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, EventType, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use node::cgroups::{Cgroups, Limits, Name};
use tokio_util::sync::CancellationToken;

use super::Config;
use super::machine::Machine;
use crate::pod::resources;

/// Between tries: pods that use more than they may have to be evicted first.
const AGAIN: Duration = Duration::from_secs(60);

/// The limits of the cgroup of all pods. Processors are a weight: nobody needs the time that pods do not use.
pub fn limits(config: &Config, machine: &Machine) -> Limits {
    let left = |whole: i64, reserved: i64| if config.enforced { (whole - reserved).max(0) } else { whole };
    let processes = machine.processes.0;
    Limits {
        cpu_shares: u64::try_from(resources::shares(left(machine.processors * 1000, config.reserved_cpu_milli))).ok(),
        memory: Some(left(machine.memory, config.reserved_memory)),
        pids: (processes > 0).then(|| left(processes, config.reserved_pids)),
        ..Limits::default()
    }
}

/// Sets them, and says so in events about the node.
pub(crate) struct Enforcement {
    pub(crate) cgroups: Cgroups,
    /// The cgroup of all pods.
    pub(crate) name: Name,
    pub(crate) limits: Limits,
    pub(crate) recorder: Recorder,
    pub(crate) node: ObjectReference,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Enforcement {
    /// However often that takes.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        while let Err(error) = self.cgroups.create(&self.name, &self.limits).await {
            let place = self.name.parent_for_runtime(self.cgroups.driver());
            let message = format!("Failed to update Node Allocatable Limits {place:?}: {error}");
            self.event(EventType::Warning, "FailedNodeAllocatableEnforcement", message);
            tokio::select! {
                () = self.clock.sleep(AGAIN) => {}
                () = stop.cancelled() => return,
            }
        }
        let message = "Updated Node Allocatable limit across pods".to_owned();
        self.event(EventType::Normal, "NodeAllocatableEnforced", message);
    }

    fn event(&self, kind: EventType, reason: &str, message: String) {
        self.recorder.event_about(self.node.clone(), kind, reason, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_together_may_use_what_is_not_reserved() {
        let machine = Machine { processors: 4, memory: 8 << 30, processes: (32_768, 100), ..Machine::default() };
        let mut config = crate::Config::new("n", std::path::Path::new("/nowhere")).node;
        config.eviction = crate::pressure::Config::default().thresholds;
        let whole = limits(&config, &machine);
        assert_eq!((whole.cpu_shares, whole.memory, whole.pids), (Some(4096), Some(8 << 30), Some(32_768)));
        assert_eq!((whole.cpu_quota, whole.cpu_period), (None, None));
        (config.reserved_cpu_milli, config.reserved_memory, config.reserved_pids) = (500, 1 << 30, 768);
        let left = limits(&config, &machine);
        assert_eq!((left.cpu_shares, left.memory, left.pids), (Some(3584), Some(7 << 30), Some(32_000)));
        config.reserved_memory = 9 << 30;
        assert_eq!(limits(&config, &machine).memory, Some(0));
        config.enforced = false;
        assert_eq!(limits(&config, &machine), whole);
    }
}
