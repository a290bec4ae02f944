//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;
use std::time::Duration;

use informer::{Action, Cached, Informer, Key, Reconciler, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::charges::{self, Charges};
use super::others::Others;
use super::plan::{self, Count, Observed};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let queue = inputs.queue.clone();
    let controller = Quotas {
        tools: context.tools.clone(),
        quotas: inputs.read(),
        pods: inputs.read(),
        services: inputs.read(),
        claims: inputs.read(),
        device_claims: inputs.read(),
        charges: Arc::new(Charges::new(context.tools.clock.clone())),
        others: Others::new(context.informers.clone(), context.informers.of(), queue.clone()),
    };
    let (charges, wanted) = (controller.charges.clone(), queue.clone());
    controller.quotas.subscribe(move |change| {
        let key = change.object().metadata.key();
        match (change.before(), change.after()) {
            (Some(before), Some(after)) if is_charge(before, after) => {
                charges.add(&key);
                wanted.add_after(key, charges::SETTLED);
            }
            _ => wanted.add(key),
        }
    });
    follow(&controller.quotas, &controller.pods, &queue, plan::pod_matters);
    follow(&controller.quotas, &controller.services, &queue, |_, _| true);
    follow(&controller.quotas, &controller.claims, &queue, |_, _| true);
    follow(&controller.quotas, &controller.device_claims, &queue, |_, _| true);
    inputs.run(controller, WORKERS).await;
}

struct Quotas {
    tools: Tools,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    device_claims: Informer<ResourceClaim>,
    charges: Arc<Charges>,
    others: Arc<Others>,
}

/// Whether only the amounts in use changed: admission's work, or the echo of our own.
fn is_charge(before: &ResourceQuota, after: &ResourceQuota) -> bool {
    let limits = |quota: &ResourceQuota| {
        let (spec, status) = (quota.spec.clone().unwrap_or_default(), quota.status.clone().unwrap_or_default());
        (spec.hard, status.hard)
    };
    limits(before) == limits(after)
}

/// Looks at the quotas of a namespace when an object goes or changes in a way that matters. One that comes was charged for by admission; it is
/// counted a little later all the same, because the quota may be younger than the request.
pub(super) fn follow<K: Cached>(
    quotas: &Informer<ResourceQuota>,
    informer: &Informer<K>,
    queue: &WorkQueue<Key>,
    matters: fn(&K, &K) -> bool,
) {
    let (quotas, queue) = (quotas.clone(), queue.clone());
    informer.subscribe(move |change| {
        let namespace = change.object().meta().namespace.clone().unwrap_or_default();
        let concerned = quotas.by_namespace(&namespace);
        if concerned.is_empty() {
            return;
        }
        let delay = match (change.before(), change.after()) {
            (Some(before), Some(after)) if !matters(before, after) => return,
            (None, _) => charges::SETTLED,
            _ => Duration::ZERO,
        };
        for quota in concerned {
            queue.add_after(quota.metadata.key(), delay);
        }
    });
}

impl Reconciler for Quotas {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(quota) = self.quotas.get(key) else {
            self.charges.forget(key);
            return Ok(Action::Done);
        };
        if plan::limits_are_known(&quota)
            && let Some(rest) = self.charges.unsettled(key)
        {
            return Ok(Action::After(rest));
        }
        self.charges.forget(key);
        let now = self.tools.clock.now();
        let observed = self.observe(key, quota, now).await?;
        let plan = plan::plan(&observed, self.pods.each_in(&key.namespace), now);
        if let Some(status) = plan.status {
            let changed = ResourceQuota { status: Some(status), ..ResourceQuota::clone(&observed.quota) };
            self.tools.client.update_status(&changed).await?;
        }
        Ok(Action::after(plan.again))
    }
}

impl Quotas {
    async fn observe(&self, key: &Key, quota: Arc<ResourceQuota>, now: Timestamp) -> Result<Observed, Error> {
        let namespace = key.namespace.as_str();
        let mut others = Vec::new();
        for (name, plural, group) in Count::new(&quota, now).others() {
            others.push((name, self.others.count(&self.tools.client, &plural, &group, namespace).await?));
        }
        Ok(Observed {
            services: self.services.by_namespace(namespace),
            claims: self.claims.by_namespace(namespace),
            device_claims: self.device_claims.by_namespace(namespace),
            others,
            quota,
        })
    }
}
