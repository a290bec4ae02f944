//! ResourceQuota: keeps `status.used`, by which admission decides.
//!
//! `usage` counts and is pure. Pods, services and claims are counted from the caches; for everything else (`count/widgets.example.com`) the API server is asked when the
//! quota is looked at. Upstream: resource quota controller.

#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Client, Gvr, ListParams};
use informer::{Action, AllMetadata, Cached, Informer, Key, Metadata, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, ResourceQuotaStatus, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::Error;
use crate::common::discovery::discover;
use crate::common::meta::MetaExt;
use crate::context::Context;
use usage::Usage;

const WORKERS: usize = 5;
/// Counts that no cache holds are brought up to date this often; creations are counted by admission in between.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let informers = &context.informers;
    let controller = Quotas {
        client: context.client.clone(),
        quotas: informers.of(),
        pods: informers.of(),
        services: informers.of(),
        claims: informers.of(),
        // Only counted, and too large to be kept for that.
        secrets: informers.spawn(AllMetadata(informers.client().dynamic(&Gvr::new("", "v1", "secrets")))),
        maps: informers.spawn(AllMetadata(informers.client().dynamic(&Gvr::new("", "v1", "configmaps")))),
        controllers: informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.quotas, &queue, |change| [change.object().metadata.key()]);
    controller.follow(&controller.pods, &queue, usage::pod_matters);
    controller.follow(&controller.services, &queue, |_, _| true);
    controller.follow(&controller.claims, &queue, |_, _| true);
    controller.follow(&controller.secrets, &queue, |_, _| false);
    controller.follow(&controller.maps, &queue, |_, _| false);
    controller.follow(&controller.controllers, &queue, |_, _| false);
    futures::join!(
        controller.quotas.synced(),
        controller.pods.synced(),
        controller.services.synced(),
        controller.claims.synced(),
        controller.secrets.synced(),
        controller.maps.synced(),
        controller.controllers.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct Quotas {
    client: Client,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    secrets: Informer<Metadata>,
    maps: Informer<Metadata>,
    controllers: Informer<ReplicationController>,
}

impl Quotas {
    /// Looks at the quotas of a namespace when an object comes or goes, or changes in a way that matters.
    fn follow<K: Cached>(&self, informer: &Informer<K>, queue: &WorkQueue<Key>, matters: fn(&K, &K) -> bool) {
        let quotas = self.quotas.clone();
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
        let mut unknown = Vec::new();
        if !usage::has_scopes(&spec) {
            self.services.by_namespace(namespace).iter().for_each(|service| usage::add_service(&mut used, service));
            self.claims.by_namespace(namespace).iter().for_each(|claim| usage::add_claim(&mut used, claim));
            for (names, count) in [
                (["secrets", "count/secrets"], self.secrets.by_namespace(namespace).len()),
                (["configmaps", "count/configmaps"], self.maps.by_namespace(namespace).len()),
                (
                    ["replicationcontrollers", "count/replicationcontrollers"],
                    self.controllers.by_namespace(namespace).len(),
                ),
                (["resourcequotas", "count/resourcequotas"], self.quotas.by_namespace(namespace).len()),
            ] {
                names.iter().for_each(|name| usage::set_count(&mut used, name, count));
            }
            unknown = usage::uncached(&hard);
            self.count_others(namespace, &unknown, &mut used).await?;
        }
        let wire: BTreeMap<String, Wire> =
            used.into_iter().map(|(name, amount)| (name, Wire(amount.to_string()))).collect();
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(wire) };
        if quota.status.as_ref() != Some(&status) {
            self.client.update_status(&ResourceQuota { status: Some(status), ..ResourceQuota::clone(&quota) }).await?;
        }
        Ok(if unknown.is_empty() { Action::Done } else { Action::After(RESYNC) })
    }
}

impl Quotas {
    async fn count_others(&self, namespace: &str, names: &[String], used: &mut Usage) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let resources = discover(&self.client).await?.resources;
        for name in names {
            let wanted = name.strip_prefix("count/").unwrap_or(name);
            let (plural, group) = wanted.split_once('.').unwrap_or((wanted, ""));
            let found =
                resources.iter().find(|resource| resource.gvr.resource == plural && resource.gvr.group == group);
            if let Some(resource) = found.filter(|resource| resource.namespaced && resource.can(&["list"])) {
                let list = self.client.dynamic(&resource.gvr).list_metadata(namespace, &ListParams::default()).await?;
                usage::set_count(used, name, list.items.len());
            }
        }
        Ok(())
    }
}
