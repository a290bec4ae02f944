//! Which claims a pod with ephemeral volumes lacks.

use std::sync::Arc;

use informer::Key;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::{MetaExt, controller_reference};
use crate::common::pods;

/// What to do for a volume.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Create(Box<PersistentVolumeClaim>),
    /// Somebody else's claim has the name. The volumes after this one wait.
    Refuse(String),
}

/// The steps by the names of their volumes, in the order of the volumes.
pub(super) fn plan(pod: &Pod, known: impl Fn(&Key) -> Option<Arc<PersistentVolumeClaim>>) -> Vec<(String, Step)> {
    let mut steps = Vec::new();
    for volume in ephemeral(pod).filter(|_| pods::is_active(pod)) {
        let Some(claim) = claim_for(pod, volume) else { continue };
        let step = match known(&claim.metadata.key()) {
            None => Step::Create(Box::new(claim)),
            Some(known) if known.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid()) => continue,
            Some(known) => {
                let (claim, pod) = (known.metadata.key(), pod.metadata.key());
                Step::Refuse(format!("PVC {claim} was not created for pod {pod} (pod is not owner)"))
            }
        };
        steps.push((volume.name.clone(), step));
    }
    steps
}

pub(super) fn ephemeral(pod: &Pod) -> impl Iterator<Item = &Volume> {
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
