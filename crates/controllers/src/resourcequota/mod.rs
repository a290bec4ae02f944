//! ResourceQuota: keeps `status.used`, by which admission decides.
//!
//! `usage` counts and is pure, with the evaluator that admission charges by ([`machinery::quota`]). Pods, services and claims are counted
//! from the caches that everybody shares; for everything else that a quota limits
//! (`secrets`, `count/widgets.example.com`), a cache of its metadata is begun when the first quota names it. Upstream: resource quota controller.
//!
//! Admission charges a quota *before* it stores the object, so a count made in between would take the charge away and let one object too many in.
//! Therefore a count waits until the quota has not been charged for a moment (`charges`). It comes then even if nothing else happened: the object of
//! a charge may never have been stored.

mod charges;
mod others;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::{Action, Cached, Clock, Informer, Key, Reconciler, WorkQueue, clock};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;
use charges::Charges;
use others::Others;
use usage::Count;

const WORKERS: usize = 5;
/// A quota of something that does not exist (yet) is looked at again this often: that a resource comes, nobody tells.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let (informers, queue) = (&context.informers, context.queue());
    let controller = Quotas {
        client: context.client.clone(),
        quotas: informers.of(),
        pods: informers.of(),
        services: informers.of(),
        claims: informers.of(),
        clock: context.clock.clone(),
        charges: Arc::new(Charges::new(context.clock.clone())),
        others: Others::new(informers.clone(), informers.of(), queue.clone()),
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
    follow(&controller.quotas, &controller.pods, &queue, usage::pod_matters);
    follow(&controller.quotas, &controller.services, &queue, |_, _| true);
    follow(&controller.quotas, &controller.claims, &queue, |_, _| true);
    futures::join!(
        controller.quotas.synced(),
        controller.pods.synced(),
        controller.services.synced(),
        controller.claims.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct Quotas {
    client: Client,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    clock: Arc<dyn Clock>,
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
fn follow<K: Cached>(
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
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
        // Limits that admission does not know yet are urgent: it refuses everything until it knows them.
        let known = quota.status.as_ref().is_some_and(|status| status.hard.as_ref() == Some(&hard));
        if known && let Some(rest) = self.charges.unsettled(key) {
            return Ok(Action::After(rest));
        }
        self.charges.forget(key);
        let namespace = key.namespace.as_str();
        let now = self.clock.now();
        let mut count = Count::new(&quota, now);
        self.pods.by_namespace(namespace).iter().for_each(|pod| count.add_pod(pod));
        self.services.by_namespace(namespace).iter().for_each(|service| count.add_service(service));
        self.claims.by_namespace(namespace).iter().for_each(|claim| count.add_claim(claim));
        let mut unknown = false;
        for (name, plural, group) in count.others() {
            match self.others.count(&self.client, &plural, &group, namespace).await? {
                Some(number) => count.set_count(&name, number),
                None => unknown = true,
            }
        }
        // A moment later than it still counts.
        let due = count.due.map(|due| clock::since(due, now) + Duration::from_millis(1));
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(count.wire()) };
        if quota.status.as_ref() != Some(&status) {
            self.client.update_status(&ResourceQuota { status: Some(status), ..ResourceQuota::clone(&quota) }).await?;
        }
        Ok(Action::after(due.into_iter().chain(unknown.then_some(RESYNC)).min()))
    }
}
