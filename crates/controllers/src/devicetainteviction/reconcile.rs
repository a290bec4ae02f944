//! Observes, applies what `plan` decides, and reports.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use informer::{Action, Change, EventType, Informer, Key, Reconciler, WorkQueue, clock};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use parking_lot::Mutex;

use super::plan::{self, Eviction, PoolId, Published};
use super::rules::{self, Rules};
use crate::Error;
use crate::common::eviction::evict;
use crate::common::meta::MetaExt;
use crate::common::{pods, resource_claims};
use crate::context::{Context, Tools};
use crate::inputs::Inputs;
use crate::metrics;

const WORKERS: usize = 8;
/// The index of claims by the pools of their devices, and of slices by their own.
const POOL_INDEX: &str = "devicePool";
/// What the queue of rules is called in metrics. Upstream has one queue for both.
const RULE_QUEUE: &str = "device-taint-eviction-controller-rules";

pub(crate) async fn start(context: Context) {
    let (mut inputs, rule_inputs) = (context.inputs(), context.inputs_of(context.queue_named(RULE_QUEUE)));
    let devices = Devices { pods: inputs.read(), claims: inputs.read(), slices: inputs.read(), rules: inputs.read() };
    devices.claims.add_index(POOL_INDEX, |claim| plan::pools(claim).iter().map(PoolId::text).collect());
    devices.slices.add_index(POOL_INDEX, |slice| vec![PoolId::of_slice(slice).text()]);
    devices.listen(&inputs, &rule_inputs);
    inputs.filled().await;
    let evicted: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let evictions = Evictions {
        tools: context.tools.clone(),
        devices: devices.clone(),
        rule_queue: rule_inputs.queue.clone(),
        pending: Mutex::default(),
        evicted: evicted.clone(),
    };
    let rules = Rules { tools: context.tools.clone(), devices, evicted };
    futures::join!(inputs.run(evictions, WORKERS), rule_inputs.run(rules, 1));
}

/// What is known of pods and devices.
#[derive(Clone)]
pub(super) struct Devices {
    pub(super) pods: Informer<Pod>,
    pub(super) claims: Informer<ResourceClaim>,
    pub(super) slices: Informer<ResourceSlice>,
    pub(super) rules: Informer<DeviceTaintRule>,
}

impl Devices {
    fn listen(&self, pods: &Inputs, rules: &Inputs) {
        pods.feed(&self.pods, |change| {
            // Their status changes all day; what matters here is where they are and which claims they have.
            let same = matches!(change, Change::Modified { old, new }
                if pods::node_name(old) == pods::node_name(new) && claim_statuses(old) == claim_statuses(new));
            let concerned = !same && !resource_claims::of_pod(change.object()).is_empty();
            concerned.then(|| change.object().metadata.key())
        });
        pods.feed(&self.claims, |change| {
            let both = [change.before(), change.after()].into_iter().flatten();
            both.filter(|claim| !plan::allocated(claim).is_empty())
                .flat_map(|claim| plan::consumers(claim))
                .collect::<Vec<_>>()
        });
        let devices = self.clone();
        pods.feed(&self.slices, move |change| {
            let pool = PoolId::of_slice(change.object()).text();
            let tainted = change.before().is_some_and(|slice| plan::evicts(slice))
                || devices.slices.by_index(POOL_INDEX, &pool).iter().any(|slice| plan::evicts(slice));
            let claims = if tainted { devices.claims.by_index(POOL_INDEX, &pool) } else { Vec::new() };
            claims.iter().flat_map(|claim| plan::consumers(claim)).collect::<Vec<_>>()
        });
        let devices = self.clone();
        pods.feed(&self.rules, move |change| {
            let both = [change.before(), change.after()].into_iter().flatten();
            let evicts = both.into_iter().any(|rule| rule.spec.taint.effect == plan::NO_EXECUTE);
            let claims = if evicts && !is_same_rule(change) { devices.claims.list() } else { Vec::new() };
            claims.iter().flat_map(|claim| plan::consumers(claim)).collect::<Vec<_>>()
        });
        rules.feed(&self.rules, |change| (!is_same_rule(change)).then(|| change.object().metadata.key()));
    }

    /// When a pod has to go because of what drivers say and these rules.
    pub(super) fn eviction(&self, pod: &Pod, rules: &[Arc<DeviceTaintRule>]) -> Option<Eviction> {
        let claims = plan::claims_of(pod, |name| self.claims.get(&Key::new(pod.metadata.namespace(), name)));
        let pools = claims.iter().flat_map(|claim| plan::pools(claim));
        let published: Published =
            pools.map(|pool| (pool.clone(), self.slices.by_index(POOL_INDEX, &pool.text()))).collect();
        plan::plan(pod, &claims, &published, rules)
    }
}

fn claim_statuses(pod: &Pod) -> Option<&Vec<k8s_openapi::api::core::v1::PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

/// Whether only the status of a rule changed.
fn is_same_rule(change: &Change<DeviceTaintRule>) -> bool {
    matches!(change, Change::Modified { old, new } if old.spec == new.spec)
}

struct Evictions {
    tools: Tools,
    devices: Devices,
    rule_queue: WorkQueue<Key>,
    /// Pods whose time is set. If it is called off, an event says so.
    pending: Mutex<HashSet<Key>>,
    /// How many pods went because of which rule, by its uid.
    evicted: Arc<Mutex<HashMap<String, usize>>>,
}

impl Reconciler for Evictions {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.devices.pods.get(key).filter(|pod| !pod.metadata.is_deleting()) else {
            self.pending.lock().remove(key);
            return Ok(Action::Done);
        };
        let Some(eviction) = self.devices.eviction(&pod, &self.devices.rules.list()) else {
            if self.pending.lock().remove(key) {
                self.record(&pod, "Cancelling deletion");
            }
            return Ok(Action::Done);
        };
        let left = clock::since(eviction.when, self.tools.clock.now());
        if !left.is_zero() {
            self.pending.lock().insert(key.clone());
            self.note(&eviction);
            return Ok(Action::After(left));
        }
        self.record(&pod, "Marking for deletion");
        let (reason, message) =
            ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
        evict(&self.tools.client, &pod, reason, message, self.tools.clock.now()).await?;
        self.pending.lock().remove(key);
        metrics::DEVICE_TAINT_DELETIONS.increment(&[]);
        let waited = clock::since(self.tools.clock.now(), eviction.when);
        metrics::DEVICE_TAINT_DELETION_SECONDS.observe(&[], waited.as_secs_f64());
        for (_, uid) in eviction.rules() {
            *self.evicted.lock().entry(uid.to_owned()).or_default() += 1;
        }
        self.note(&eviction);
        Ok(Action::Done)
    }
}

impl Evictions {
    fn record(&self, pod: &Pod, message: &str) {
        self.tools.recorder.event(pod, EventType::Normal, "DeviceTaintManagerEviction", message);
    }

    /// The conditions of the rules are brought up to date, but not for every pod: more may follow at once.
    fn note(&self, eviction: &Eviction) {
        for (name, _) in eviction.rules() {
            self.rule_queue.add_after(Key::cluster(name), rules::PERIOD);
        }
    }
}
