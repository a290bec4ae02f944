//! Rules: each has a condition that says how many pods it still evicts, or would.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::Patch;
use informer::{Action, Key, Reconciler, clock};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use parking_lot::Mutex;
use serde_json::json;

use super::plan;
use super::reconcile::Devices;
use super::status::{self, Counts, IN_PROGRESS, Progress};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Tools;

/// The shortest time between two updates of one condition.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// The manager of the condition.
const MANAGER: &str = "device-taint-eviction-controller";

pub(super) struct Rules {
    pub(super) tools: Tools,
    pub(super) devices: Devices,
    pub(super) evicted: Arc<Mutex<HashMap<String, usize>>>,
}

impl Reconciler for Rules {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(rule) = self.devices.rules.get(key) else {
            let left: BTreeSet<String> =
                self.devices.rules.list().iter().map(|rule| rule.metadata.uid().to_owned()).collect();
            self.evicted.lock().retain(|uid, _| left.contains(uid));
            return Ok(Action::Done);
        };
        let (known, now) = (status::known(&rule), self.tools.clock.now());
        if let Some(known) = known.filter(|known| known.observed_generation == rule.metadata.generation) {
            let left = clock::since(clock::add(known.last_transition_time.0, PERIOD), now);
            // A time from the future says nothing: clocks are set back at times.
            if !left.is_zero() && left <= PERIOD {
                return Ok(Action::After(left));
            }
        }
        let progress = status::progress(&rule.spec.taint.effect, &self.count(&rule));
        if known.is_some_and(|known| progress.is_reported_by(known, rule.metadata.generation)) {
            return Ok(Action::Done);
        }
        self.write(&rule, &progress).await?;
        Ok(Action::Done)
    }
}

impl Rules {
    fn count(&self, rule: &Arc<DeviceTaintRule>) -> Counts {
        let evicted = self.evicted.lock().get(rule.metadata.uid()).copied().unwrap_or_default();
        let (published, allocated, rules) = match rule.spec.taint.effect.as_str() {
            plan::NO_EXECUTE => (0, 0, self.devices.rules.list()),
            "None" => {
                let (slices, claims) = (self.devices.slices.list(), self.devices.claims.list());
                let (published, allocated) = plan::selected(rule, &slices, &claims);
                // What would be, if it had an effect.
                let mut evicting = DeviceTaintRule::clone(rule);
                evicting.spec.taint.effect = plan::NO_EXECUTE.to_owned();
                (published, allocated, vec![Arc::new(evicting)])
            }
            _ => return Counts { evicted, ..Counts::default() },
        };
        let users: BTreeSet<Key> = self.devices.claims.list().iter().flat_map(|claim| plan::consumers(claim)).collect();
        let pods = users.iter().filter_map(|key| self.devices.pods.get(key));
        let concerned = |pod: &Arc<Pod>| {
            let eviction = self.devices.eviction(pod, &rules).filter(|_| !pod.metadata.is_deleting());
            eviction.is_some_and(|eviction| eviction.rules().any(|(_, uid)| uid == rule.metadata.uid()))
        };
        let pods: Vec<Arc<Pod>> = pods.filter(concerned).collect();
        let namespaces: BTreeSet<&str> = pods.iter().map(|pod| pod.metadata.namespace()).collect();
        Counts { pods: pods.len(), namespaces: namespaces.len(), published, allocated, evicted }
    }

    async fn write(&self, rule: &DeviceTaintRule, progress: &Progress) -> Result<(), Error> {
        let condition = json!({
            "type": IN_PROGRESS,
            "status": progress.status,
            "reason": progress.reason,
            "message": progress.message,
            "observedGeneration": rule.metadata.generation,
            "lastTransitionTime": machinery::time::format(self.tools.clock.now()),
        });
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
            "metadata": {"name": rule.metadata.name, "uid": rule.metadata.uid},
            "status": {"conditions": [condition]},
        });
        let patch = Patch::Apply { manager: MANAGER.to_owned(), force: true, object };
        match self.tools.client.patch_status::<DeviceTaintRule>("", rule.metadata.name(), &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
