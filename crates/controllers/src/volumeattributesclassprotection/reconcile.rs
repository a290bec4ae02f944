//! Observes, applies what `plan` decides, and reports.

use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use super::plan;
use crate::Error;
use crate::common::protection::protect;
use crate::context::{Context, Tools};
use crate::inputs::present;

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// The index of claims and volumes by the classes they name.
const CLASS_INDEX: &str = "volumeAttributesClassName";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Classes {
        tools: context.tools.clone(),
        classes: inputs.watch(present),
        claims: inputs.watch(|change| plan::left(change, plan::of_claim)),
        volumes: inputs.watch(|change| plan::left(change, plan::of_volume)),
    };
    controller.claims.add_index(CLASS_INDEX, plan::of_claim);
    controller.volumes.add_index(CLASS_INDEX, plan::of_volume);
    inputs.run(controller, 1).await;
}

struct Classes {
    tools: Tools,
    classes: Informer<VolumeAttributesClass>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for Classes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(class) = self.classes.get(key) else { return Ok(Action::Done) };
        let used = self.claims.count(CLASS_INDEX, &key.name) + self.volumes.count(CLASS_INDEX, &key.name) > 0;
        protect(&self.tools.client, &*class, FINALIZER, used).await.map(|()| Action::Done)
    }
}
