//! Ephemeral volumes: makes the claims of pods that bring the template of a claim along. The pod owns the claim, so it goes with the pod.
//!
//! Upstream: ephemeral volume controller.

use client::Client;
use informer::{Action, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Error;
use crate::common::meta::{MetaExt, controller_reference};
use crate::common::pods;
use crate::context::Context;
use crate::metrics;

const WORKERS: usize = 10;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = EphemeralVolumes {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        pods: context.informers.of(),
        claims: context.informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.pods, &queue, |change| {
        change.after().filter(|pod| ephemeral(pod).next().is_some()).map(|pod| pod.metadata.key())
    });
    informer::feed(&controller.claims, &queue, |change| {
        // A claim that somebody deleted under its pod is made again.
        let gone = change.after().is_none().then(|| change.object());
        gone.and_then(|claim| claim.metadata.controller())
            .filter(|owner| owner.kind == "Pod")
            .map(|owner| Key::new(change.object().metadata.namespace(), &owner.name))
    });
    futures::join!(controller.pods.synced(), controller.claims.synced());
    context.run(controller, queue, WORKERS).await;
}

struct EphemeralVolumes {
    client: Client,
    recorder: Recorder,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
}

fn ephemeral(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pods::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().filter(|volume| volume.ephemeral.is_some())
}

/// The claim of a volume; `None` if it brings no template.
fn claim_for(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
    let meta = template.metadata.unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", pod.metadata.name(), volume.name)),
            namespace: pod.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec),
        status: None,
    })
}

impl Reconciler for EphemeralVolumes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| pods::is_active(pod)) else { return Ok(Action::Done) };
        for volume in ephemeral(&pod) {
            let Some(claim) = claim_for(&pod, volume) else { continue };
            match self.claims.get(&claim.metadata.key()) {
                Some(known) if known.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid()) => {}
                Some(known) => {
                    let reason =
                        format!("PVC {} was not created for pod {key} (pod is not owner)", known.metadata.key());
                    return Err(Error::Unusable { key: key.clone(), reason });
                }
                None => {
                    metrics::EPHEMERAL_CREATED.increment(&[]);
                    if let Err(error) = self.client.create(&claim).await
                        && !error.is_already_exists()
                    {
                        metrics::EPHEMERAL_FAILED.increment(&[]);
                        let message =
                            format!("ephemeral volume {}: create PVC {}: {error}", volume.name, claim.metadata.name());
                        self.recorder.event(&*pod, EventType::Warning, "FailedBinding", message);
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(Action::Done)
    }
}
