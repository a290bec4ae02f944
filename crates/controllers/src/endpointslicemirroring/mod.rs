//! EndpointSlice mirroring: Endpoints that users write by hand, for Services without a selector, become EndpointSlices.
//!
//! `plan` decides and is pure. Upstream: endpointslicemirroring controller.

mod plan;
#[cfg(test)]
mod tests;

use client::{Client, DeleteOptions};
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::Error;
use crate::common::batch;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::context::Context;
use crate::endpointslice::{MANAGED_BY_LABEL, SERVICE_LABEL};

const WORKERS: usize = 5;
/// The index of mirrored slices by the Service they belong to.
const MIRROR_INDEX: &str = "mirrored-service";

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Mirroring {
        client: context.client.clone(),
        services: context.informers.of(),
        endpoints: context.informers.of(),
        slices: context.informers.of(),
    };
    controller.slices.add_index(MIRROR_INDEX, |slice: &EndpointSlice| {
        owner_of(slice).map(|key| key.to_string()).into_iter().collect()
    });
    let queue = context.queue();
    informer::feed(&controller.services, &queue, |change| [change.object().metadata.key()]);
    informer::feed(&controller.endpoints, &queue, |change| [change.object().metadata.key()]);
    informer::feed(&controller.slices, &queue, |change| owner_of(change.object()));
    futures::join!(controller.services.synced(), controller.endpoints.synced(), controller.slices.synced());
    context.run(controller, queue, WORKERS).await;
}

/// The Service of a slice that is this controller's.
fn owner_of(slice: &EndpointSlice) -> Option<Key> {
    let meta = &slice.metadata;
    let name = meta.label(SERVICE_LABEL).filter(|_| meta.label(MANAGED_BY_LABEL) == Some(plan::MANAGER))?;
    Some(Key::new(meta.namespace(), name))
}

struct Mirroring {
    client: Client,
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    slices: Informer<EndpointSlice>,
}

impl Reconciler for Mirroring {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let existing = self.slices.by_index(MIRROR_INDEX, &key.to_string());
        let service = self.services.get(key).filter(|service| plan::is_selectorless(service));
        let endpoints = self.endpoints.get(key).filter(|endpoints| plan::is_mirrored(endpoints));
        let wanted = match (service, endpoints) {
            (Some(_), Some(endpoints)) => plan::slices(&endpoints),
            _ => Vec::new(),
        };
        let plan = plan::plan(&existing, wanted);
        let created = batch::all(&plan.create, |slice| async {
            match self.client.create(slice).await {
                Err(error) if namespace_ends(&error) => Ok(()),
                answer => answer.map(drop),
            }
        });
        let updated = batch::all(&plan.update, |slice| async { self.client.update(slice).await.map(drop) });
        let deleted = batch::all(&plan.delete, |slice| async {
            let (namespace, name) = (slice.metadata.namespace(), slice.metadata.name());
            match self.client.delete::<EndpointSlice>(namespace, name, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => Ok(()),
                answer => answer,
            }
        });
        let (created, updated, deleted) = futures::join!(created, updated, deleted);
        created.and(updated).and(deleted)?;
        Ok(Action::Done)
    }
}
