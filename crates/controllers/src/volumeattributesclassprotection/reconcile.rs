//! Observes, applies what `plan` decides, and reports.

use client::Client;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use super::plan;
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::protection::protect;
use crate::context::Context;

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// The index of claims and volumes by the classes they name.
const CLASS_INDEX: &str = "volumeAttributesClassName";

pub(crate) async fn start(context: Context) {
    let controller = Classes {
        client: context.client.clone(),
        classes: context.informers.of(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
    };
    controller.claims.add_index(CLASS_INDEX, plan::of_claim);
    controller.volumes.add_index(CLASS_INDEX, plan::of_volume);
    let queue = context.queue();
    informer::feed(&controller.classes, &queue, |change| change.after().map(|class| class.metadata.key()));
    informer::feed(&controller.claims, &queue, |change| plan::left(change, plan::of_claim));
    informer::feed(&controller.volumes, &queue, |change| plan::left(change, plan::of_volume));
    futures::join!(controller.classes.synced(), controller.claims.synced(), controller.volumes.synced());
    context.run(controller, queue, 1).await;
}

struct Classes {
    client: Client,
    classes: Informer<VolumeAttributesClass>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for Classes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(class) = self.classes.get(key) else { return Ok(Action::Done) };
        let used = self.claims.count(CLASS_INDEX, &key.name) + self.volumes.count(CLASS_INDEX, &key.name) > 0;
        protect(&self.client, &*class, FINALIZER, used).await.map(|()| Action::Done)
    }
}
