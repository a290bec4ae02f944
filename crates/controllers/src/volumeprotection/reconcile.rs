//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

use super::plan::{is_bound, keeps, refers, stage, unused};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::protection::protect;
use crate::common::storage::{CLAIM_INDEX, claim_values, claims_of};
use crate::context::{Context, Tools};
use crate::inputs::present;

const WORKERS: usize = 2;
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Runs the protection of claims.
pub(crate) async fn start_claims(context: Context) {
    let mut inputs = context.inputs();
    let controller = Claims { tools: context.tools.clone(), claims: inputs.watch(present), pods: inputs.read() };
    controller.pods.add_index(CLAIM_INDEX, claim_values);
    inputs.feed(&controller.pods, |change| {
        let stage = |pod: Option<&Arc<Pod>>| pod.map(|pod| stage(pod));
        let news = stage(change.before()) != stage(change.after());
        if news { claims_of(change.object()) } else { Vec::new() }
    });
    inputs.run(controller, WORKERS).await;
}

/// Runs the protection of volumes.
pub(crate) async fn start_volumes(context: Context) {
    let mut inputs = context.inputs();
    let controller = Volumes { tools: context.tools.clone(), volumes: inputs.watch(present) };
    inputs.run(controller, WORKERS).await;
}

struct Claims {
    tools: Tools,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

impl Reconciler for Claims {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let pods = self.pods.by_index(CLAIM_INDEX, &key.to_string());
        let refers = pods.iter().any(|pod| refers(pod, &claim));
        if let Some(conditions) = unused(&claim, refers, self.tools.clock.now()) {
            let mut changed = PersistentVolumeClaim::clone(&claim);
            changed.status.get_or_insert_default().conditions = Some(conditions);
            // What follows for the finalizer is decided about the claim as it is then.
            return self.tools.client.update_status(&changed).await.map(|_| Action::Done).map_err(Error::from);
        }
        let mut used = pods.iter().any(|pod| keeps(pod, &claim));
        if !used && claim.metadata.is_deleting() && claim.metadata.has_finalizer(CLAIM_FINALIZER) {
            // The cache may not show a pod that was bound a moment ago; data is at stake, so the API server is asked.
            let live = self.tools.client.list::<Pod>(&key.namespace, &client::ListParams::default()).await?;
            // A pod that cannot be read may use anything.
            used = !live.undecodable.is_empty() || live.items.iter().any(|pod| keeps(pod, &claim));
        }
        protect(&self.tools.client, &*claim, CLAIM_FINALIZER, used).await.map(|()| Action::Done)
    }
}

struct Volumes {
    tools: Tools,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for Volumes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Action::Done) };
        protect(&self.tools.client, &*volume, VOLUME_FINALIZER, is_bound(&volume)).await.map(|()| Action::Done)
    }
}
