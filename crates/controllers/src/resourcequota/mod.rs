//! ResourceQuota: keeps `status.used`, by which admission decides.
//!
//! `usage` counts and is pure. Pods, services and claims are counted from the caches that everybody shares; for everything else that a quota limits
//! (`secrets`, `count/widgets.example.com`), a cache of its metadata is begun when the first quota names it. Upstream: resource quota controller.

mod others;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::{Action, Cached, Informer, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;
use others::Others;
use usage::Usage;

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
        others: Others::new(informers.clone(), informers.of(), queue.clone()),
    };
    informer::feed(&controller.quotas, &queue, |change| [change.object().metadata.key()]);
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
    others: Arc<Others>,
}

/// Looks at the quotas of a namespace when an object comes or goes, or changes in a way that matters.
fn follow<K: Cached>(
    quotas: &Informer<ResourceQuota>,
    informer: &Informer<K>,
    queue: &WorkQueue<Key>,
    matters: fn(&K, &K) -> bool,
) {
    let quotas = quotas.clone();
    informer::feed(informer, queue, move |change| {
        if let (Some(before), Some(after)) = (change.before(), change.after())
            && !matters(before, after)
        {
            return Vec::new();
        }
        let namespace = change.object().meta().namespace.clone().unwrap_or_default();
        quotas.by_namespace(&namespace).iter().map(|quota| quota.metadata.key()).collect()
    });
}

impl Reconciler for Quotas {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(quota) = self.quotas.get(key) else { return Ok(Action::Done) };
        let spec = quota.spec.clone().unwrap_or_default();
        let hard = spec.hard.clone().unwrap_or_default();
        let mut used: Usage = hard.keys().map(|name| (name.clone(), Quantity::new(0, Format::DecimalSi))).collect();
        let namespace = key.namespace.as_str();
        for pod in self.pods.by_namespace(namespace).iter().filter(|pod| usage::in_scope(&spec, pod)) {
            usage::add_pod(&mut used, pod);
        }
        // A quota with scopes is about pods alone.
        let mut unknown = false;
        if !usage::has_scopes(&spec) {
            self.services.by_namespace(namespace).iter().for_each(|service| usage::add_service(&mut used, service));
            self.claims.by_namespace(namespace).iter().for_each(|claim| usage::add_claim(&mut used, claim));
            for (name, plural, group) in usage::counted(&hard) {
                match self.others.count(&self.client, plural, group, namespace).await? {
                    Some(count) => usage::set_count(&mut used, name, count),
                    None => unknown = true,
                }
            }
        }
        let wire: BTreeMap<String, Wire> =
            used.into_iter().map(|(name, amount)| (name, Wire(amount.to_string()))).collect();
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(wire) };
        if quota.status.as_ref() != Some(&status) {
            self.client.update_status(&ResourceQuota { status: Some(status), ..ResourceQuota::clone(&quota) }).await?;
        }
        Ok(if unknown { Action::After(RESYNC) } else { Action::Done })
    }
}
