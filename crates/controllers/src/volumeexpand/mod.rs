//! Volume expansion: tells who asks for a larger volume that somebody outside has to make it so.
//!
//! Upstream's expand controller grows volumes of in-tree plug-ins, of which none is left that can grow; what is left is the word to the user. The resizer of a CSI driver,
//! or our own local-path provisioner, does the work. Upstream: expandController.

use informer::{Action, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::storage::{self, PRE_RESIZE};
use crate::context::Context;

const WORKERS: usize = 2;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = VolumeExpand {
        recorder: context.recorder.clone(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.claims, &queue, |change| {
        let grew = match change {
            informer::Change::Added(_) => true,
            informer::Change::Modified { old, new } => {
                storage::requested(new) > storage::requested(old) || storage::granted(new) > storage::granted(old)
            }
            informer::Change::Deleted(_) => false,
        };
        grew.then(|| change.object().metadata.key())
    });
    futures::join!(controller.claims.synced(), controller.volumes.synced());
    context.run(controller, queue, WORKERS).await;
}

struct VolumeExpand {
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for VolumeExpand {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let Some(volume) = storage::bound_volume(&claim, &self.volumes) else { return Ok(Action::Done) };
        let wanted = storage::requested(&claim) > storage::granted(&claim);
        if wanted || volume.metadata.annotation(PRE_RESIZE).is_some() {
            let message = "waiting for an external controller to expand this PVC";
            self.recorder.event(&*claim, EventType::Normal, "ExternalExpanding", message);
        }
        Ok(Action::Done)
    }
}
