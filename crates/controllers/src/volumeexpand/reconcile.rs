//! Observes, applies what `plan` decides, and reports.

use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::plan::{grew, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::storage;
use crate::context::{Context, Tools};

const WORKERS: usize = 2;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = VolumeExpand {
        tools: context.tools.clone(),
        claims: inputs.watch(|change| grew(change).then(|| change.object().metadata.key())),
        volumes: inputs.read(),
    };
    inputs.run(controller, WORKERS).await;
}

struct VolumeExpand {
    tools: Tools,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for VolumeExpand {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let Some(volume) = storage::bound_volume(&claim, &self.volumes) else { return Ok(Action::Done) };
        if let Some(message) = plan(&claim, &volume) {
            self.tools.recorder.event(&*claim, EventType::Normal, "ExternalExpanding", message);
        }
        Ok(Action::Done)
    }
}
