//! Observes, applies what `plan` decides, and reports.

use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::plan::{self, Step};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::metrics;

const WORKERS: usize = 10;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = EphemeralVolumes { tools: context.tools.clone(), pods: inputs.read(), claims: inputs.read() };
    inputs.feed(&controller.pods, |change| {
        change.after().filter(|pod| plan::ephemeral(pod).next().is_some()).map(|pod| pod.metadata.key())
    });
    inputs.feed(&controller.claims, |change| {
        // A claim that somebody deleted under its pod is made again.
        let gone = change.after().is_none().then(|| change.object());
        gone.and_then(|claim| claim.metadata.controller())
            .filter(|owner| owner.kind == "Pod")
            .map(|owner| Key::new(change.object().metadata.namespace(), &owner.name))
    });
    inputs.run(controller, WORKERS).await;
}

struct EphemeralVolumes {
    tools: Tools,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
}

impl Reconciler for EphemeralVolumes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(Action::Done) };
        for (volume, step) in plan::plan(&pod, |claim| self.claims.get(claim)) {
            let claim = match step {
                Step::Create(claim) => claim,
                Step::Refuse(reason) => return Err(Error::Unusable { key: key.clone(), reason }),
            };
            metrics::EPHEMERAL_CREATED.increment(&[]);
            if let Err(error) = self.tools.client.create(&*claim).await
                && !error.is_already_exists()
            {
                metrics::EPHEMERAL_FAILED.increment(&[]);
                let message = format!("ephemeral volume {volume}: create PVC {}: {error}", claim.metadata.name());
                self.tools.recorder.event(&*pod, EventType::Warning, "FailedBinding", message);
                return Err(error.into());
            }
        }
        Ok(Action::Done)
    }
}
