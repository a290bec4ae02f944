//! Protection of volumes and claims: what is in use is not removed before it no longer is.
//!
//! A finalizer is put on every claim and volume; it is taken away from one that is being deleted as soon as no pod uses the claim, or no claim the volume.
//! Upstream: pvc-protection and pv-protection controllers.

use std::sync::Arc;

use client::Client;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::common::protection::protect;
use crate::context::Context;

const WORKERS: usize = 2;
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// The index of pods by the claims they use.
const CLAIM_INDEX: &str = "claim";

/// Runs the protection of claims.
pub(crate) async fn start_claims(context: Context) {
    let controller =
        Claims { client: context.client.clone(), claims: context.informers.of(), pods: context.informers.of() };
    controller.pods.add_index(CLAIM_INDEX, |pod: &Pod| claims_of(pod).iter().map(Key::to_string).collect());
    let queue = context.queue();
    informer::feed(&controller.claims, &queue, |change| change.after().map(|claim| claim.metadata.key()));
    informer::feed(&controller.pods, &queue, |change| {
        let over = change.after().is_none_or(|pod| pods::is_terminal(pod));
        if over { claims_of(change.object()) } else { Vec::new() }
    });
    futures::join!(controller.claims.synced(), controller.pods.synced());
    context.run(controller, queue, WORKERS).await;
}

/// Runs the protection of volumes.
pub(crate) async fn start_volumes(context: Context) {
    let controller = Volumes { client: context.client.clone(), volumes: context.informers.of() };
    let queue = context.queue();
    informer::feed(&controller.volumes, &queue, |change| change.after().map(|volume| volume.metadata.key()));
    controller.volumes.synced().await;
    context.run(controller, queue, WORKERS).await;
}

/// The claims a pod uses, those of its ephemeral volumes included.
fn claims_of(pod: &Pod) -> Vec<Key> {
    let volumes = pods::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let names = volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name(), volume.name)),
        (None, None) => None,
    });
    names.map(|name| Key::new(pod.metadata.namespace(), name)).collect()
}

struct Claims {
    client: Client,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

impl Reconciler for Claims {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let uses = |pod: &Arc<Pod>| !pods::is_terminal(pod) && pods::node_name(pod).is_some();
        let mut used = self.pods.by_index(CLAIM_INDEX, &key.to_string()).iter().any(uses);
        if !used && claim.metadata.is_deleting() && claim.metadata.has_finalizer(CLAIM_FINALIZER) {
            // The cache may not show a pod that was bound a moment ago; data is at stake, so the API server is asked.
            let live = self.client.list::<Pod>(&key.namespace, &client::ListParams::default()).await?;
            // A pod that cannot be read may use anything.
            used =
                !live.undecodable.is_empty() || live.items.iter().any(|pod| uses(pod) && claims_of(pod).contains(key));
        }
        protect(&self.client, &*claim, CLAIM_FINALIZER, used).await.map(|()| Action::Done)
    }
}

struct Volumes {
    client: Client,
    volumes: Informer<PersistentVolume>,
}

impl Reconciler for Volumes {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Action::Done) };
        let used = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        protect(&self.client, &*volume, VOLUME_FINALIZER, used).await.map(|()| Action::Done)
    }
}
